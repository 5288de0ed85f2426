"""`SessionAggregate`: the operator of `hg.session`, which has accumulators for each session of a key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate
from headgate.operators.event_times import time_range
from headgate.operators.operator import MIN_TIME
from headgate.operators.windows.session_state import FiredSessions, SessionState
from headgate.operators.windows.time_shards import TimeShard
from headgate.operators.windows.window_kinds import Sessions, window_schema
from headgate.operators.windows.window_operator import MOST_ROWS, WindowOperator
from headgate.records.canonical import Int64s
from headgate.state.snapshot import ChangedWindows, Snapshot

_GAP = "the sessions' gap"
_MICROSECONDS = re.compile("([0-9]{1,18}) us")


class SessionAggregate(WindowOperator[SessionState]):
    """The operator that emits one row for each session, when the watermark reaches the session's end.

    A row is late if a session with only this row would be closed. The number of a session is its end. For the other
    arguments, see `WindowOperator`.
    """

    what = "an aggregation of sessions"

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        windows: Sessions,
        aggregates: tuple[tuple[str, Aggregate], ...],
        input_schema: pa.Schema,
        time_column: str | None,
        time_offset: int,
        **options: Any,
    ) -> None:
        self._windows = windows
        key_types = [input_schema.field(key).type for key in keys]
        super().__init__(
            keys,
            schema=window_schema(keys, time_column, windows, aggregates, input_schema),
            input_schema=input_schema,
            time_column=time_column,
            time_offset=time_offset,
            empty_state=partial(
                SessionState, key_types, partial(AccumulatorSet, aggregates, input_schema), windows.gap
            ),
            **options,
        )

    def _add(self, shard: TimeShard[SessionState], batch: pa.RecordBatch, times: Int64s, span: tuple[int, int]) -> None:
        sessions = shard.state.add([batch.column(index) for index in self._key_indices], batch, times)
        if span[0] < shard.fired:
            self._emit_rows(shard.state.rows(shard.state.ended(sessions, shard.fired), MOST_ROWS))

    def _fire(self, shard: TimeShard[SessionState], after: int) -> None:
        self._emit_rows(shard.state.fire(after, shard.fired, MOST_ROWS))

    def _emit_rows(self, fired: Iterable[FiredSessions]) -> None:
        for keys, start, end, results in fired:
            self._emit_windows(keys, start, end, results)

    def _last_ended(self, watermark: int) -> int:
        return max(watermark, MIN_TIME)

    def _ends_at(self, number: int) -> int:
        return number

    def _first_held(self, closed: int) -> int:
        return closed - self._windows.gap + 1

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        return first, last + self._windows.gap

    def _described(self) -> dict[str, str]:
        return {_GAP: f"{self._windows.gap} us"}

    def _check_windows(self, snapshot: Snapshot) -> None:
        of = snapshot.values.get("of")
        found = _MICROSECONDS.fullmatch(str(of.get(_GAP))) if isinstance(of, dict) else None
        if found is not None and (were := Sessions(int(found[1]), self._windows.by_clock)) != self._windows:
            raise ChangedWindows(
                f"had {were}, and has {self._windows} now: change it back, or start without the checkpoint"
            )

    def _check_entries(self, entries: pa.Table) -> None:
        least, greatest = time_range(self._time_type)
        first, last = entries.column("first"), entries.column("last")
        if first.null_count or last.null_count:
            raise ValueError("a session has no times")
        if pc.any(pc.greater(first, last)).as_py():
            raise ValueError("a session ends before it begins")
        start, end = pc.min(first).as_py(), pc.max(last).as_py()
        if start is not None and not least <= start <= end <= greatest - self._windows.gap:
            raise ValueError(f"there are sessions from {start} to {end}, which {self._time_type} cannot hold")
