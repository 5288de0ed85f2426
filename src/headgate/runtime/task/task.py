"""A task: one subtask of a vertex, run by a thread of its own.

The loop takes a batch only while every writer is available. Otherwise the task waits (soft back-pressure) and runs
its mail. While there is no input the task waits, too (idle). The same wake-up ends either wait; the task then looks at
everything again, so it misses no event.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Final, Protocol

import pyarrow as pa

from headgate.connectors.connector import SourceReader
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.errors import HeadgateError, JobCancelled, from_wire, to_wire
from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext
from headgate.records.arrow import plain_batch
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.records.events import EndOfPartition
from headgate.runtime.latency_markers import MarkerTimer
from headgate.runtime.running_operator import calls_operators
from headgate.runtime.task.chain import Chained, ToOperator, with_location
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.runtime.task.time_account import TimeAccount, Wait
from headgate.state import shapes
from headgate.state.snapshot import Snapshot, checkpoint_errors

#: The shape of a source's state. The source itself checks its position.
_SOURCE_STATE: Final = shapes.fields({"position": shapes.plain, "watermark": shapes.optional(shapes.time)})

#: What a head's `step` returns besides a number of seconds: continue at once, wait for a wake-up, or the end.
MORE: Final = 0.0
WAIT: Final = float("inf")
END: Final = -1.0


class Head(Protocol):
    """The input of a task: a source, or the gates of its producers."""

    def step(self) -> float:
        """Handle one batch. Returns MORE, END, or the most seconds to wait for the next batch (WAIT: until woken)."""

    def end(self) -> None:
        """Pass the end of input on, after the last batch."""

    def on_backpressure(self, begins: bool) -> None: ...

    def close(self) -> None: ...


class SourceHead:
    """Reads a source, and makes watermarks from what it reads.

    `plain` is the schema of the rows without dictionaries, if the source has dictionaries. Other threads may set two
    flags, and then wake the task: `is_held`, and the source reads nothing; `ends_now`, and it ends where it is.
    """

    def __init__(
        self,
        open_reader: Callable[[Sequence[Any] | None], SourceReader],
        *,
        plain: pa.Schema | None,
        watermarks: WatermarkGenerator | None,
        idle_timeout: float | None,
        output: Chained,
        context: OperatorContext,
        markers: MarkerTimer | None = None,
    ) -> None:
        self._open_reader = open_reader
        self._plain = plain
        self._reader: SourceReader | None = None
        self._positions: Sequence[Any] | None = None
        self._origins: Sequence[str] = ()
        self._watermarks = watermarks
        self._idle_timeout = idle_timeout
        self.output = output
        self.context = context
        self._markers = markers
        self._watermark = MIN_TIME
        self._restored = False
        self._idle = False
        self.rows = 0
        self.is_held = False
        self.ends_now = False
        self.ended_at: float | None = None
        self.on_backpressure(True)  # the idle clock stands until the reader is open

    def step(self) -> float:
        if self.ends_now or self.is_held:
            return END if self.ends_now else WAIT
        try:
            reader = self._reader
            if reader is None:
                reader = self._open()
                self.on_backpressure(False)
            if self._restored and self._watermarks is not None:
                self._restored = False  # watermarks in flight are not in a checkpoint
                self._emit_watermark(self._watermarks.watermark)
            self._send_marker()
            batch = reader.read()
            if batch is None:
                if reader.finished:
                    return END
                self._check_idle()
                at = reader.next_read()
                return self._longest_wait() if at is None else max(1e-6, min(at - time.time(), self._longest_wait()))
            self.rows += batch.num_rows
            if self._plain is not None and batch.num_rows:
                batch = plain_batch(batch, self._plain)
            watermark = self._observe(batch, reader)
        except Exception as error:
            raise with_location(error, self.context) from error
        if batch.num_rows:
            if self._idle:
                self._idle = False
                self.output.emit_status(True)
            self.output.emit(batch)
        self._emit_watermark(watermark)
        return MORE

    def _observe(self, batch: pa.RecordBatch, reader: SourceReader) -> int:
        """Return the watermark after a batch, which may have no rows."""
        if self._watermarks is None:
            return MIN_TIME
        if batch.num_rows:
            self._watermarks.observe(batch, reader.split)
        return self._watermarks.reach(reader.reached)

    def _emit_watermark(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            self.output.emit_watermark(watermark)

    def _open(self) -> SourceReader:
        with checkpoint_errors(*self._origins) if self._positions is not None else nullcontext():
            reader = self._reader = self._open_reader(self._positions)
        return reader

    def snapshot(self) -> dict[str, Any]:
        """Return the position and the watermark between two batches. Raises the reader's error if it cannot be
        opened."""
        try:
            position = (self._reader or self._open()).position()
        except Exception as error:
            raise with_location(error, self.context) from error
        watermark = self._watermarks.position() if self._watermarks is not None else None
        return {"position": position, "watermark": watermark}

    def restore(self, old: Sequence[Snapshot]) -> None:
        """Resume from the positions of the old subtasks. Call it before the first step. Raises CheckpointError."""
        for snapshot in old:
            with checkpoint_errors(snapshot.origin):
                _SOURCE_STATE(snapshot.values, "a source's state")
        self._origins = [snapshot.origin for snapshot in old]
        self._positions = [snapshot.values["position"] for snapshot in old]
        self._restored = True
        if self._watermarks is not None:
            positions = [snapshot.values["watermark"] for snapshot in old]
            watermarks = [MIN_TIME if position is None else position for position in positions]
            self._watermarks.restore(watermarks, self.context.subtask, self.context.parallelism)

    def _send_marker(self) -> None:
        if self._markers is not None and (marker := self._markers.take_due()) is not None:
            self.output.emit_marker(marker)

    def _check_idle(self) -> None:
        """Tell the consumers that this source is idle: it has no split, or read nothing for the idle timeout."""
        if self._watermarks is None or self._idle or self._reader is None:
            return
        if not self._reader.has_split or self._watermarks.is_idle(time.monotonic()):
            self._idle = True
            self.output.emit_status(False)

    def _longest_wait(self) -> float:
        """Return the most seconds to wait: until the next look at idleness, or the next marker."""
        timeout = self._idle_timeout
        idle = WAIT if timeout is None or self._idle else max(timeout / 4, 1e-3)
        return idle if self._markers is None else min(idle, max(1e-3, self._markers.patience))

    def on_backpressure(self, begins: bool) -> None:
        if self._watermarks is not None:
            (self._watermarks.pause if begins else self._watermarks.resume)(time.monotonic())

    def end(self) -> None:
        self.ended_at = time.time()
        if self._idle:  # consumers ignore the watermark of an idle channel
            self.output.emit_status(True)
        self.output.emit_watermark(MAX_TIME)
        self.output.end_input()

    def close(self) -> None:
        try:
            if self._reader is not None:
                self._reader.close()
        except Exception as error:
            raise with_location(error, self.context) from error

    @property
    def is_idle(self) -> bool:
        """Whether the source is idle: it has no split or reads nothing, and holds back no watermark."""
        return self._idle

    @property
    def split(self) -> str:
        """Return the name of the split that it reads now, for messages."""
        reader = self._reader
        return "nothing yet" if reader is None else reader.split_name()

    @property
    def is_stuck(self) -> bool:
        """After `close`: whether the user's iterator has not returned, on a thread of its own."""
        return self._reader is not None and self._reader.is_stuck()


