"""The calls of a stream that join it with another stream. `join_plans` plans them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Generic, Literal, Never, TypeVar

from headgate.api.checks import check_by_name
from headgate.api.job_builder import JobBuilder
from headgate.api.planned_rows import PlannedRows
from headgate.errors import PlanError
from headgate.operators.windows.window_kinds import Windows

#: Stands for the class of streams. Its module imports this one, so this one cannot import it.
DataStream = TypeVar("DataStream")
Duration = float | str | timedelta


class Joinable(ABC, Generic[DataStream]):
    """A stream that can be joined with another stream."""

    _jobs: JobBuilder
    _rows: PlannedRows

    def join(
        self,
        other: DataStream,
        on: str | Sequence[str] | Mapping[str, str],
        *unnamed: Never,
        within: tuple[Duration, Duration] | None = None,
        window: Windows | None = None,
        ttl: Duration | None = None,
        how: Literal["inner", "left", "right", "full"] = "inner",
        suffix: str | None = None,
    ) -> DataStream:
        """Join each row with the rows of another stream that have the same key and are near in time.

        `on` names the key columns. If the other stream has other names for them, `on` is a mapping from this stream's
        names to those. A null key matches nothing. Exactly one of three arguments says which rows are near:

        - `within=(lower, upper)`: rows of the other stream whose event time is from `lower` to `upper` after the event
          time of this stream's row. Both bounds belong to the range. A negative duration is before. The upper bound may
          also be the name of a timestamp column of this stream, which has the latest event time of a partner. The lower
          bound may also be the name of this stream's event-time column, which means 0 s.
        - `window=hg.tumble(size)`: rows in the same window. The result has `window_start` and `window_end`.
        - `ttl`: rows that arrive within this duration of each other by the clock. This needs no event time, and only
          inner joins have it. For every pair, however far apart, give a long duration, such as "3650 d".

        A pair is in the result as soon as its second row arrives. `how` says which rows without a partner are in the
        result, with nulls for the other stream: those of this stream ("left"), of the other ("right"), of both
        ("full"). They are emitted when the watermark has passed the latest event time of a partner. The state keeps
        every row until then, or for `ttl`.

        The result has all columns of this stream, then those of the other without its keys. `suffix` is added to
        columns of the other stream whose names this stream also has; without it, such a name is a PlanError.

        >>> at = pa.array([0, 60, 120], pa.timestamp("s", tz="UTC"))
        >>> asked = pa.record_batch({"id": [1, 2, 3], "at": at})
        >>> paid = pa.record_batch({"id": [3, 1, 1], "paid_at": at, "euro": [5, 7, 9]})
        >>> env = hg.StreamEnvironment()
        >>> orders = env.from_source(hg.sources.iterable([asked]), watermark=hg.Watermark("at"))
        >>> payments = env.from_source(hg.sources.iterable([paid]), watermark=hg.Watermark("paid_at"))
        >>> joined = orders.join(payments, on="id", within=("0 s", "90 s"), how="left")
        >>> joined.select("id", "euro").collect().sort_by("id").to_pylist()
        [{'id': 1, 'euro': 7}, {'id': 2, 'euro': None}, {'id': 3, 'euro': None}]
        """
        from headgate.api.join_plans import JoinedStreams  # few programs join

        check_by_name("join", unnamed, "join(other, on, within=...)")
        streams = JoinedStreams.of("join", self._rows, self._joined_with("join", other), on)
        return self._stream(streams.join(within, window, ttl, how, suffix))

    def join_as_of(
        self,
        other: DataStream,
        on: str | Sequence[str] | Mapping[str, str],
        *unnamed: Never,
        how: Literal["left", "inner"] = "left",
        suffix: str | None = None,
    ) -> DataStream:
        """Give each row the columns of the other stream's latest row of the same key, as of the row's event time.

        The other stream is a table whose rows change: a row of it is valid from its event time until the next row of
        its key. Each row of this stream meets the row that is valid at its event time. So a result does not depend on
        how fast the two streams are read. A row without such a row gets nulls; with `how="inner"` it is dropped. For
        `on` and `suffix` see `join`.

        A row is emitted when the watermark has passed its event time. Late rows of this stream are dropped. The
        operator keeps the other stream's latest row of each key for ever.

        >>> at = pa.array([0, 60, 120], pa.timestamp("s", tz="UTC"))
        >>> sold = pa.record_batch({"item": ["tea", "tea", "rice"], "at": at})
        >>> priced = pa.record_batch({"item": ["tea", "tea", "rice"], "since": at, "euro": [2, 3, 5]})
        >>> env = hg.StreamEnvironment()
        >>> sales = env.from_source(hg.sources.iterable([sold]), watermark=hg.Watermark("at"))
        >>> prices = env.from_source(hg.sources.iterable([priced]), watermark=hg.Watermark("since"))
        >>> sales.join_as_of(prices, on="item").select("item", "euro").collect().sort_by("euro").to_pylist()
        [{'item': 'tea', 'euro': 2}, {'item': 'tea', 'euro': 3}, {'item': 'rice', 'euro': 5}]
        """
        from headgate.api.join_plans import JoinedStreams  # few programs join

        check_by_name("join_as_of", unnamed, "join_as_of(other, on, how=...)")
        streams = JoinedStreams.of("join_as_of", self._rows, self._joined_with("join_as_of", other), on)
        return self._stream(streams.join_as_of(how, suffix))

    def _joined_with(self, call: str, other: object) -> PlannedRows:
        """Return the rows of the other stream. Raises PlanError if it is not a stream of the same environment."""
        if not isinstance(other, Joinable) or other._jobs is not self._jobs:
            raise PlanError(f"{call}: {other!r} is not a stream of this environment")
        return other._rows

    @abstractmethod
    def _stream(self, rows: PlannedRows) -> DataStream:
        """Return a stream of these rows."""
