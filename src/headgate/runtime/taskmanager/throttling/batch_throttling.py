"""`BatchThrottling`: sources send rows in timed batches, and the time that a batch takes sets the next rate
(`SparkPid`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from headgate.exchange.spill_file import SpillFile
from headgate.memory.memory_guard import MemoryGuard
from headgate.records.events import Alignment, CheckpointBarrier
from headgate.runtime.control_messages import FromTaskManager, ReleaseBatch, ReportBatch, SetRate
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.task.heads import END, MORE, WAIT, Head, SourceHead
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttled_head import GatedSourceHead
from headgate.runtime.task.throttling import Throttling
from headgate.runtime.taskmanager.throttling.source_output import EachCall
from headgate.runtime.taskmanager.throttling.stored_output import StoredOutput
from headgate.throttle.mechanism import Task
from headgate.throttle.spark_pid import PidSource, RateUpdate, SparkPid
from headgate.throttle.validation import duration

_US: Final = 1_000_000


class BatchThrottling(Throttling):
    """The part of `SparkPid` in one TaskManager. It releases batches, and sets the rates of sources.

    `send` sends a message to the driver. `guard` limits the bytes of rows that a source stores in memory, and
    `folder` is where it stores more.
    """

    def __init__(
        self,
        mechanism: SparkPid,
        *,
        clocks: Clocks,
        send: Callable[[FromTaskManager], None],
        guard: MemoryGuard,
        folder: str | None,
    ) -> None:
        self._mechanism = mechanism
        self._interval = duration("batch_interval", mechanism.batch_interval)
        self._clocks = clocks
        self._send = send
        self._guard = guard
        self._folder = folder
        self._started_at = 0.0
        self._sources: dict[Task, tuple[BatchedHead, TaskMail]] = {}

    def source(self, task: Task, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]) -> Head:
        policy = self._mechanism.pid_source(self._clocks.monotonic())
        stored = StoredOutput(self._guard, SpillFile(self._folder) if self._mechanism.storage != "memory" else None)
        batched = BatchedHead(head, policy, self._present_batch, partial(self._close_batch, task, inject), stored)
        self._sources[task] = batched, mail
        return batched

    def _present_batch(self) -> int:
        return int((self._clocks.monotonic() - self._started_at) / self._interval)

    def _close_batch(self, task: Task, inject: Callable[[CheckpointBarrier], None], batch: int, rows: int) -> None:
        """Close a batch after its source has sent all `rows`: inject a barrier behind them, and report the batch to the
        driver."""
        timestamp = round(self._clocks.wall() * _US)
        inject(CheckpointBarrier(batch + 1, timestamp, Alignment.ALIGNED, 0, is_probe=True))
        self._send(ReportBatch(batch=batch, task=task, rows=rows))

    def start(self) -> None:
        self._started_at = self._clocks.monotonic()

    def on_order(self, order: object) -> None:
        if isinstance(order, ReleaseBatch):
            for head, mail in self._sources.values():
                mail.put(partial(head.release, order.batch))
        elif isinstance(order, SetRate):
            for vertex, subtask in order.tasks:
                self._set_rate((vertex, subtask), order.rows_per_s)

    def _set_rate(self, task: Task, rows_per_s: int) -> None:
        if task in self._sources:
            head, mail = self._sources[task]
            mail.put(lambda: head.policy.on_signal(self._clocks.monotonic(), RateUpdate((task,), rows_per_s)))


class BatchedHead(GatedSourceHead[SourceHead]):
    """A `Head` that wraps the head of a source. It stores the source's output until the driver releases the batch.

    The source reads at the rate of `policy`. `present_batch` returns the number of the batch to which rows that are
    read now belong. The head calls `close(batch, rows)` when it has sent all rows of a batch. `stored` holds the rows
    that wait.
    """

    def __init__(
        self,
        source: SourceHead,
        policy: PidSource,
        present_batch: Callable[[], int],
        close: Callable[[int, int], None],
        stored: StoredOutput,
    ) -> None:
        super().__init__(source)
        self.policy = policy
        self._close_batch = close
        source.output = EachCall(source.output, stored, present_batch)
        self._stored = stored
        self._released: deque[int] = deque()
        self._rows_sent = 0
        self._has_ended = False

    def release(self, batch: int) -> None:
        """Allow the head to send the rows of a batch. Runs on the task's thread."""
        self._released.append(batch)

    def step(self, now: float) -> float:
        if self._released:
            self._send_next(self._released[0])
            return MORE
        if self._has_ended:
            if not self._stored:
                return END
            self._throttle(True, now)
            return WAIT
        at = now if self._head.is_held or self._head.ends_now else self.policy.permit(now)
        self._throttle(at > now, now)
        if at > now:
            return at
        rows = self._head.rows
        until = self._head.step(now)
        if self._head.rows > rows:
            self.policy.emitted(now, self._head.rows - rows)
        self._has_ended = until == END
        return MORE if self._has_ended else until

    def _send_next(self, batch: int) -> None:
        """Send the next stored rows of a released batch. After the last rows, close the batch."""
        if self._stored and self._stored.first <= batch:
            self._rows_sent += self._stored.pass_on()
            return
        self._released.popleft()
        self._close_batch(batch, self._rows_sent)
        self._rows_sent = 0

    def end(self) -> None:
        super().end()
        while self._stored:
            self._stored.pass_on()

    def close(self) -> None:
        self._stored.close()
        super().close()
