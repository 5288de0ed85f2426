"""The calls of streams that choose rows of each key: `deduplicate`, `top`, `max_by` and `min_by`.

The classes are parts of `DataStream`, `KeyedStream` and `WindowedStream`. `Stream` is the type that a call returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, Literal, Never, TypeVar

from headgate.api.checks import as_columns, check_by_name, check_columns
from headgate.api.event_time import visible
from headgate.api.planned_rows import PlannedRows
from headgate.api.rows_by_key import RowsByKey
from headgate.errors import ConfigError, PlanError
from headgate.quantities import microseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.operators.aggregates.top_rows import TopRows
    from headgate.records.order_words import Ranking

Stream = TypeVar("Stream")
#: The most rows of a key that `top` keeps.
_MOST_ROWS = 100_000


class Deduplicates(ABC, Generic[Stream]):
    """A stream that can pass on one row of each key."""

    _rows: PlannedRows

    @abstractmethod
    def _stream(self, rows: PlannedRows) -> Stream: ...

    def deduplicate(
        self,
        on: str | Sequence[str],
        *,
        keep: Literal["first", "last"] = "first",
        ttl: float | str | timedelta | None = None,
        final: bool = False,
    ) -> Stream:
        """Pass on one of the rows that have the same values in the columns `on`.

        With `keep="first"`, this is the row that comes first; the others are dropped. With `keep="last"`, it is the
        last row so far, by event time if the stream has event time: after each batch, the operator passes on the last
        row of each key in the batch, which replaces the key's earlier row. A row that is older than the key's last row
        is dropped. With `keep="last"` and `final=True`, the operator emits one row for each key, and only when a
        bounded input ends.

        The operator remembers each key for `ttl`, by event time if the stream has event time, otherwise by the clock.
        Without `ttl` it remembers a key for ever. With `keep="first"`, a key's next row is passed on if it is at least
        `ttl` newer than the row that was passed on. An older row is always a duplicate. `ttl` is refused with
        `final=True`, and with `keep="last"` in a stream without event time.

        >>> trips.deduplicate("city").collect()["km"].to_pylist()
        [7, 3]
        >>> trips.deduplicate("city", keep="last", final=True).collect().sort_by("km")["km"].to_pylist()
        [3, 5]
        """
        columns = check_columns("deduplicate", as_columns("deduplicate: on", on), visible(self._rows.schema))
        if not columns:
            raise PlanError("deduplicate: on= needs at least one column")
        if keep not in ("first", "last"):
            raise PlanError(f"deduplicate: keep={keep!r} must be 'first' or 'last'")
        time_to_live = None if ttl is None else _time_to_live(ttl)
        by_key = RowsByKey.of(self._rows, columns)
        if _is_final(final, keep, ttl):
            return self._stream(by_key.last_rows())
        if time_to_live is not None and keep == "last" and self._rows.event_time is None:
            raise PlanError(
                "deduplicate: ttl= has no effect with keep='last' and without event time, because no key is "
                "remembered; leave it out, or add watermark=hg.Watermark(column) to from_source"
            )
        return self._stream(by_key.deduplicated(keep, time_to_live))


class RanksByKey(ABC, Generic[Stream]):
    """A stream by key that can choose the rows of each key with extreme values."""

    _by_key: RowsByKey

    @abstractmethod
    def _stream(self, rows: PlannedRows) -> Stream: ...

    def top(
        self,
        n: int,
        by: str | Sequence[str],
        *unnamed: Never,
        ascending: bool | Sequence[bool] = False,
        rank: bool = True,
        final: bool = False,
    ) -> Stream:
        """Choose the `n` rows of each key with the greatest values in the column `by`, or the least if `ascending`.

        With several columns, each further one ranks the rows that are equal in those before it. `ascending` may then be
        a list with a value for each: `top(1, by=["price", "time"], ascending=[False, True])` is the first of the rows
        with the highest price. A column is a number, a time, a boolean, or a decimal of at most 18 digits. Rows with a
        null in one of them are ignored. Of rows that are equal in all of them, the one that came first is ahead; in
        sessions and windows that overlap, it may be any of them.

        The output has all columns of the rows, and `rank`, from 1. With `n=1`, `rank=False` leaves it out. After each
        batch, the operator emits the chosen rows of each key for which the choice has changed, from the first rank that
        has another row on. A row replaces the key's earlier row with the same rank. With `final=True`, it emits the
        rows only when a bounded input ends.

        >>> by_city.top(1, by="km", final=True).select("city", "km", "rank").collect().sort_by("city").to_pylist()
        [{'city': 'Oslo', 'km': 3, 'rank': 1}, {'city': 'Rome', 'km': 7, 'rank': 1}]
        """
        check_by_name("top", unnamed, "top(n, by, ascending=..., rank=..., final=...)")
        return self._ranked(top_rows(self._by_key, "top", n, by, ascending=ascending, ranked=rank), final)

    def max_by(self, column: str, *, final: bool = False) -> Stream:
        """Choose the row of each key with the greatest value in the column. It is `top(1, by=column, rank=False)`.

        The column is a number, a time, a boolean, or a decimal of at most 18 digits. Text, binaries, longer decimals
        and nested types are a PlanError. Rows with a null in it are ignored.

        >>> by_city.max_by("km", final=True).select("city", "km").collect().sort_by("city").to_pylist()
        [{'city': 'Oslo', 'km': 3}, {'city': 'Rome', 'km': 7}]
        """
        return self._ranked(top_rows(self._by_key, "max_by", 1, column, ranked=False), final)

    def min_by(self, column: str, *, final: bool = False) -> Stream:
        """Choose the row of each key with the least value in the column, of the types that `max_by` takes.

        >>> by_city.min_by("km", final=True).select("city", "km").collect().sort_by("city").to_pylist()
        [{'city': 'Oslo', 'km': 3}, {'city': 'Rome', 'km': 5}]
        """
        return self._ranked(top_rows(self._by_key, "min_by", 1, column, ascending=True, ranked=False), final)

    def _ranked(self, top: TopRows, final: bool) -> Stream:
        if not isinstance(final, bool):
            raise PlanError(f"top: final={final!r} must be True or False")
        return self._stream(self._by_key.ranked(top, final))


class RanksInWindows(ABC, Generic[Stream]):
    """A windowed stream that can choose the rows of each key and window with extreme values."""

    @property
    @abstractmethod
    def _by_key(self) -> RowsByKey:
        """The rows that are grouped into windows."""

    @abstractmethod
    def _ranked(self, top: TopRows) -> Stream:
        """Return the stream of the chosen rows."""

    def top(
        self,
        n: int,
        by: str | Sequence[str],
        *unnamed: Never,
        ascending: bool | Sequence[bool] = False,
        rank: bool = True,
    ) -> Stream:
        """Choose the `n` rows of each key and window with the greatest values in the column `by`, or the least if
        `ascending`.

        The output has the key columns, `window_start`, `window_end`, the other columns, and `rank`, from 1. See
        `aggregate` for when it is emitted, and `KeyedStream.top` for how rows are ordered, also by several columns.
        With `n=1`, `rank=False` leaves out the rank.

        >>> hours.top(1, by="km").select("city", "km", "rank").collect().sort_by("km").to_pylist()[0]
        {'city': 'Oslo', 'km': 3, 'rank': 1}
        """
        check_by_name("top", unnamed, "top(n, by, ascending=..., rank=...)")
        return self._ranked(top_rows(self._by_key, "top", n, by, ascending=ascending, ranked=rank))

    def max_by(self, column: str) -> Stream:
        """Choose the row of each key and window with the greatest value in the column: `top(1, by=column,
        rank=False)`.

        The column is a number, a time, a boolean, or a decimal of at most 18 digits. Text, binaries, longer decimals
        and nested types are a PlanError. Rows with a null in it are ignored.

        >>> hours.max_by("km").select("city", "km").collect().sort_by("km")["km"].to_pylist()
        [3, 5, 7]
        """
        return self._ranked(top_rows(self._by_key, "max_by", 1, column, ranked=False))

    def min_by(self, column: str) -> Stream:
        """Choose the row of each key and window with the least value in the column, of the types that `max_by` takes.

        >>> hours.min_by("km").select("city", "km").collect().sort_by("km")["km"].to_pylist()
        [3, 5, 7]
        """
        return self._ranked(top_rows(self._by_key, "min_by", 1, column, ascending=True, ranked=False))


def top_rows(
    by_key: RowsByKey,
    call: str,
    n: int,
    by: str | Sequence[str],
    *,
    ascending: bool | Sequence[bool] = False,
    ranked: bool = True,
) -> TopRows:
    """Check the arguments of a call, and return the aggregate that keeps the rows. With `ranked`, each row has a rank.
    Raises PlanError."""
    from headgate.operators.aggregates.top_rows import TopRows  # few jobs need it

    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST_ROWS:
        raise PlanError(f"{call}: {n!r} must be a whole number of rows from 1 to {_MOST_ROWS}")
    if not isinstance(ranked, bool):
        raise PlanError(f"{call}: rank={ranked!r} must be True or False")
    if n > 1 and not ranked:
        raise PlanError(f"{call}: rank=False leaves rows of a key that nothing tells apart; it is only for n=1")
    if call != "top" and not isinstance(by, str):
        raise PlanError(f"{call}: {by!r} must be the name of one column; for several, use top(1, by=..., rank=False)")
    schema = visible(by_key.rows.schema)
    (column, greatest), *others = _ranking(call, by, ascending, by_key.keys, schema)
    columns = tuple(name for name in schema.names if name not in by_key.keys)
    return TopRows("top", column, most=n, greatest=greatest, columns=columns, ranked=ranked, then_by=tuple(others))


def _ranking(
    call: str, by: str | Sequence[str], ascending: bool | Sequence[bool], keys: Sequence[str], schema: pa.Schema
) -> Ranking:
    """Return the columns that rank the rows of a call, each with whether its greatest value is ahead."""
    columns = check_columns(call, as_columns(f"{call}: by", by), schema)
    if not columns:
        raise PlanError(f"{call}: by= needs at least one column")
    for column in columns:
        if column in keys:
            raise PlanError(
                f"{call}: {column!r} is a key column, so all rows of a key have the same value; rank by another one"
            )
    each = [ascending] * len(columns) if isinstance(ascending, bool) else ascending
    if not isinstance(each, (list, tuple)) or not all(isinstance(one, bool) for one in each):
        raise PlanError(f"{call}: ascending={ascending!r} must be True or False, or a list of these")
    if len(each) != len(columns):
        raise PlanError(f"{call}: ascending= has {len(each)} values, and by= has {len(columns)} columns")
    return tuple((column, not one) for column, one in zip(columns, each, strict=True))


def _time_to_live(ttl: float | str | timedelta) -> int:
    try:
        found = microseconds(ttl)
    except ConfigError as error:
        raise PlanError(f"deduplicate: ttl: {error.message}") from None
    if found <= 0:
        raise PlanError(f"deduplicate: ttl={ttl!r} is too short: a key needs at least one microsecond")
    return found


def _is_final(final: bool, keep: str, ttl: object) -> bool:
    """Return `final`. Raises PlanError if it does not fit the other arguments of `deduplicate`."""
    if not isinstance(final, bool):
        raise PlanError(f"deduplicate: final={final!r} must be True or False")
    if final and keep == "first":
        raise PlanError(
            "deduplicate: final=True has no effect with keep='first', because a first row is never replaced; leave "
            "it out"
        )
    if final and ttl is not None:
        raise PlanError(
            "deduplicate: ttl= and final=True exclude each other: the row of each key is kept until the input ends; "
            "leave one of them out"
        )
    return final
