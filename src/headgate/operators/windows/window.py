"""Windowed aggregation: `hg.tumble`, `hg.hop`, and the operator, which has accumulators for each key and window.

A key has a slot (a number) in a table of keys. A window has a slot in a table of windows. A pair of a key and a window
is an entry. The number of the entry is its slot in the accumulators. The tables find all these slots for a whole batch
at once, even if the batch's rows are in many windows.

Windows have numbers: window n begins at n x `every`. The event time of a row therefore determines its windows. Windows
that depend on other rows, such as sessions, need another operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import time as wall_clock
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import CheckpointError, ConfigError, DataError, PlanError
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate, aggregate_fields, key_fields, unique_names
from headgate.operators.emission_log import EmissionLog
from headgate.operators.event_times import as_timestamps, check_time_column, event_times, time_range, unit_of
from headgate.operators.operator import MIN_TIME, Operator, OperatorContext
from headgate.operators.windows.time_shards import TimeShard
from headgate.operators.windows.window_panes import PaneState
from headgate.operators.windows.window_state import Fired, WindowState
from headgate.quantities import duration_text, microseconds
from headgate.records.canonical import Int64s, as_arrow, null_mask
from headgate.records.hashing import key_group_range, key_groups, key_hash
from headgate.state import shapes
from headgate.state.keys import check_key_groups
from headgate.state.snapshot import ChangedWindows, LazyTables, Snapshot

Duration = float | str | timedelta
_MOST_ROWS = 65_536
#: The shape of the progress in a snapshot. For each range of key groups, it has the first group, the end of the range,
#: the watermark, and the number of the last closed window.
_PROGRESS = shapes.items(shapes.row(shapes.count, shapes.count, shapes.time, shapes.time))
#: The names of a window's size and distance in a snapshot, and the shape of both.
_SIZE, _EVERY = "the windows' size", "every"
_MICROSECONDS = re.compile("([0-9]{1,18}) us")
#: Panes are faster only if each row is in at least this many windows.
_LEAST_PANES = 4


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `size` microseconds. A new window begins every `every` microseconds, counted from
    1970-01-01T00:00Z."""

    size: int
    every: int

    def __str__(self) -> str:
        size, every = duration_text(self.size), duration_text(self.every)
        return f"tumble({size})" if size == every else f"hop({size}, every={every})"

    @property
    def per_row(self) -> int:
        """The largest number of windows that one row can be in."""
        return -(-self.size // self.every)

    @property
    def has_panes(self) -> bool:
        """Whether the operator uses panes: each row is in at least 4 windows, and `size` is a multiple of `every`."""
        return self.per_row >= _LEAST_PANES and self.size % self.every == 0


def tumble(size: Duration) -> Windows:
    """Declare windows that follow one another without gaps. Raises PlanError if `size` is not above 0.

    ```python
    stream.key_by("shop").window(hg.tumble("1 h")).aggregate(rows=hg.count())
    ```
    """
    return hop(size, every=size)


def hop(size: Duration, every: Duration) -> Windows:
    """Declare overlapping windows. Each window is `size` long, and a window begins at every multiple of `every`.

    Raises PlanError if `every` is not above 0, or if `every` is longer than `size`.

    ```python
    stream.key_by("shop").window(hg.hop("1 h", every="5 min")).aggregate(rows=hg.count())
    ```
    """
    try:
        windows = Windows(microseconds(size), microseconds(every))
    except ConfigError as error:
        raise PlanError(f"window: {error.message}") from None
    if windows.every <= 0:
        raise PlanError(f"window: {every!r} is too short: windows need at least one microsecond")
    if windows.size < windows.every:
        raise PlanError(f"window: size {size!r} must not be shorter than every={every!r}: rows would be in no window")
    return windows


def window_schema(
    keys: tuple[str, ...],
    time_column: str,
    windows: Windows,
    aggregates: tuple[tuple[str, Aggregate], ...],
    input_schema: pa.Schema,
) -> pa.Schema:
    """Return the schema of the results: key columns, window_start, window_end, aggregates.

    Raises PlanError for an impossible aggregation, or if the time column's unit is too coarse for the windows.
    """
    kind = check_time_column(time_column, input_schema)
    for name, value in (("size", windows.size), ("every", windows.every)):
        if value % unit_of(kind):
            raise PlanError(
                f"window: {name} is {value} us, and event-time column {time_column!r} of type {kind} cannot hold "
                f"such a window's bounds; cast it to timestamp('us')"
            )
    bounds = [pa.field(name, kind, nullable=False) for name in ("window_start", "window_end")]
    return unique_names([*key_fields(keys, input_schema), *bounds, *aggregate_fields(aggregates, input_schema)])


class WindowAggregate(Operator):
    """The operator that emits one row for each key and window, when the watermark passes the window's end.

    If a key has no rows in a window, the operator emits no row for both. The operator adds `time_offset` (microseconds)
    to the event-time column. The operator retains a window until the watermark has passed the window's end by
    `allowed_lateness` (microseconds). If a row arrives for a retained window that has fired, the operator emits the
    key's whole row again. A row is late if the operator no longer retains any of the row's windows. Late rows go to the
    side output `late_tag`. If the job does not read this side output, the operator counts and drops late rows. A null
    event time raises DataError. With `on_null_time="late"`, a row with a null event time is late.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        time_column: str,
        time_offset: int,
        windows: Windows,
        aggregates: tuple[tuple[str, Aggregate], ...],
        input_schema: pa.Schema,
        on_null_time: Literal["error", "late"] = "error",
        allowed_lateness: int = 0,
        late_tag: str = "",
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self.schema = window_schema(keys, time_column, windows, aggregates, input_schema)
        self._log = self.emissions = EmissionLog()
        self._windows = windows
        self._time_column = time_column
        self._time_offset = time_offset
        self._time_type = input_schema.field(time_column).type
        self._time_index = input_schema.get_field_index(time_column)
        self._keys = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._null_is_late = on_null_time == "late"
        self._lateness = allowed_lateness
        self._late_tag = late_tag
        self._clock = clock
        key_types = [input_schema.field(key).type for key in keys]
        accumulators = partial(AccumulatorSet, aggregates, input_schema)
        self._empty_state: Callable[[], WindowState] = partial(WindowState, key_types, accumulators)
        if windows.has_panes:
            self._empty_state = partial(PaneState, key_types, accumulators, windows.per_row)
        self._shards = [self._new_shard(MIN_TIME, self._last_ended(MIN_TIME))]
        #: The key groups of this subtask whose former subtasks had ended before the checkpoint.
        self._ended_groups: list[range] = []

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._shards[0].groups = [self._own_groups()]

    def state_bytes(self) -> int:
        return sum(shard.state.nbytes for shard in self._shards)

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

    def _process(self, shard: TimeShard, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        every = self._windows.every
        times = event_times(batch.column(self._time_index), self._time_column, self._time_offset)
        first, last = int(times.min()), int(times.max())
        self._check_range(first, last)
        if first // every <= shard.closed:  # remove late rows first: they must add nothing to the tables
            held = times >= (shard.closed + 1) * every
            self._emit_late(batch.filter(as_arrow(~held)))
            batch, times = batch.filter(as_arrow(held)), times[held]
            if not batch.num_rows:
                return
            first = int(times.min())
        self._add(shard, batch, times, first, last)

    def _add(self, shard: TimeShard, batch: pa.RecordBatch, times: Int64s, first: int, last: int) -> None:
        """Add rows to their windows or panes. The event times of the rows are from `first` to `last`."""
        every, state, changed = self._windows.every, shard.state, []
        keys = state.find_or_add_keys([batch.column(index) for index in self._key_indices], batch.num_rows)
        index = first // every if first // every == last // every else times // every
        if isinstance(state, PaneState):
            entries = state.add(keys, index, batch, times)
            if first // every - self._windows.per_row < shard.fired:
                self._emit_rows(state.changed(np.unique(entries), shard.closed, shard.fired, _MOST_ROWS))
            return
        for back in range(self._windows.per_row):
            rows = self._rows_in(shard, times, index, first // every, back)
            if rows is None:
                window = index - back
                entries = state.add(keys, window, batch, times)
            elif len(rows):
                window = (index if isinstance(index, int) else index.take(rows)) - back
                entries = state.add(keys.take(rows), window, batch.take(as_arrow(rows)), times.take(rows))
            else:
                continue
            if first // every - back <= shard.fired:
                changed.append(entries[window <= shard.fired] if isinstance(window, np.ndarray) else entries)
        if changed:
            self._emit_rows(state.rows(np.unique(np.concatenate(changed)), _MOST_ROWS))

    def process_watermark(self, time: int) -> None:
        for shard in self._shards:
            if time > shard.watermark:
                self._advance(shard, time)
        if len(self._shards) > 1:
            self._merge_shards()
        self.output.emit_watermark(time)

    def _advance(self, shard: TimeShard, time: int) -> None:
        shard.watermark = time
        before, shard.fired = shard.fired, self._last_ended(time)
        self._emit_rows(shard.state.fire(before, shard.fired, _MOST_ROWS))
        shard.closed = max(shard.closed, self._last_ended(time - self._lateness))
        shard.state.close(shard.closed)

    def snapshot(self) -> Snapshot:
        states = [shard.state.frozen() for shard in self._shards]
        progress = [[groups.start, groups.stop, *shard.point] for shard in self._shards for groups in shard.groups]
        of = {
            "the operator": "a windowed aggregation",
            _SIZE: f"{self._windows.size} us",
            _EVERY: f"{self._windows.every} us",
            "event time": f"{self._time_column} + {self._time_offset} us",
            "max_parallelism": self.context.max_parallelism,
        }
        return Snapshot(LazyTables({"entries": partial(self._table, states)}), {"of": of, "progress": progress})

    def _table(self, states: Sequence[WindowState]) -> pa.Table:
        return pa.concat_tables([state.table(self._keys, self.context.max_parallelism) for state in states])

    def restore_ended(self, groups: Sequence[range]) -> None:
        """Record the key groups of former subtasks that had ended.

        All windows of these subtasks have fired, and no state remains.
        """
        own = self._own_groups()
        self._ended_groups = [range(max(ended.start, own.start), min(ended.stop, own.stop)) for ended in groups]

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours, mine = self.snapshot(), self._own_groups()
        shards: dict[tuple[int, int], TimeShard] = {}
        parts: list[tuple[TimeShard, range, Snapshot]] = []
        for snapshot in (snapshot.with_tables(self._shards[0].state.with_exact_sums) for snapshot in snapshots):
            self._check_same_windows(snapshot)
            ours.check_same(snapshot)
            for begin, end, watermark, closed in self._progress(snapshot):
                groups = range(max(begin, mine.start), min(end, mine.stop))
                if groups:
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
            if (entries := snapshot.tables.get("entries")) is not None:
                self._check_windows(entries)
                entries = snapshot.of_key_groups(groups).tables["entries"]
                check_key_groups(entries, len(self._keys), self.context.max_parallelism)
                shard.state.load(entries)
        self._shards = list(shards.values())

    def _check_same_windows(self, snapshot: Snapshot) -> None:
        """Raise ChangedWindows if the snapshot has windows of another size or distance.

        Do nothing for values that are no windows. `check_same` raises an error for these.
        """
        of = snapshot.values.get("of")
        texts = [str(of.get(name)) for name in (_SIZE, _EVERY)] if isinstance(of, dict) else ["", ""]
        found = [_MICROSECONDS.fullmatch(text) for text in texts]
        size, every = (0 if match is None else int(match[1]) for match in found)
        if size >= every > 0 and (were := Windows(size, every)) != self._windows:
            raise ChangedWindows(
                f"had {were}, and has {self._windows} now: change it back, or start without the checkpoint"
            )

    def _check_windows(self, entries: pa.Table) -> None:
        """Raise ValueError for windows that no row can be in, because `_check_range` refuses such rows."""
        least, greatest = time_range(self._time_type)
        first, last = pc.min_max(entries.column("window")).as_py().values()
        if first is not None and not least <= first * self._windows.every <= last * self._windows.every <= greatest:
            raise ValueError(f"there are windows from {first} to {last}, which {self._time_type} cannot hold")

    def _progress(self, snapshot: Snapshot) -> list[tuple[int, int, int, int]]:
        """Return the progress in a snapshot. Raises ValueError for values that a windowed aggregation never writes."""
        progress: list[tuple[int, int, int, int]] = snapshot.values.get("progress", [])
        _PROGRESS(progress, "progress")
        if len(progress) > self.context.max_parallelism:
            groups = self.context.max_parallelism
            raise ValueError(f"there are {len(progress)} progress entries, and {groups} key groups")
        for _, _, watermark, closed in progress:
            if not self._last_ended(MIN_TIME) <= closed <= self._last_ended(watermark):
                raise ValueError(f"window {closed} is closed, and the watermark is {watermark}")
        return progress

    def _new_shard(self, watermark: int, closed: int) -> TimeShard:
        return TimeShard(self._empty_state(), watermark, self._last_ended(watermark), closed)

    def _merge_shards(self) -> None:
        """Merge all shards into one shard if all are at the same point of event time."""
        first, *others = self._shards
        if all(shard.point == first.point for shard in others):
            for shard in others:
                first.state.load(shard.state.table(self._keys, self.context.max_parallelism))
            first.groups = [self._own_groups()]
            self._shards = [first]

    def _own_groups(self) -> range:
        context = self.context
        return key_group_range(context.subtask, context.parallelism, context.max_parallelism)

    def _key_groups(self, batch: pa.RecordBatch) -> Int64s:
        hashes = key_hash([batch.column(index) for index in self._key_indices])
        return np.broadcast_to(key_groups(hashes, self.context.max_parallelism), batch.num_rows)

    def _last_ended(self, watermark: int) -> int:
        """Return the number of the last window that ends at or before the watermark. Window n begins at n x `every`."""
        return (watermark - self._windows.size) // self._windows.every

    def _emit_rows(self, fired: Iterable[Fired]) -> None:
        kind, every, size = self._time_type, self._windows.every, self._windows.size
        for keys, index, accumulated in fired:
            start = index * every
            bounds = [as_timestamps(start, kind), as_timestamps(start + size, kind)]
            self.emit(pa.RecordBatch.from_arrays([*keys, *bounds, *accumulated], schema=self.schema))
            self._log.record(self._clock(), self.rows_out)

    def _rows_in(self, shard: TimeShard, times: Int64s, index: Int64s | int, first: int, back: int) -> Int64s | None:
        """Return the positions of the rows that must be added to one of their windows, or None for all rows.

        Window number `index` is the last window of a row. The rows are added to window `index` - `back`. Rows that are
        not in this window, and rows for which this window is closed, are not in the result.
        """
        every, size = self._windows.every, self._windows.size
        whole = (back + 1) * every <= size
        if whole and first - back > shard.closed:
            return None
        open_still = times >= (shard.closed + 1 + back) * every
        return np.flatnonzero(open_still if whole else open_still & (times - index * every < size - back * every))

    def _without_null_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with an event time, and emit the other rows as late. Raises DataError if null times are
        errors."""
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
        every, (least, greatest) = self._windows.every, time_range(self._time_type)
        start = (first // every - self._windows.per_row + 1) * every
        end = last // every * every + self._windows.size
        if start < least or end > greatest:
            raise DataError(
                f"event-time column {self._time_column!r}: a window of {first if start < least else last} us since the "
                f"epoch begins or ends at a time that {self._time_type} cannot hold; filter such rows out, or cast the "
                "column to a coarser unit"
            )