calls_operators(SourceHead)


class InputHead:
    """Reads the gates of a task that has producers."""

    def __init__(self, task_input: TaskInput, output: Chained) -> None:
        self._input = task_input
        self._output = output

    def step(self) -> float:
        element = self._input.next()
        if element is None:
            if self._input.catch_up():
                return MORE
            return END if self._input.is_finished else WAIT
        if isinstance(element, WatermarkElement):
            self._output.emit_watermark(element.time)
        elif isinstance(element, WatermarkStatus):
            self._output.emit_status(element.active)
        elif isinstance(element, LatencyMarker):
            self._output.emit_marker(element)
        else:
            self._output.emit(element)
        return MORE

    def end(self) -> None:
        self._output.end_input()

    def on_backpressure(self, begins: bool) -> None: ...

    def close(self) -> None: ...


class Timed(Protocol):
    """Work that a task does by the clock, besides its input."""

    @property
    def deadline(self) -> float | None:
        """Return when work is due, in seconds of `time.monotonic`; None while there is none."""

    def on_time(self, now: float) -> None:
        """Do the work that is due."""


class Task:
    """One subtask. `run` is the life of its own thread; all other methods may be called by any thread.

    The task thread calls `restore` and `opened` when all operators are open. The task then waits for `begin`: it
    reads no row while another task still loads what it needs, so no paced source falls behind. The thread calls `ended`
    when the last row has left the operators, and `done` once at the very end, with None or the error that ended the
    task.
    """

    def __init__(
        self,
        name: str,
        head: Head,
        *,
        operators: Sequence[ToOperator],
        writers: Sequence[RecordWriter],
        mailbox: Mailbox,
        opened: Callable[[], None],
        done: Callable[[Task, HeadgateError | None], None],
        restore: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.head = head
        self.operators = operators
        self.writers = tuple(writers)
        self._timed: tuple[Timed, ...] = self.writers
        self._timers: tuple[Timed, ...] = ()
        self._mailbox = mailbox
        self._opened = opened
        self._restore = restore
        self._ended = ended
        self._done = done
        self._may_begin = False
        self.times = TimeAccount(time.monotonic)
        self.started_at = 0.0

    def add_timed(self, *timed: Timed) -> None:
        """Before `run`: add work by the clock."""
        self._timed = (*self._timed, *timed)

    def add_timers(self, timers: Iterable[Timed]) -> None:
        """Before `run`: add timers, which run only while the task is not back-pressured."""
        self._timers = (*self._timers, *timers)

    def begin(self) -> None:
        """Let the task take its first batch: all tasks of the job are open."""
        self._mailbox.put(self._begin)

    def _begin(self) -> None:
        self._may_begin = True

    def wake(self) -> None:
        """Have the task look again at what it waits for."""
        self._mailbox.wake()

    def cancel(self) -> None:
        """Have the task end with JobCancelled between two batches."""
        self._mailbox.put(self._raise_cancelled)

    @staticmethod
    def _raise_cancelled() -> None:
        raise JobCancelled("the job was cancelled")

    def run(self) -> None:
        """Open the operators, restore them, process all input, and close them. `done` gets the outcome."""
        error: HeadgateError | None = None
        self.started_at = time.monotonic()
        try:
            for entry in self.operators:
                entry.open()
            self._restore()
            self._opened()
            while not self._may_begin:
                self._wait(None, Wait.IDLE)
            self.times.reset()
            self._loop()
            self.head.end()
            self._ended()
            self._hand_over()
        except HeadgateError as caught:
            error = caught
        except BaseException as caught:  # any exception must reach the driver
            text = "".join(traceback.format_exception(caught)).rstrip()
            error = HeadgateError(f"unexpected {type(caught).__name__} in task {self.name}: {caught}\n{text}")
        finally:
            closing_error = self._close()
            error = error or closing_error
            if error is not None:
                error = from_wire(to_wire(error))  # a copy without frames: they may hold views into segments
            self._done(self, error)

    def _loop(self) -> None:
        head, mailbox = self.head, self._mailbox
        while True:
            mailbox.run()
            self._on_time()
            if not self._drain_writers():
                head.on_backpressure(True)
                self._rest(WAIT, Wait.SOFT)
                head.on_backpressure(False)
                continue
            patience = head.step()
            if patience == END:
                return
            if patience != MORE:
                self._rest(time.monotonic() + patience, Wait.IDLE)

    def _hand_over(self) -> None:
        """Send what is due. Send the end of the partition when the consumers have processed all records."""
        while not self._drain_writers():
            self._rest(WAIT, Wait.SOFT)
            self._on_time()
        while not all(writer.partition.is_settled for writer in self.writers):
            self._rest(WAIT, Wait.IDLE)
            self._on_time()
        for timed in (*self._timed, *self._timers):  # a checkpoint may wait for a barrier that has left meanwhile
            timed.on_time(time.monotonic())
        for writer in self.writers:
            writer.write_event(EndOfPartition())

    def _rest(self, until: float, why: Wait) -> None:
        """Wait between two inputs, until a wake-up or until work by the clock is due."""
        for writer in self.writers:
            writer.before_wait()
        timed = self._timed
        if self._timers and self._drain_writers():
            timed += self._timers
        deadline = _earliest(timed)
        self._wait(until if deadline is None else min(until, deadline), why)

    def _on_time(self) -> None:
        """Do the work by the clock that is due."""
        deadline = _earliest(self._timed)
        if deadline is not None and (now := time.monotonic()) >= deadline:
            for timed in self._timed:
                timed.on_time(now)
        for timers in self._timers:
            if all(writer.is_available for writer in self.writers):
                timers.on_time(time.monotonic())

    def _drain_writers(self) -> bool:
        """Drain the writers. Returns whether all are available. A writer that becomes available wakes the task."""
        available = True
        for writer in self.writers:
            if not writer.is_available:
                writer.drain()
                available = available and writer.is_available
        return available

    def _wait(self, deadline: float | None, why: Wait) -> None:
        timeout = None if deadline is None or deadline == WAIT else max(0.0, deadline - time.monotonic())
        self.times.begin(why)
        self._mailbox.wait(timeout)
        self.times.end()
        self._mailbox.run()

    def wait_within_record(self, writer: RecordWriter) -> None:
        """Wait within one input until the segments have room for the writer's due data."""
        self.wait_until(writer.drain)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait within one input for something outside: free segments, or the driver to take delivered batches.

        Mail still runs, so a cancel ends the wait. Data for other channels wait no longer than the buffer timeout.
        """
        while not condition():
            for writer in self.writers:
                writer.before_wait()
            self._wait(_earliest(self.writers), Wait.HARD)
            for writer in self.writers:
                writer.on_time(time.monotonic())

    def _close(self) -> HeadgateError | None:
        """Close the head and the operators. Returns their first error."""
        first: HeadgateError | None = None
        for close in (self.head.close, *(entry.close for entry in self.operators)):
            try:
                close()
            except HeadgateError as error:
                first = first or error
        return first


def _earliest(timed: Iterable[Timed]) -> float | None:
    """Return the earliest deadline, None if there is none."""
    earliest: float | None = None
    for work in timed:
        deadline = work.deadline
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
    return earliest
