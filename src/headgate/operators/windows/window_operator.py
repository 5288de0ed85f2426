"""`WindowOperator`: what the operators of windows that go by time have in common.

This is the order of event time, allowed lateness, late rows, and checkpoints. `ByClock` adapts it to windows by the
clock. A window has a number, which ascends with the window's end. A subclass says what the numbers mean, and aggregates
the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from time import time as wall_clock
from typing import Generic, Literal

import numpy as np
import pyarrow as pa

from headgate.errors import CheckpointError, DataError
from headgate.operators.emission_log import EmissionLog
from headgate.operators.event_times import as_timestamps, event_times, time_range, time_span
from headgate.operators.operator import MIN_TIME, Operator, OperatorContext
from headgate.operators.windows.collected_rows import SMALL_ROWS, CollectedRows
from headgate.operators.windows.time_shards import State, TimeShard
from headgate.operators.windows.window_kinds import CLOCK_TIME
from headgate.records.canonical import Int64s, as_arrow, null_mask
from headgate.records.hashing import key_group_range, key_groups, key_hash
from headgate.state import shapes
from headgate.state.keys import check_key_groups
from headgate.state.snapshot import LazyTables, Snapshot

#: The most rows that the operator emits at once.
MOST_ROWS = 65_536
#: The shape of the progress in a snapshot. For each range of key groups, it has the first group, the group after the
#: last one, the watermark, and the number of the last closed window.
_PROGRESS = shapes.items(shapes.row(shapes.count, shapes.count, shapes.time, shapes.time))


class WindowOperator(Operator, Generic[State]):
    """The base class of operators that emit one row for each key and window, when the watermark reaches the window's
    end.

    If a key has no rows in a window, the operator emits no row for this pair. The operator adds `time_offset`
    (microseconds) to the event-time column. The operator retains a window until the watermark reaches the window's end
    plus `allowed_lateness` (microseconds). If a row arrives for a retained window that has fired, the operator emits
    the key's whole row again. A row is late if the operator no longer retains any of the row's windows. Late rows go to
    the side output `late_tag`. If the job does not read this side output, the operator counts and drops late rows. A
    null event time raises DataError. With `on_null_time="late"`, a row with a null event time is late.

    Rows of small batches wait in the operator, and it adds many of them to their windows at once. This changes no
    result: the rows are added before a window fires, and before a snapshot.
    """

    #: What the operator is, for the error when a checkpoint has the state of another operator.
    what: str

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        schema: pa.Schema,
        input_schema: pa.Schema,
        time_column: str | None,
        time_offset: int,
        empty_state: Callable[[], State],
        on_null_time: Literal["error", "late"] = "error",
        allowed_lateness: int = 0,
        late_tag: str = "",
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self.schema = schema
        self._log = self.emissions = EmissionLog()
        self._time_column = time_column
        self._time_offset = time_offset
        self._time_type = CLOCK_TIME if time_column is None else input_schema.field(time_column).type
        self._time_range = time_range(self._time_type)
        self._time_index = -1 if time_column is None else input_schema.get_field_index(time_column)
        self._keys = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._null_is_late = on_null_time == "late"
        self._lateness = allowed_lateness
        self._late_tag = late_tag
        self._clock = clock
        self._empty_state = empty_state
        self._shards = [self._new_shard(MIN_TIME, self._last_ended(MIN_TIME))]
        self._waiting = CollectedRows(input_schema)
        self._shards_bytes: int | None = None  # None: not measured since the last change
        #: Without allowed lateness, a row that is not late changes no window that has fired.
        self._may_wait = not allowed_lateness and time_column is not None
        #: The key groups of this subtask whose former subtasks had ended before the checkpoint.
        self._ended_groups: list[range] = []

    # --- what a subclass says about its windows

    @abstractmethod
    def _add(self, shard: TimeShard[State], batch: pa.RecordBatch, times: Int64s, span: tuple[int, int]) -> None:
        """Add rows, none of them late, to their windows. Emit the changed results of windows that have fired already.

        `span` is the least and the greatest of `times`.
        """

    @abstractmethod
    def _fire(self, shard: TimeShard[State], after: int) -> None:
        """Emit the windows whose numbers are above `after`, up to `shard.fired`."""

    @abstractmethod
    def _last_ended(self, watermark: int) -> int:
        """Return the number of the last window that ends at or before the watermark."""

    @abstractmethod
    def _ends_at(self, number: int) -> int:
        """Return the end of the window with this number."""

    @abstractmethod
    def _first_held(self, closed: int) -> int:
        """Return the least event time that is in a window after number `closed`."""

    @abstractmethod
    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        """Return the least start and the greatest end of the windows of rows from time `first` to time `last`."""

    @abstractmethod
    def _described(self) -> dict[str, str]:
        """Return what a snapshot says about the windows."""

    @abstractmethod
    def _check_windows(self, snapshot: Snapshot) -> None:
        """Raise ChangedWindows if the snapshot has other windows than this operator."""

    @abstractmethod
    def _check_entries(self, entries: pa.Table) -> None:
        """Raise ValueError for windows that no row can be in, because `_check_range` refuses such rows."""

    # --- rows and time

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._shards[0].groups = [self._own_groups()]

    def state_bytes(self) -> int:
        if self._shards_bytes is None:
            self._shards_bytes = sum(shard.state.nbytes for shard in self._shards)
        return self._shards_bytes + self._waiting.bytes

    def state_keys(self) -> int:
        """Return the number of keys. `state_bytes() / state_keys()` is the size of one key in bytes."""
        return sum(shard.state.keys for shard in self._shards)

    def process(self, batch: pa.RecordBatch) -> None:
        batch = self._without_null_times(batch)
        if len(self._shards) == 1:
            self._process(self._shards[0], batch)
            return
        groups = self._key_groups(batch)
        for shard in self._shards:
            self._process(shard, batch.filter(as_arrow(shard.owns(groups))))

    def _process(self, shard: TimeShard[State], batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        times = self._times(shard, batch)
        first, last = time_span(times)
        self._check_range(first, last)
        if first < (begin := self._first_held(shard.closed)):  # late rows first: they must add nothing to the tables
            held = times >= begin
            self._emit_late(batch.filter(as_arrow(~held)))
            batch, times = batch.filter(as_arrow(held)), times[held]
            first = int(times.min(initial=last))
        elif batch.num_rows <= SMALL_ROWS and self._may_wait and len(self._shards) == 1:
            if self._waiting.add(batch, first, last, self._clock()):
                self._add_waiting()
            return
        self._add_waiting()
        if batch.num_rows:
            self._shards_bytes = None
            self._add(shard, batch, times, (first, last))

    def _add_waiting(self) -> None:
        """Add the rows that wait to their windows."""
        if self._waiting.rows:
            batch, span = self._waiting.take()
            shard = self._shards[0]
            self._shards_bytes = None
            self._add(shard, batch, self._times(shard, batch), span)

    def _times(self, shard: TimeShard[State], batch: pa.RecordBatch) -> Int64s:
        """Return the time of each row, in microseconds."""
        assert self._time_column is not None
        return event_times(batch.column(self._time_index), self._time_column, self._time_offset)

    def process_watermark(self, time: int) -> None:
        self._advance_all(time)
        self.output.emit_watermark(time)

    def _advance_all(self, time: int) -> None:
        for shard in self._shards:
            if time > shard.watermark:
                self._advance(shard, time)
        if len(self._shards) > 1:
            self._merge_shards()

    def _advance(self, shard: TimeShard[State], time: int) -> None:
        before, fired, shard.watermark = shard.fired, self._last_ended(time), time
        if fired == before == shard.closed:
            return
        self._add_waiting()
        self._shards_bytes = None
        shard.fired = fired
        self._fire(shard, before)
        shard.closed = max(shard.closed, self._last_ended(time - self._lateness))
        shard.state.close(shard.closed)

    def _emit_windows(self, keys: list[pa.Array], start: Int64s, end: Int64s, results: list[pa.Array]) -> None:
        bounds = [as_timestamps(start, self._time_type), as_timestamps(end, self._time_type)]
        self.emit(pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=self.schema))
        self._log.record(self._clock(), self.rows_out)

    # --- checkpoints

    def snapshot(self) -> Snapshot:
        self._add_waiting()
        states = [shard.state.frozen() for shard in self._shards]
        progress = [[groups.start, groups.stop, *shard.point] for shard in self._shards for groups in shard.groups]
        of = {
            "the operator": self.what,
            **self._described(),
            "event time": "the clock" if self._time_column is None else f"{self._time_column} + {self._time_offset} us",
            "max_parallelism": self.context.max_parallelism,
        }
        return Snapshot(LazyTables({"entries": partial(self._table, states)}), {"of": of, "progress": progress})

    def _table(self, states: Sequence[State]) -> pa.Table:
        return pa.concat_tables([state.table(self._keys, self.context.max_parallelism) for state in states])

    def restore_ended(self, groups: Sequence[range]) -> None:
        """Record the key groups of former subtasks that had ended.

        All windows of these subtasks have fired, and no state remains.
        """
        own = self._own_groups()
        self._ended_groups = [range(max(ended.start, own.start), min(ended.stop, own.stop)) for ended in groups]

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours, mine = self.snapshot(), self._own_groups()
        shards: dict[tuple[int, int], TimeShard[State]] = {}
        parts: list[tuple[TimeShard[State], range, Snapshot]] = []
        for snapshot in (snapshot.with_tables(self._shards[0].state.with_exact_sums) for snapshot in snapshots):
            self._check_windows(snapshot)
            ours.check_same(snapshot)
            for begin, end, watermark, closed in self._progress(snapshot):
                groups = range(max(begin, mine.start), min(end, mine.stop))
                if groups:
                    # The job of the checkpoint may have allowed rows to be later: its windows have fired for good.
                    closed = max(closed, self._last_ended(watermark - self._lateness))
                    shard = shards.setdefault((watermark, closed), self._new_shard(watermark, closed))
                    shard.groups.append(groups)
                    parts.append((shard, groups, snapshot))
        ended = [groups for groups in self._ended_groups if groups]
        if ended:
            first = self._shards[0]  # a new, unused shard
            shards.setdefault(first.point, self._new_shard(*first.point)).groups.extend(ended)
        if sorted(group for shard in shards.values() for groups in shard.groups for group in groups) != list(mine):
            raise CheckpointError("the checkpoint does not have the state of each former subtask exactly once")
        for shard, groups, snapshot in parts:
            if "entries" in snapshot.tables:
                self._check_entries(snapshot.tables["entries"])
                entries = snapshot.of_key_groups(groups).tables["entries"]
                check_key_groups(entries, len(self._keys), self.context.max_parallelism)
                shard.state.load(entries)
                shard.state.close(shard.closed)
        self._shards, self._shards_bytes = list(shards.values()), None

    def _progress(self, snapshot: Snapshot) -> list[tuple[int, int, int, int]]:
        """Return the progress in a snapshot. Raises ValueError for values that an operator with windows never
        writes."""
        progress: list[tuple[int, int, int, int]] = snapshot.values.get("progress", [])
        _PROGRESS(progress, "progress")
        if len(progress) > self.context.max_parallelism:
            groups = self.context.max_parallelism
            raise ValueError(f"there are {len(progress)} progress entries, and {groups} key groups")
        for _, _, watermark, closed in progress:
            if not self._last_ended(MIN_TIME) <= closed <= self._last_ended(watermark):
                raise ValueError(f"window {closed} is closed, and the watermark is {watermark}")
        return progress

    def _new_shard(self, watermark: int, closed: int) -> TimeShard[State]:
        state = self._empty_state()
        state.close(closed)
        return TimeShard(state, watermark, self._last_ended(watermark), closed)

    def _merge_shards(self) -> None:
        """Merge all shards into one shard if all are at the same point of event time."""
        first, *others = self._shards
        if all(shard.point == first.point for shard in others):
            for shard in others:
                first.state.load(shard.state.table(self._keys, self.context.max_parallelism))
            first.groups = [self._own_groups()]
            self._shards, self._shards_bytes = [first], None

    def _own_groups(self) -> range:
        context = self.context
        return key_group_range(context.subtask, context.parallelism, context.max_parallelism)

    def _key_groups(self, batch: pa.RecordBatch) -> Int64s:
        hashes = key_hash([batch.column(index) for index in self._key_indices])
        return np.broadcast_to(key_groups(hashes, self.context.max_parallelism), batch.num_rows)

    # --- rows that go into no window

    def _without_null_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with an event time, and emit the other rows as late. Raises DataError if null times are
        errors."""
        if self._time_column is None:
            return batch
        nulls = null_mask(batch.column(self._time_index))
        if nulls is None:
            return batch
        missing = int(np.count_nonzero(nulls))
        if not self._null_is_late:
            raise DataError(
                f"event-time column {self._time_column!r} is null in {missing} of {len(nulls)} rows; filter them out, "
                "or count them as late with hg.Watermark(..., on_null_time='late')"
            )
        self._emit_late(batch.filter(as_arrow(nulls)))
        return batch.filter(as_arrow(~nulls))

    def _emit_late(self, late: pa.RecordBatch) -> None:
        """Emit late rows to their side output. If the job does not read this side output, count and drop the rows."""
        if self._late_tag in self.sides:
            self.emit_side(self._late_tag, late)
        else:
            self.late_rows += late.num_rows

    def _check_range(self, first: int, last: int) -> None:
        """Raise DataError if the column's type cannot hold the bounds of all windows of these event times."""
        (start, end), (least, greatest) = self._bounds(first, last), self._time_range
        if start < least or end > greatest:
            name = "processing time" if self._time_column is None else f"event-time column {self._time_column!r}"
            raise DataError(
                f"{name}: a window of {first if start < least else last} us since the "
                f"epoch begins or ends at a time that {self._time_type} cannot hold; filter such rows out, or cast the "
                "column to a coarser unit"
            )
