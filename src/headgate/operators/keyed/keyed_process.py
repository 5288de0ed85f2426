"""`KeyedProcess`: the operator that runs a `KeyedProcessFunction` with the state and timers of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.keyed.collector import Collector
from headgate.operators.keyed.keyed_operator import Holder, KeyedOperator
from headgate.operators.keyed.process_function import KeyedFunction, KeyedProcessFunction, ProcessContext
from headgate.operators.keyed.state_base import State, declared_states
from headgate.operators.keyed.timers import Timer, TimerQueue
from headgate.operators.operator import OperatorContext
from headgate.operators.python_values import Row, python_rows, python_values
from headgate.operators.rows import visible
from headgate.records.canonical import Int64s, as_arrow
from headgate.state.keys import KeyTable
from headgate.state.snapshot import Snapshot, in_pieces

_EVENT: Final = "event timers"
_PROCESSING: Final = "processing timers"
#: The number of next timers whose keys the operator looks up at once.
_KEYS_AHEAD: Final = 1024


def check_process_function(function: object) -> KeyedProcessFunction:
    """Check the function that a user passed to `process`, and return it. The driver calls this. Raises PlanError."""
    if isinstance(function, type) and issubclass(function, KeyedFunction):
        raise PlanError(f"process: {function.__name__} is a class; make one: process({function.__name__}(), ...)")
    if not isinstance(function, KeyedProcessFunction):
        raise PlanError(
            f"process: {function!r} is not a hg.KeyedProcessFunction or hg.KeyedBatchFunction; for a function without "
            "state use map_batches"
        )
    if _overrides(function, "process") == _overrides(function, "process_element"):
        raise PlanError(f"process: {type(function).__name__} must override either process or process_element, not both")
    declared_states(function, State)
    return function


def _overrides(function: KeyedProcessFunction, method: str) -> bool:
    return getattr(type(function), method) is not getattr(KeyedProcessFunction, method)


class KeyedProcess(KeyedOperator[KeyedProcessFunction, State[Any, Any]]):
    """The operator that calls a user's function for each key of a batch, or for each row, and for each timer.

    Event-time timers fire in the order of their times, before the operator emits the watermark that reaches them.
    Processing-time timers fire in the order of their times, in `on_processing_time`. The operator reads the rows' event
    times only for the user's function.
    """

    _of = "a process function"
    _kind = State

    def __init__(
        self,
        function: KeyedProcessFunction,
        keys: tuple[str, ...],
        *,
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema],
        **options: Any,
    ) -> None:
        super().__init__(function, keys, **options)
        self._by_row = _overrides(function, "process_element")
        self._key_cache: dict[int, tuple[Any, ...]] = {}
        self._next_slots: Callable[[], Int64s] = lambda: np.zeros(0, np.int64)
        self._event_timers, self._processing_timers = TimerQueue(), TimerQueue()
        main = self._function.process_element if self._by_row else self._function.process
        self._out = Collector(main, schema, sides, self._emit)
        self._user: ProcessContext

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        timed = self._event_timers if self._time_column is not None else None
        has_on_timer = type(self._function).on_timer is not KeyedProcessFunction.on_timer
        self._user = ProcessContext(
            context.subtask, context.parallelism, watermark=self._watermark, at=self._at, key_of=self._key,
            event_timers=timed, processing_timers=self._processing_timers, has_on_timer=has_on_timer,
        )  # fmt: skip
        self._open_function(self._user)

    def state_bytes(self) -> int:
        return super().state_bytes() + self._event_timers.nbytes + self._processing_timers.nbytes

    # --- rows and timers

    def process(self, batch: pa.RecordBatch) -> None:
        self._look_at_clock()
        slots = self._slots(batch)
        (self._process_rows if self._by_row else self._process_keys)(batch, slots)
        self._settle()

    def _process_rows(self, batch: pa.RecordBatch, slots: Int64s) -> None:
        self._cache_keys(slots, batch)
        rows = self._rows(python_rows(visible(batch)), slots.tolist())
        self._out.call_for_each(self._function.process_element, rows, self._user)

    def _rows(self, rows: list[Row], slots: list[int]) -> Iterator[Row]:
        """Yield each row, with the context set to this row."""
        user, at = self._user, self._at
        user._rows = 1
        for user._begin, (at.slot, row) in enumerate(zip(slots, rows, strict=True)):
            yield row

    def _process_keys(self, batch: pa.RecordBatch, slots: Int64s) -> None:
        batch, slots = _by_slot(batch, slots)
        self._cache_keys(slots, batch)
        self._out.call_for_each(self._function.process, self._parts(visible(batch), slots), self._user)

    def _parts(self, rows: pa.RecordBatch, slots: Int64s) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each key, with the context set to this key."""
        user, at, slice_of = self._user, self._at, rows.slice
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
        counts = np.diff(begins, append=len(slots))
        for user._begin, user._rows, at.slot in zip(
            begins.tolist(), counts.tolist(), slots.take(begins).tolist(), strict=True
        ):
            yield slice_of(user._begin, user._rows)

    def process_watermark(self, time: int) -> None:
        self._look_at_clock()
        self._watermark = self._user.watermark = max(self._watermark, time)
        self._fire(self._event_timers, self._watermark, "event")
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

    def _settle(self) -> None:
        """Forget the current key and batch, emit the gathered rows, and remove unused keys if there are many."""
        self._at.leave()
        self._key_cache.clear()
        self._user._forget_batch()
        self._out.flush()
        self._forget_unused_keys()

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

    @property
    def _holders(self) -> Sequence[Holder]:
        return *self._states, self._event_timers, self._processing_timers

    # --- checkpoints

    def _other_tables(self, keys: KeyTable) -> dict[str, Callable[[], pa.Table]]:
        timers = {_EVENT: self._event_timers.copy(), _PROCESSING: self._processing_timers.copy()}
        return {name: partial(self._timer_table, keys, copied) for name, copied in timers.items()}

    def _timer_table(self, keys: KeyTable, timers: Sequence[Timer]) -> pa.Table:
        def some(part: slice) -> pa.Table:
            times, slots = np.array(timers[part], np.int64).reshape(-1, 2).T
            return self._table(keys, slots.copy(), {"time": as_arrow(times)})

        return in_pieces(len(timers), some)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        super().restore(snapshots)
        self._user.watermark = self._watermark

    def _load(self, name: str, slots: Int64s, columns: Mapping[str, pa.Array]) -> None:
        if name not in (_EVENT, _PROCESSING):
            super()._load(name, slots, columns)
            return
        timers = self._event_timers if name == _EVENT else self._processing_timers
        for timer in zip(columns["time"].to_pylist(), slots.tolist(), strict=True):
            timers.add(timer)


def _by_slot(batch: pa.RecordBatch, slots: Int64s) -> tuple[pa.RecordBatch, Int64s]:
    """Return the rows and their slots, both sorted by slot. Rows of one slot keep their order."""
    if len(slots) == 1 or not (slots[1:] < slots[:-1]).any():
        return batch, slots
    order = np.argsort(slots, kind="stable")
    return batch.take(as_arrow(order)), slots.take(order)
