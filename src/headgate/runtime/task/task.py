"""A task: one subtask of a vertex, as a state machine. Each call of `turn` does the next piece of work.

The task takes a batch only while every writer is available. Otherwise the task waits (soft back-pressure), but still
handles its mail and its barriers. The task also waits while it has no input. Every wake-up ends the wait, whatever the
task waits for. The task then checks its mail, its output and its input again, so it misses no event. This module reads
no clock of its own and starts no thread: `task_thread` runs a task on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from headgate.errors import HeadgateError, JobCancelled
from headgate.exchange.writer import RecordWriter
from headgate.records.events import EndOfPartition
from headgate.runtime.task.chain import ToOperator
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.heads import END, MORE, WAIT, Head
from headgate.runtime.task.thread_clock import ThreadClock
from headgate.runtime.task.time_account import TimeAccount, Wait


class Timed(Protocol):
    """Timed work of a task, for example timers and barriers. The task calls `on_time` at the time `deadline`."""

    @property
    def deadline(self) -> float | None:
        """The time when work is due, in seconds of the monotonic clock, or None if no work is planned."""

    def on_time(self, now: float) -> None:
        """Do the work that is due."""


class TaskMail(Protocol):
    """The methods of a mailbox that a task calls."""

    def put(self, mail: Callable[[], None]) -> None: ...

    def wake(self) -> None: ...

    def run(self) -> None: ...

    def wait(self, timeout: float | None) -> object:
        """Wait for a wake-up, at most `timeout` seconds (None: without a limit)."""


class Task:
    """One subtask. One thread runs the task: it calls `turn`, `wait` and `close`.

    Any thread may call `begin`, `wake` and `cancel`. When all operators are open, the task calls `restore` and then
    `opened`. It reads no row before `begin`. The TaskManager calls `begin` when all tasks of the job are open, so a
    source with a schedule does not fall behind while another task loads its tables. The task calls `ended` when the
    last row has left the operators. Times are in seconds of the monotonic clock.
    """

    def __init__(
        self,
        name: str,
        head: Head,
        *,
        operators: Sequence[ToOperator],
        writers: Sequence[RecordWriter],
        mailbox: TaskMail,
        opened: Callable[[], None],
        restore: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
        clocks: Clocks = SYSTEM,
        times: TimeAccount | None = None,
    ) -> None:
        self.name = name
        self.head = head
        self.operators = operators
        self.writers = tuple(writers)
        self.times = times or TimeAccount(clocks.monotonic)
        #: The clock of the thread that runs the task: its processor time.
        self.thread = ThreadClock()
        #: The reason for the wait, after a turn that returned a time or WAIT.
        self.waits_for = Wait.INPUT
        self._timed: tuple[Timed, ...] = self.writers
        self._timers: tuple[Timed, ...] = ()
        self._mailbox = mailbox
        self._opened = opened
        self._restore = restore
        self._ended = ended
        self._clock = clocks.monotonic
        self._may_begin = False
        self._is_backpressured = False
        self.has_ended = False
        #: A function that the task's thread calls before each wait.
        self.on_wait: Callable[[], None] = lambda: None
        self._phase = self._open

    def add_timed(self, *timed: Timed) -> None:
        """Add work that is due at certain times. Call it before the first turn."""
        self._timed = (*self._timed, *timed)

    def add_timers(self, timers: Iterable[Timed]) -> None:
        """Add timers, which run only while the task is not back-pressured. Call it before the first turn."""
        self._timers = (*self._timers, *timers)

    def begin(self) -> None:
        """Let the task take its first batch, because all tasks of the job are open."""
        self._mailbox.put(self._begin)

    def _begin(self) -> None:
        self._may_begin = True

    def wake(self) -> None:
        """End the task's wait. The task then checks its mail, its output and its input again."""
        self._mailbox.wake()

    def cancel(self) -> None:
        """End the task with JobCancelled, between two batches or while the task waits."""
        self._mailbox.put(self._raise_cancelled)

    @staticmethod
    def _raise_cancelled() -> None:
        raise JobCancelled("the job was cancelled")

    # --- turns

    def turn(self, now: float) -> float:
        """Do the next piece of work, which is at most one batch.

        Returns MORE if the next call is due at once, and END if the task has ended. Otherwise the task waits:
        `waits_for` is the reason, and the result is the time of the next call, or WAIT if only a wake-up ends the wait.
        A wake-up also ends a wait that has a time. Raises the error that ends the task.
        """
        self._mailbox.run()
        return self._phase(now)

    def _open(self, now: float) -> float:
        for entry in self.operators:
            entry.open()
        self._restore()
        self._opened()
        self._phase = self._await_begin
        return MORE

    def _await_begin(self, now: float) -> float:
        if not self._may_begin:
            self.waits_for = Wait.INPUT
            return WAIT
        self.times.reset()
        self._phase = self._process
        return MORE

    def _process(self, now: float) -> float:
        self._on_time(now)
        if not self._drain_writers():
            self._set_backpressured(True, now)
            return self._pause(WAIT, self._output_wait)
        if self._is_backpressured:
            self._set_backpressured(False, now)
        until = self.head.step(now)
        if until == MORE:
            return MORE
        if until != END:
            if not all(writer.is_available for writer in self.writers):  # the step filled the output
                return MORE
            return self._pause(until, self.head.waits_for)
        self.head.end()
        self._ended()
        self._phase = self._hand_over
        return MORE

    def _hand_over(self, now: float) -> float:
        """Send the due output. When the consumers have processed all records, send the end of the partition."""
        self._on_time(now)
        if not self._drain_writers():
            return self._pause(WAIT, self._output_wait)
        if not all(writer.partition.is_settled for writer in self.writers):
            return self._pause(WAIT, Wait.CLOSED)
        for timed in (*self._timed, *self._timers):  # a checkpoint may wait for a barrier that has left meanwhile
            timed.on_time(now)
        for writer in self.writers:
            writer.write_event(EndOfPartition())
        return END

    @property
    def _output_wait(self) -> Wait:
        """The reason why the output is not available: it has no room, or a throttle holds messages back."""
        return Wait.THROTTLED if any(writer.is_gated for writer in self.writers) else Wait.OUTPUT_SOFT

    def _set_backpressured(self, is_backpressured: bool, now: float) -> None:
        self._is_backpressured = is_backpressured
        self.head.on_backpressure(is_backpressured, now)

    def _pause(self, until: float, why: Wait) -> float:
        """Start a wait for the reason `why`. Returns the time of the next turn: `until`, or an earlier deadline of
        timed work."""
        self.waits_for = why
        for writer in self.writers:
            writer.before_wait()
        timed = self._timed
        if self._timers and self._drain_writers():
            timed += self._timers
        deadline = _earliest(timed)
        return until if deadline is None else min(until, deadline)

    def _on_time(self, now: float) -> None:
        """Do the timed work that is due."""
        deadline = _earliest(self._timed)
        if deadline is not None and now >= deadline:
            for timed in self._timed:
                timed.on_time(now)
        for timers in self._timers:
            if all(writer.is_available for writer in self.writers):
                timers.on_time(now)

    def _drain_writers(self) -> bool:
        """Move due output of all writers into segments. Returns whether all writers are available.

        A writer that becomes available later wakes the task.
        """
        available = True
        for writer in self.writers:
            if not writer.is_available:
                writer.drain()
                available = available and writer.is_available
        return available

    # --- waits

    def wait(self, until: float) -> None:
        """Wait until `until`, the time that the last turn returned, or for a wake-up. Call it between two turns."""
        self._wait(until, self.waits_for)

    def wait_within_record(self, writer: RecordWriter) -> None:
        """Wait, in the middle of an input batch, until the writer's due data fit into segments."""
        self.wait_until(writer.drain)

    def wait_until(self, condition: Callable[[], bool], poll: float = WAIT) -> None:
        """Wait, in the middle of an input batch, until `condition()` is True.

        Callers wait for free segments, for the driver to take batches, or for room in the target of a sink. The task
        checks the condition after each wake-up, and at least every `poll` seconds (WAIT: only after a wake-up). It
        still runs its mail, so a cancel ends the wait. The writers still flush after their buffer timeout.
        """
        while not condition():
            for writer in self.writers:
                writer.before_wait()
            deadline = _earliest(self.writers)
            until = WAIT if poll == WAIT else self._clock() + poll
            self._wait(until if deadline is None else min(deadline, until), Wait.OUTPUT_HARD)
            self._mailbox.run()
            now = self._clock()
            for writer in self.writers:
                writer.on_time(now)

    def work_within_record(self) -> None:
        """Run the mail and flush due output, while an operator waits in the middle of an input batch.

        The time counts for the operator. Raises JobCancelled after a cancel.
        """
        self._mailbox.run()
        now = self._clock()
        for writer in self.writers:
            writer.on_time(now)

    def _wait(self, until: float, why: Wait) -> None:
        timeout = None if until == WAIT else max(0.0, until - self._clock())
        work = self.times.switch(why)
        self.on_wait()
        self._mailbox.wait(timeout)
        self.times.switch(work)

    def close(self) -> HeadgateError | None:
        """Close the head and the operators, after the last turn. Returns their first error, or None."""
        first: HeadgateError | None = None
        for close in (self.head.close, *(entry.close for entry in self.operators)):
            try:
                close()
            except HeadgateError as error:
                first = first or error
        self.times.switch(Wait.CLOSED)
        self.has_ended = True
        return first


def _earliest(timed: Iterable[Timed]) -> float | None:
    """Return the earliest deadline, or None if there is no deadline."""
    earliest: float | None = None
    for work in timed:
        deadline = work.deadline
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
    return earliest
