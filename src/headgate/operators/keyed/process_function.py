"""`KeyedProcessFunction`: a user's function with state and timers for each key; and `ProcessContext`, its context."""

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


class KeyedFunction(OtherNames):
    """The base class of users' functions with state for each key."""

    def open(self, ctx: Any) -> None:
        """Prepare the function."""

    def close(self) -> None:
        """Release what `open` allocated."""


class KeyedProcessFunction(KeyedFunction):
    """The base class of functions with state and timers for each key: `stream.key_by(...).process(function,
    schema=...)`.

    Override either `process`, which takes all rows of one key in a batch, or `process_element`, which takes one row and
    is slower. Override `on_timer` if the function sets timers. These methods return or yield rows: dicts, RecordBatches
    of the declared schema, or either of them in `hg.SideOutput(tag, rows)`. None means no rows.

    Declare state as attributes: `hg.ValueState`, `hg.ListState`, `hg.MapState`. Each subtask has its own copy
    (`copy.copy`) of the function, so `open` may set attributes on `self`.

    ```python
    class Total(hg.KeyedProcessFunction):
        total = hg.ValueState(pa.int64())

        def process(self, batch, ctx):
            self.total.update(self.total.value(0) + sum(batch["amount"].to_pylist()))
            return {"shop": ctx.key[0], "total": self.total.value()}
    ```
    """

    def open(self, ctx: ProcessContext) -> None:
        """Prepare the function. Each subtask calls this method once, before all other methods. There is no current
        key."""

    def process(self, batch: pa.RecordBatch, ctx: ProcessContext) -> Any:
        """Process all rows of one key (`ctx.key`) in a batch. The rows are in the order in which they arrived."""

    def process_element(self, row: dict[str, Any], ctx: ProcessContext) -> Any:
        """Process one row. The subtask passes the rows in the order in which they arrived."""

    def on_timer(self, time: int, ctx: ProcessContext) -> Any:
        """Handle a timer of one key (`ctx.key`). The timer was set for `time`, in microseconds since the epoch."""
        raise NotImplementedError(f"{type(self).__name__} sets timers: override on_timer")

    def close(self) -> None:
        """Release what `open` allocated. Each subtask calls this method once after `open`, also after a failure."""


#: The last part of an error message: how to get event time.
NO_EVENT_TIME: Final = (
    "which this stream does not have; add watermark=hg.Watermark(column) to from_source, and keep the column"
)


class ProcessContext(OtherNames):
    """The context of a call of a `KeyedProcessFunction`: the key, the times, and methods that set and delete timers.

    Times are microseconds since the epoch. A timer belongs to the current key. A key has at most one timer for the same
    time, even if the function registers it several times. A timer's time may also be a `datetime`; a `datetime` without
    a zone is UTC.

    Attributes: `subtask` and `parallelism`; `watermark`, the current watermark (-2**63 before the first one, 2**63 - 1
    after the end of the input); and `time_domain`, which in `on_timer` is "event" or "processing", the kind of the
    timer.
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
        #: The current watermark: -2**63 before the first watermark, and 2**63 - 1 when the input has ended.
        self.watermark = watermark
        #: In `on_timer`: "event" for an event-time timer, "processing" for a processing-time timer. None elsewhere.
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
        """The current key: a tuple of the values of the key columns. Raises RuntimeError in `open` and `close`."""
        if self._at.slot < 0:
            raise RuntimeError("ctx.key: there is no current key; use it in process, process_element and on_timer")
        return self._key_of(self._at.slot)

    @property
    def processing_time(self) -> int:
        """The clock's time in microseconds since the epoch, read when the batch arrived or the timers became due."""
        return self._at.now

    @property
    def timestamps(self) -> Int64s:
        """In `process`: a NumPy array with the event time of each row, in microseconds since the epoch.

        Raises RuntimeError in a stream without event time.
        """
        if self._event_timers is None:
            raise RuntimeError(f"ctx.timestamps needs event time, {NO_EVENT_TIME}")
        return self._times()[self._begin : self._begin + self._rows]

    @property
    def timestamp(self) -> int:
        """In `process_element`: the event time of the row, in microseconds since the epoch.

        Raises RuntimeError in a stream without event time, and where there is no row.
        """
        if self._event_timers is None:
            raise RuntimeError(f"ctx.timestamp needs event time, {NO_EVENT_TIME}")
        if not self._rows:
            raise RuntimeError("ctx.timestamp: there is no row now; on_timer gets the time of its timer as an argument")
        return int(self._times()[self._begin])

    def register_event_time_timer(self, time: int | datetime) -> None:
        """Set an event-time timer: the subtask calls `on_timer` when the watermark reaches this time.

        A timer for a past time fires at the next watermark.
        """
        self._events().add(self._new_timer(time))

    def delete_event_time_timer(self, time: int | datetime) -> None:
        """Delete the current key's event-time timer for this time. Do nothing if the key has no such timer."""
        self._events().remove(self._timer(time))

    def register_processing_time_timer(self, time: int | datetime) -> None:
        """Set a processing-time timer: the subtask calls `on_timer` when the clock reaches this time, or soon after."""
        self._processing_timers.add(self._new_timer(time))

    def delete_processing_time_timer(self, time: int | datetime) -> None:
        """Delete the current key's processing-time timer for this time. Do nothing if the key has no such timer."""
        self._processing_timers.remove(self._timer(time))

    def _forget_batch(self) -> None:
        """Forget the event times of the last batch, because the function now processes no rows."""
        self._times = _no_times
        self._begin = self._rows = 0

    def _events(self) -> TimerQueue:
        if self._event_timers is None:
            raise RuntimeError(f"an event-time timer needs event time, {NO_EVENT_TIME}")
        return self._event_timers

    def _new_timer(self, time: int | datetime) -> tuple[int, int]:
        if not self._has_on_timer:
            raise RuntimeError("a timer calls on_timer, which this function lacks: override it")
        return self._timer(time)

    def _timer(self, time: int | datetime) -> tuple[int, int]:
        if self._at.slot < 0:
            raise RuntimeError("a timer needs a current key, and there is none; set timers in process and on_timer")
        return _as_microseconds(time), self._at.slot


def _as_microseconds(time: object) -> int:
    if isinstance(time, datetime):
        return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    try:
        microseconds = operator.index(time)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a timer's time is microseconds since the epoch, a whole number, or a datetime, not {time!r}"
        ) from None
    if not -(1 << 63) <= microseconds < 1 << 63:
        raise TypeError(f"a timer's time is microseconds since the epoch in 64 bits, and {microseconds} does not fit")
    return microseconds


def _no_times() -> Int64s:
    return np.zeros(0, np.int64)
