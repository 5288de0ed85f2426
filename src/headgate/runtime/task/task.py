"""A task: one subtask of a vertex, run by a thread of its own.

The loop takes a batch only while every writer is available. While one is not, the task waits (soft back-pressure) and
runs its mail; while there is no input it waits too (idle). Both waits end by the same wake-up, after which everything
is looked at again, so none can be missed.
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
from headgate.runtime.task.chain import Chained, ToOperator, placed
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.runtime.task.time_account import TimeAccount, Wait
from headgate.runtime.where import calls_operators
from headgate.state import shapes
from headgate.state.snapshot import Snapshot, checkpoint_errors

#: What a source's state looks like; what a position looks like its source says.
_STOOD: Final = shapes.fields({"position": shapes.plain, "watermark": shapes.optional(shapes.time)})

#: What a head's `step` returns besides a number of seconds to wait: go on at once, wait for a wake-up, or the end.
MORE: Final = 0.0
WAIT: Final = float("inf")
END: Final = -1.0


class Head(Protocol):
    """Where a task's rows come from."""

    def step(self) -> float:
        """Handle one batch. Returns MORE, END, or how long to wait for the next at most (WAIT: until woken)."""

    def end(self) -> None:
        """Everything was handled: pass the end on."""

    def on_backpressure(self, begins: bool) -> None: ...

    def close(self) -> None: ...


class SourceHead:
    """A source reader, and the watermarks made from what it reads.

    `plain` is the schema of the rows without dictionaries, if what is read has some. Other threads may set `is_held`:
    nothing is read; and `ends_now`: nothing more will be. Then the task is to be woken.
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
        self.on_backpressure(True)  # it cannot read yet, so its idle clock stands

    def step(self) -> float:
        if self.ends_now or self.is_held:
            return END if self.ends_now else WAIT
        try:
            reader = self._reader
            if reader is None:
                reader = self._open()
                self.on_backpressure(False)
            if self._restored and self._watermarks is not None:
                self._restored = False  # what was in flight of watermarks is not kept
                self._emit_watermark(self._watermarks.watermark)
            self._send_marker()
            batch = reader.read()
            if batch is None:
                if reader.finished:
                    return END
                self._look_idle()
                at = reader.next_read()
                return self._patience() if at is None else max(1e-6, min(at - time.time(), self._patience()))
            self.rows += batch.num_rows
            if self._plain is not None and batch.num_rows:
                batch = plain_batch(batch, self._plain)
            watermark = self._observe(batch, reader)
        except Exception as error:
            raise placed(error, self.context) from error
        if batch.num_rows:
            if self._idle:
                self._idle = False
                self.output.emit_status(True)
            self.output.emit(batch)
        self._emit_watermark(watermark)
        return MORE

    def _observe(self, batch: pa.RecordBatch, reader: SourceReader) -> int:
        """The watermark after a batch, which may have no rows."""
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
        """Where it stands between two batches. Raises the reader's error if it cannot be opened."""
        try:
            position = (self._reader or self._open()).position()
        except Exception as error:
            raise placed(error, self.context) from error
        watermark = self._watermarks.position() if self._watermarks is not None else None
        return {"position": position, "watermark": watermark}

    def restore(self, old: Sequence[Snapshot]) -> None:
        """Before the first step: resume from where the subtasks there were stood. Raises CheckpointError."""
        for each in old:
            with checkpoint_errors(each.origin):
                _STOOD(each.values, "what a source kept")
        self._origins = [each.origin for each in old]
        self._positions = [each.values["position"] for each in old]
        self._restored = True
        if self._watermarks is not None:
            there = [MIN_TIME if (time := each.values["watermark"]) is None else time for each in old]
            self._watermarks.restore(there, self.context.subtask, self.context.parallelism)

    def _send_marker(self) -> None:
        if self._markers is not None and (marker := self._markers.take_due()) is not None:
            self.output.emit_marker(marker)

    def _look_idle(self) -> None:
        """Tell the consumers once there is no split to read, or nothing was read for the idle timeout."""
        if self._watermarks is None or self._idle or self._reader is None:
            return
        if not self._reader.has_split or self._watermarks.is_idle(time.monotonic()):
            self._idle = True
            self.output.emit_status(False)

    def _patience(self) -> float:
        """How long to sleep at most: until idleness is to be looked at again, or the next marker."""
        timeout = self._idle_timeout
        idle = WAIT if timeout is None or self._idle else max(timeout / 4, 1e-3)
        return idle if self._markers is None else min(idle, max(1e-3, self._markers.patience))

    def on_backpressure(self, begins: bool) -> None:
        if self._watermarks is not None:
            (self._watermarks.pause if begins else self._watermarks.resume)(time.monotonic())

    def end(self) -> None:
        self.ended_at = time.time()
        if self._idle:  # an idle stream's time does not count
            self.output.emit_status(True)
        self.output.emit_watermark(MAX_TIME)
        self.output.end_input()

    def close(self) -> None:
        try:
            if self._reader is not None:
                self._reader.close()
        except Exception as error:
            raise placed(error, self.context) from error

    @property
    def is_idle(self) -> bool:
        """It holds back no watermark, for it has no split, or reads nothing."""
        return self._idle

    @property
    def split(self) -> str:
        """What it reads now, for messages."""
        reader = self._reader
        return "nothing yet" if reader is None else reader.split_name()

    @property
    def is_stuck(self) -> bool:
        """After `close`: the user's iterator has not returned, on a thread of its own."""
        return self._reader is not None and self._reader.is_stuck()


