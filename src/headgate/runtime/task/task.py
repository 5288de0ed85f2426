"""A task: one subtask of a vertex, as a state machine whose `turn` does the next piece of its work.

The task takes a batch only while every writer is available. Otherwise it waits (soft back-pressure), and its mail and
its barriers go on. While there is no input it waits, too. One wake-up ends all waits; the task then looks at everything
again, so it misses no event. Nothing here reads a clock of its own or starts a thread: `task_thread` drives a task.
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
    """Work that a task does by the clock, besides its input."""

    @property
    def deadline(self) -> float | None:
        """Return when work is due, in seconds of the monotonic clock; None while there is none."""

    def on_time(self, now: float) -> None:
        """Do the work that is due."""


class TaskMail(Protocol):
    """What a task needs of its mailbox."""

    def put(self, mail: Callable[[], None]) -> None: ...

    def wake(self) -> None: ...

    def run(self) -> None: ...

    def wait(self, timeout: float | None) -> object:
        """Wait for a wake-up, at most `timeout` seconds."""


class Task:
    """One subtask. `turn` and `close` belong to the thread that drives it; any thread may call the other methods.

    The task calls `restore` and `opened` when all operators are open. It then waits for `begin`: it reads no row while
    another task still loads what it needs, so no paced source falls behind. It calls `ended` when the last row has left
    the operators. Times are seconds of the monotonic clock.
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
        #: Measures the thread that drives the task.
        self.thread = ThreadClock()
        #: After a turn that returned a time or WAIT: why the task waits.
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
        self._phase = self._open

    def add_timed(self, *timed: Timed) -> None:
        """Before the first turn: add work by the clock."""
        self._timed = (*self._timed, *timed)

    def add_timers(self, timers: Iterable[Timed]) -> None:
        """Before the first turn: add timers, which run only while the task is not back-pressured."""
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

    # --- turns

    def turn(self, now: float) -> float:
        """Do the next piece of work: at most one batch. Returns MORE to be called again at once, the time at which to
        be called again unless a wake-up comes first (WAIT: only then), or END. `waits_for` then says why.

        Raises the error that ends the task.
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
            return self._pause(WAIT, Wait.OUTPUT_SOFT)
        if self._is_backpressured:
            self._set_backpressured(False, now)
        until = self.head.step(now)
        if until == MORE:
            return MORE
        if until != END:
            return self._pause(until, self.head.waits_for)
        self.head.end()
        self._ended()
        self._phase = self._hand_over
        return MORE

    def _hand_over(self, now: float) -> float:
        """Send what is due. Send the end of the partition when the consumers have processed all records."""
        self._on_time(now)
        if not self._drain_writers():
            return self._pause(WAIT, Wait.OUTPUT_SOFT)
        if not all(writer.partition.is_settled for writer in self.writers):
            return self._pause(WAIT, Wait.CLOSED)
        for timed in (*self._timed, *self._timers):  # a checkpoint may wait for a barrier that has left meanwhile
            timed.on_time(now)
        for writer in self.writers:
            writer.write_event(EndOfPartition())
        return END

    def _set_backpressured(self, is_backpressured: bool, now: float) -> None:
        self._is_backpressured = is_backpressured
        self.head.on_backpressure(is_backpressured, now)

    def _pause(self, until: float, why: Wait) -> float:
        """Return when the task looks again: at `until`, or when work by the clock is due."""
        self.waits_for = why
        for writer in self.writers:
            writer.before_wait()
        timed = self._timed
        if self._timers and self._drain_writers():
            timed += self._timers
        deadline = _earliest(timed)
        return until if deadline is None else min(until, deadline)

    def _on_time(self, now: float) -> None:
        """Do the work by the clock that is due."""
        deadline = _earliest(self._timed)
        if deadline is not None and now >= deadline:
            for timed in self._timed:
                timed.on_time(now)
        for timers in self._timers:
            if all(writer.is_available for writer in self.writers):
                timers.on_time(now)

    def _drain_writers(self) -> bool:
        """Drain the writers. Returns whether all are available. A writer that becomes available wakes the task."""
        available = True
        for writer in self.writers:
            if not writer.is_available:
                writer.drain()
                available = available and writer.is_available
        return available

    # --- waits

    def wait(self, until: float) -> None:
        """Between two turns: wait until the time that the last turn returned, or for a wake-up."""
        self._wait(until, self.waits_for)

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
            deadline = _earliest(self.writers)
            self._wait(WAIT if deadline is None else deadline, Wait.OUTPUT_HARD)
            self._mailbox.run()
            now = self._clock()
            for writer in self.writers:
                writer.on_time(now)

    def _wait(self, until: float, why: Wait) -> None:
        timeout = None if until == WAIT else max(0.0, until - self._clock())
        work = self.times.switch(why)
        self._mailbox.wait(timeout)
        self.times.switch(work)

    def close(self) -> HeadgateError | None:
        """After the last turn: close the head and the operators. Returns their first error."""
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
    """Return the earliest deadline, None if there is none."""
    earliest: float | None = None
    for work in timed:
        deadline = work.deadline
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
    return earliest
