"""`KeyedProcess`: the operator that runs a `KeyedProcessFunction` with the state and timers of each key."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import time as wall_clock
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headgate.errors import CheckpointError, DataError, PlanError
from headgate.operators.event_times import event_times
from headgate.operators.keyed.collector import Collector
from headgate.operators.keyed.process_function import KeyedProcessFunction, ProcessContext
from headgate.operators.keyed.state_base import Current, State, declared_states
from headgate.operators.keyed.timers import Timer, TimerQueue
from headgate.operators.operator import MIN_TIME, Operator, OperatorContext, UserCode
from headgate.operators.python_values import Row, python_rows, python_values
from headgate.operators.rows import visible
from headgate.records.canonical import Int64s, as_arrow
from headgate.records.hashing import key_group_range
from headgate.state import shapes
from headgate.state.keys import KeyTable, check_key_groups
from headgate.state.snapshot import LazyTables, Snapshot, in_pieces

_EVENT, _PROCESSING = "event timers", "processing timers"
#: The operator removes unused keys only if it has at least this many keys.
_LEAST_KEYS = 8192
#: The shape of the progress in a snapshot: the first key group, the end of the key groups, and the watermark.
_PROGRESS = shapes.row(shapes.count, shapes.count, shapes.time)
#: About the end of the year 9999, in microseconds of processing time. A later time in a checkpoint is an error.
_LATEST = 253_000_000_000_000_000
#: How many of the next timers the operator looks up keys for at once.
_KEYS_AHEAD = 1024


def check_process_function(function: object) -> KeyedProcessFunction:
    """Check the function that a user passed to `process`, and return it. The driver calls this. Raises PlanError."""
    if isinstance(function, type) and issubclass(function, KeyedProcessFunction):
        raise PlanError(f"process: {function.__name__} is a class; make one: process({function.__name__}(), ...)")
    if not isinstance(function, KeyedProcessFunction):
        raise PlanError(
            f"process: {function!r} is not a hg.KeyedProcessFunction; for a function without state use map_batches"
        )
    if _overrides(function, "process") == _overrides(function, "process_element"):
        raise PlanError(f"process: {type(function).__name__} must override either process or process_element, not both")
    declared_states(function)
    return function


def _overrides(function: KeyedProcessFunction, method: str) -> bool:
    return getattr(type(function), method) is not getattr(KeyedProcessFunction, method)


class KeyedProcess(Operator):
    """The operator that calls a user's function for each key of a batch, or for each row, and for each timer.

    Event-time timers fire in the order of their times, before the operator emits the watermark that reaches them.
    Processing-time timers fire in the order of their times, in `on_processing_time`. The operator adds `time_offset`
    (microseconds) to the event-time column. Only the user's function reads the event times. `clock` returns the
    processing time in seconds.
    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        keys: tuple[str, ...],
        *,
        input_schema: pa.Schema,
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema],
        time_column: str | None = None,
        time_offset: int = 0,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self._function = function = copy.copy(function)
        self._by_row = _overrides(function, "process_element")
        self._clock = clock
        self._key_names = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._keys = KeyTable([input_schema.field(key).type for key in keys])
        self._key_cache: dict[int, tuple[Any, ...]] = {}
        self._next_slots: Callable[[], Int64s] = lambda: np.zeros(0, np.int64)
        self._look_again_at = _LEAST_KEYS
        self._time_column = time_column
        self._time_offset = time_offset
        self._at = Current()
        self._states: list[State[Any, Any]] = []
        for name, declared in declared_states(function).items():
            state = declared.bound(name, self._at)
            object.__setattr__(function, name, state)  # the function may be a frozen dataclass
            self._states.append(state)
        self._event_timers, self._processing_timers = TimerQueue(), TimerQueue()
        main = function.process_element if self._by_row else function.process
        self._out = Collector(main, schema, sides, self._emit)
        self._is_open = False
        self._user: ProcessContext

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        timed = self._event_timers if self._time_column is not None else None
        has_on_timer = type(self._function).on_timer is not KeyedProcessFunction.on_timer
        self._user = ProcessContext(
            context.subtask, context.parallelism, watermark=MIN_TIME, at=self._at, key_of=self._key,
            event_timers=timed, processing_timers=self._processing_timers, has_on_timer=has_on_timer,
        )  # fmt: skip
        self._is_open = True
        with UserCode(self._function.open):
            self._function.open(self._user)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with UserCode(self._function.close):
                self._function.close()

    def state_bytes(self) -> int:
        values = sum(state.nbytes for state in self._states)
        return self._keys.nbytes + values + self._event_timers.nbytes + self._processing_timers.nbytes

    def state_keys(self) -> int:
        """Return the number of keys. Some of these keys may no longer have state or a timer."""
        return len(self._keys)

    # --- rows and timers

    def process(self, batch: pa.RecordBatch) -> None:
        self._look_at_clock()
        slots = self._keys.find_or_add([batch.column(index) for index in self._key_indices], batch.num_rows)
        (self._process_rows if self._by_row else self._process_keys)(batch, slots)
        self._settle()

    def _process_rows(self, batch: pa.RecordBatch, slots: Int64s) -> None:
        self._cache_keys(slots, batch)
        rows = self._rows(python_rows(visible(batch)), slots.tolist())
        self._out.call_for_each(self._function.process_element, rows, self._user)

    def _rows(self, rows: list[Row], slots: list[int]) -> Iterator[Row]:
        """Yield each row, with the context of this row."""
        user, at = self._user, self._at
        user._rows = 1
        for user._begin, (at.slot, row) in enumerate(zip(slots, rows, strict=True)):
            yield row

    def _process_keys(self, batch: pa.RecordBatch, slots: Int64s) -> None:
        batch, slots = _by_slot(batch, slots)
        self._cache_keys(slots, batch)
        self._out.call_for_each(self._function.process, self._parts(visible(batch), slots), self._user)

    def _parts(self, rows: pa.RecordBatch, slots: Int64s) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each key, with the context of this key."""
        user, at, slice_of = self._user, self._at, rows.slice
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
        counts = np.diff(begins, append=len(slots))
        for user._begin, user._rows, at.slot in zip(
            begins.tolist(), counts.tolist(), slots.take(begins).tolist(), strict=True
        ):
            yield slice_of(user._begin, user._rows)

    def process_watermark(self, time: int) -> None:
        self._look_at_clock()
        self._user.watermark = max(self._user.watermark, time)
        self._fire(self._event_timers, self._user.watermark, "event")
        self.output.emit_watermark(time)

    def next_time(self) -> int | None:
        times = [self._processing_timers.first, *(state.next_expiry for state in self._states)]
        return min((time for time in times if time is not None), default=None)

    def on_processing_time(self) -> None:
        self._look_at_clock()
        for state in self._states:
            state.expire(self._at.now)
        self._fire(self._processing_timers, self._at.now, "processing")

    def _fire(self, timers: TimerQueue, until: int, domain: Literal["event", "processing"]) -> None:
        self._user.time_domain = domain
        self._next_slots = lambda: timers.next(_KEYS_AHEAD)
        while (timer := timers.pop(until)) is not None:
            time, self._at.slot = timer
            self._out.call(self._function.on_timer, time, self._user)
        self._user.time_domain = None
        self._settle()

    def end_input(self) -> None:
        self._processing_timers.clear()

    def _look_at_clock(self) -> None:
        """Set the processing time from the clock. The processing time never goes back, even if the clock does."""
        self._at.now = max(self._at.now, int(self._clock() * 1e6))

    def _settle(self) -> None:
        """Forget the current key and batch, emit the gathered rows, and remove unused keys if there are many."""
        self._at.leave()
        self._key_cache.clear()
        self._user._forget_batch()
        self._out.flush()
        if len(self._keys) >= self._look_again_at:
            self._forget_keys()

    def _emit(self, tag: str | None, batch: pa.RecordBatch) -> None:
        if tag is None:
            self.emit(batch)
        else:
            self.emit_side(tag, batch)

    # --- keys

    def _cache_keys(self, slots: Int64s, batch: pa.RecordBatch) -> None:
        """Prepare the lookup of the batch's keys and event times. The lookup happens only if the function asks for a
        key or a time."""
        times: list[Int64s] = []

        def of_batch() -> Int64s:
            if not times:
                times.append(self._times(batch))
            return times[0]

        self._user._times = of_batch
        self._next_slots = lambda: slots

    def _key(self, slot: int) -> tuple[Any, ...]:
        """Return the key of a slot. If the cache lacks this key, also look up the keys that are likely to come next."""
        if slot not in self._key_cache:
            slots = np.unique(np.append(self._next_slots(), slot))
            keys = zip(self._key_names, self._keys.keys(slots), strict=True)
            columns = [python_values(column, name) for name, column in keys]
            self._key_cache = (
                dict(zip(slots.tolist(), zip(*columns, strict=True), strict=True)) if columns else {slot: ()}
            )
        return self._key_cache[slot]

    def _times(self, batch: pa.RecordBatch) -> Int64s:
        if self._time_column is None:
            return np.zeros(0, np.int64)
        column = batch.column(self._time_column)
        if column.null_count:
            raise DataError(
                f"event-time column {self._time_column!r} is null in {column.null_count} of {len(column)} rows, and "
                "the function asks for timestamps; filter these rows out before"
            )
        return event_times(column, self._time_column, self._time_offset)

    @property
    def _holders(self) -> tuple[State[Any, Any] | TimerQueue, ...]:
        """Return all states and timer queues, which hold their content by the slot of a key."""
        return *self._states, self._event_timers, self._processing_timers

    def _forget_keys(self) -> None:
        """Remove the keys without state and timers, if at least half of all keys are such keys."""
        used = np.zeros(len(self._keys), np.bool_)
        for holder in self._holders:
            used[holder.slots] = True
        live = np.flatnonzero(used)
        if 2 * len(live) <= len(used):
            self._keys.compact(live)
            numbers = dict(zip(live.tolist(), range(len(live)), strict=True))
            for holder in self._holders:
                holder.renumber(numbers)
        self._look_again_at = max(_LEAST_KEYS, 2 * len(self._keys))

    # --- checkpoints

    def snapshot(self) -> Snapshot:
        context, keys = self.context, self._keys.frozen()
        tables: dict[str, Callable[[], pa.Table]] = {
            state.table: partial(self._state_table, keys, state.frozen()) for state in self._states
        }
        for name, timers in ((_EVENT, self._event_timers), (_PROCESSING, self._processing_timers)):
            tables[name] = partial(self._timer_table, keys, timers.copy())
        groups = key_group_range(context.subtask, context.parallelism, context.max_parallelism)
        of = {"the operator": "a process function", "max_parallelism": context.max_parallelism}
        return Snapshot(LazyTables(tables), {"of": of, "progress": [groups.start, groups.stop, self._user.watermark]})

    def _state_table(self, keys: KeyTable, state: State[Any, Any]) -> pa.Table:
        slots = state.slots.tolist()
        return in_pieces(len(slots), lambda part: self._table(keys, *state.columns(slots[part])))

    def _timer_table(self, keys: KeyTable, timers: Sequence[Timer]) -> pa.Table:
        def some(part: slice) -> pa.Table:
            times, slots = np.array(timers[part], np.int64).reshape(-1, 2).T
            return self._table(keys, slots.copy(), {"time": as_arrow(times)})

        return in_pieces(len(timers), some)

    def _table(self, keys: KeyTable, slots: Int64s, columns: Mapping[str, pa.Array]) -> pa.Table:
        return pa.table({**keys.columns(slots, self._key_names, self.context.max_parallelism), **columns})

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        mine = key_group_range(self.context.subtask, self.context.parallelism, self.context.max_parallelism)
        watermarks = []
        self._look_at_clock()
        for snapshot in snapshots:
            ours.check_same(snapshot)
            _PROGRESS(snapshot.values.get("progress"), "progress")
            first, end, watermark = snapshot.values["progress"]
            if first < mine.stop and mine.start < end:
                watermarks.append(watermark)
            for name, table in snapshot.tables.items():
                if name not in ours.tables:
                    raise CheckpointError(
                        f"the checkpoint has a {name}, which this function does not declare: give a renamed state its "
                        "old name with name=, declare a state that is no longer used, or start without the checkpoint"
                    )
                check_key_groups(table, len(self._key_names), self.context.max_parallelism)
                self._load(name, table)
        self._user.watermark = min(watermarks, default=MIN_TIME)

    def _load(self, name: str, table: pa.Table) -> None:
        begin = 1 + len(self._key_names)
        for batch in table.to_batches():
            if not batch.num_rows:
                continue
            slots = self._keys.find_or_add(batch.columns[1:begin], batch.num_rows)
            columns = dict(zip(batch.schema.names[begin:], batch.columns[begin:], strict=True))
            if name in (_EVENT, _PROCESSING):
                timers = self._event_timers if name == _EVENT else self._processing_timers
                for timer in zip(columns["time"].to_pylist(), slots.tolist(), strict=True):
                    timers.add(timer)
                continue
            state = next(state for state in self._states if state.table == name)
            if (written := state.last_written(columns)) > _LATEST:
                raise ValueError(f"{name}: a value was written {written} us after 1970")
            self._at.now = max(self._at.now, written)
            state.load(slots, columns, self._at.now)


def _by_slot(batch: pa.RecordBatch, slots: Int64s) -> tuple[pa.RecordBatch, Int64s]:
    """Return the rows and their slots, both sorted by slot. Rows of one slot keep their order."""
    if len(slots) == 1 or not (slots[1:] < slots[:-1]).any():
        return batch, slots
    order = np.argsort(slots, kind="stable")
    return batch.take(as_arrow(order)), slots.take(order)