calls_operators(SourceHead)


class InputHead:
    """The gates of a task that has producers."""

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
    """What a task has to do by the clock, besides its input."""

    @property
    def deadline(self) -> float | None:
        """When there is something to do, in seconds of `time.monotonic`."""

    def on_time(self, now: float) -> None:
        """Do what is due."""


class Task:
    """Runs on its own thread: `run`. Everything else may be called from any thread.

    `restore` and `opened` are called on the task thread when all operators are open, and `ended` when its last row has
    left them; the task waits for `begin`, so that no row
    is read, and no paced source falls behind, while another task still loads what it needs. `done` is called once, on
    the task thread, with None or the error that ended the task.
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
        self._begun = False
        self.times = TimeAccount(time.monotonic)
        self.started_at = 0.0

    def add_timed(self, *timed: Timed) -> None:
        """Before `run`: something else to do by the clock."""
        self._timed = (*self._timed, *timed)

    def add_timers(self, timers: Iterable[Timed]) -> None:
        """Before `run`: what is done by the clock as long as the task is not back-pressured."""
        self._timers = (*self._timers, *timers)

    def begin(self) -> None:
        """All tasks of the job are open: take the first batch."""
        self._mailbox.put(self._begin)

    def _begin(self) -> None:
        self._begun = True

    def wake(self) -> None:
        """Have the task look again at what it waits for."""
        self._mailbox.wake()

    def cancel(self) -> None:
        """End the task between two batches."""
        self._mailbox.put(self._raise_cancelled)

    @staticmethod
    def _raise_cancelled() -> None:
        raise JobCancelled("the job was cancelled")

    def run(self) -> None:
        """The whole life of the task."""
        error: HeadgateError | None = None
        self.started_at = time.monotonic()
        try:
            for entry in self.operators:
                entry.open()
            self._restore()
            self._opened()
            while not self._begun:
                self._wait(None, Wait.IDLE)
            self.times.reset()
            self._loop()
            self.head.end()
            self._ended()
            self._hand_over()
        except HeadgateError as caught:
            error = caught
        except BaseException as caught:  # whatever it is must reach the driver
            text = "".join(traceback.format_exception(caught)).rstrip()
            error = HeadgateError(f"unexpected {type(caught).__name__} in task {self.name}: {caught}\n{text}")
        finally:
            closing_error = self._close()
            error = error or closing_error
            if error is not None:
                error = from_wire(to_wire(error))  # the same without frames, which may hold views into segments
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
        """Send what is due, and the end when the consumers have processed all records."""
        while not self._drain_writers():
            self._rest(WAIT, Wait.SOFT)
            self._on_time()
        while not all(writer.partition.is_settled for writer in self.writers):
            self._rest(WAIT, Wait.IDLE)
            self._on_time()
        for timed in (*self._timed, *self._timers):  # a checkpoint may wait for a barrier that has left since
            timed.on_time(time.monotonic())
        for writer in self.writers:
            writer.write_event(EndOfPartition())

    def _rest(self, until: float, why: Wait) -> None:
        """Between two inputs: wait until woken, or until there is something to do by the clock."""
        for writer in self.writers:
            writer.before_wait()
        timed = self._timed
        if self._timers and self._drain_writers():
            timed += self._timers
        deadline = _earliest(timed)
        self._wait(until if deadline is None else min(until, deadline), why)

    def _on_time(self) -> None:
        """Have done what is due by the clock."""
        deadline = _earliest(self._timed)
        if deadline is not None and (now := time.monotonic()) >= deadline:
            for timed in self._timed:
                timed.on_time(now)
        for timers in self._timers:
            if all(writer.is_available for writer in self.writers):
                timers.on_time(time.monotonic())

    def _drain_writers(self) -> bool:
        """Returns whether all are available; else the task is woken when that may have changed."""
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
        """Within one input: wait until what is due fits into segments."""
        self.wait_until(writer.drain)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Within one input: wait for something outside (readers, or the driver for delivered batches). Mail still runs,
        so a cancel still ends it, and what other channels have waits no longer than the buffer timeout."""
        while not condition():
            for writer in self.writers:
                writer.before_wait()
            self._wait(_earliest(self.writers), Wait.HARD)
            for writer in self.writers:
                writer.on_time(time.monotonic())

    def _close(self) -> HeadgateError | None:
        """Close head and operators; returns the first error of theirs."""
        first: HeadgateError | None = None
        for close in (self.head.close, *(entry.close for entry in self.operators)):
            try:
                close()
            except HeadgateError as error:
                first = first or error
        return first


def _earliest(timed: Iterable[Timed]) -> float | None:
    """The first of their deadlines, if there is any."""
    earliest: float | None = None
    for each in timed:
        deadline = each.deadline
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
    return earliest
