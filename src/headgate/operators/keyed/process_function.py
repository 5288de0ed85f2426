"""`KeyedProcessFunction`: a user's function with state and timers for each key, and its context."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from headgate.operators.keyed.state_base import Current
from headgate.operators.keyed.timers import TimerQueue
from headgate.other_names import OtherNames
from headgate.records.canonical import Int64s

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class KeyedProcessFunction(OtherNames):
    """Base of functions that keep state for each key and set timers: `stream.key_by(...).process(function, schema=)`.

    Override `process`, which gets all rows of one key in a batch at once, or `process_element`, which gets one row at a
    time and is slower; and `on_timer`, if timers are set. What they return or yield are rows: dicts, RecordBatches of
    the declared schema, `hg.SideOutput(tag, rows)` of these; None is none.

    State is declared as attributes: `hg.ValueState`, `hg.ListState`, `hg.MapState`. Each subtask has its own copy
    (`copy.copy`) of the function: what `open` sets on `self` is the subtask's own.
    """

    def open(self, ctx: ProcessContext) -> None:
        """Called once in each subtask, before all else; there is no key then."""

    def process(self, batch: pa.RecordBatch, ctx: ProcessContext) -> Any:
        """The rows of one key (`ctx.key`) in a batch, in the order in which they came."""

    def process_element(self, row: dict[str, Any], ctx: ProcessContext) -> Any:
        """One row. Rows come in their order."""

    def on_timer(self, time: int, ctx: ProcessContext) -> Any:
        """A timer of a key (`ctx.key`), set for `time`, in microseconds since the epoch."""
        raise NotImplementedError(f"{type(self).__name__} sets timers: override on_timer")

    def close(self) -> None:
        """Called once in each subtask that was opened, also after a failure."""


_NO_EVENT_TIME = (
    "which this stream does not have; add watermark=hg.Watermark(column) to from_source, and keep the column"
)


class ProcessContext(OtherNames):
    """What a `KeyedProcessFunction` may ask, and where it sets timers; times are microseconds since the epoch.

    Timers belong to the current key. Each time is there once for a key, however often it is registered, and can be
    given as a `datetime` too (UTC, if it has no zone).
    """

    def __init__(
        self,
        subtask: int,
        parallelism: int,
        *,
        watermark: int,
        at: Current,
        key_of: Callable[[int], tuple[Any, ...]],
        event_timers: TimerQueue | None,
        processing_timers: TimerQueue,
        has_on_timer: bool,
    ) -> None:
        self.subtask = subtask
        self.parallelism = parallelism
        #: The event time that has been reached: -2**63 before the first watermark, 2**63 - 1 when the input has ended.
        self.watermark = watermark
        #: In `on_timer`: of which time the timer is.
        self.time_domain: Literal["event", "processing"] | None = None
        self._at = at
        self._key_of = key_of
        self._event_timers = event_timers
        self._processing_timers = processing_timers
        self._has_on_timer = has_on_timer
        self._times: Callable[[], Int64s]
        self._forget_batch()

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of the key columns."""
        if self._at.slot < 0:
            raise RuntimeError("ctx.key: there is no key now; there is one in process, process_element, on_timer")
        return self._key_of(self._at.slot)

    @property
    def processing_time(self) -> int:
        """The clock's, taken when the batch came or the timers became due."""
        return self._at.now

    @property
    def timestamps(self) -> Int64s:
        """In `process`: the event time of each row, microseconds since the epoch. Raises RuntimeError in a stream
        without event time."""
        if self._event_timers is None:
            raise RuntimeError(f"ctx.timestamps needs event time, {_NO_EVENT_TIME}")
        return self._times()[self._begin : self._end]

    @property
    def timestamp(self) -> int:
        """In `process_element`: the event time of the row, microseconds since the epoch. Raises RuntimeError in a
        stream without event time, and where there is no row."""
        if self._event_timers is None:
            raise RuntimeError(f"ctx.timestamp needs event time, {_NO_EVENT_TIME}")
        if self._begin == self._end:
            raise RuntimeError("ctx.timestamp: there is no row now; on_timer gets the time of its timer as an argument")
        return int(self._times()[self._begin])

    def register_event_time_timer(self, time: int | datetime) -> None:
        """Call `on_timer` when the watermark reaches this time; with the next watermark if it has passed already."""
        self._events().add(self._new_timer(time))

    def delete_event_time_timer(self, time: int | datetime) -> None:
        """Also when it is not there."""
        self._events().remove(self._timer(time))

    def register_processing_time_timer(self, time: int | datetime) -> None:
        """Call `on_timer` when the clock reaches this time, or soon after."""
        self._processing_timers.add(self._new_timer(time))

    def delete_processing_time_timer(self, time: int | datetime) -> None:
        """Also when it is not there."""
        self._processing_timers.remove(self._timer(time))

    def _forget_batch(self) -> None:
        """There are no rows now."""
        self._times = _no_times
        self._begin = self._end = 0

    def _events(self) -> TimerQueue:
        if self._event_timers is None:
            raise RuntimeError(f"an event-time timer needs event time, {_NO_EVENT_TIME}")
        return self._event_timers

    def _new_timer(self, time: int | datetime) -> tuple[int, int]:
        if not self._has_on_timer:
            raise RuntimeError("a timer calls on_timer, which this function lacks: override it")
        return self._timer(time)

    def _timer(self, time: int | datetime) -> tuple[int, int]:
        if self._at.slot < 0:
            raise RuntimeError("timers are of a key, and there is none now; set them in process and on_timer")
        return _as_microseconds(time), self._at.slot


def _as_microseconds(time: object) -> int:
    if isinstance(time, datetime):
        return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    try:
        found = operator.index(time)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a timer's time is microseconds since the epoch, a whole number, or a datetime, not {time!r}"
        ) from None
    if not -(1 << 63) <= found < 1 << 63:
        raise TypeError(f"a timer's time is microseconds since the epoch in 64 bits, and {found} is beyond that")
    return found


def _no_times() -> Int64s:
    return np.zeros(0, np.int64)
