"""`AckThrottling`: a source waits while too many of its messages are not yet fully processed (Storm before 1.0)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from headgate.exchange.anchored_output import AnchoredOutput
from headgate.records.elements import Anchor
from headgate.records.events import CheckpointBarrier
from headgate.runtime.control_messages import EndTrees, FromTaskManager, ReportTrees
from headgate.runtime.task.anchored_input import AnchoredInput
from headgate.runtime.task.heads import Head, SourceHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttling import Gated, Throttling
from headgate.runtime.taskmanager.throttling.replaying_head import ReplayingHead
from headgate.runtime.taskmanager.throttling.wrapped_head import WrappedHead
from headgate.throttle.acker import AnchoredMessage, MessageDone, TreeEnded, TreeStarted
from headgate.throttle.max_pending import MaxPending, PendingSource
from headgate.throttle.mechanism import Task
from headgate.transport.network_thread import Network

#: Seconds for which a report waits, so that one message to the acker carries several reports.
_GATHER: Final = 1e-3


class AckThrottling(Throttling):
    """The part of `MaxPending` in one TaskManager. It gives messages ids, and reports the ids to the acker on the
    driver.

    The acker finds out when a source's message and all messages that came from it are processed. `send` sends a message
    to the driver. `random_id` returns a random number of 64 bits. Any thread may call it.
    """

    def __init__(
        self,
        mechanism: MaxPending,
        *,
        clock: Callable[[], float],
        network: Network,
        send: Callable[[FromTaskManager], None],
        random_id: Callable[[], int],
    ) -> None:
        self._mechanism = mechanism
        self._clock = clock
        self._network = network
        self._send = send
        self._random_id = random_id
        self._works: dict[Task, WorkedMessage] = {}
        self._sources: dict[Task, tuple[ReplayingHead, TaskMail]] = {}

    def _work(self, task: Task) -> WorkedMessage:
        return self._works.setdefault(task, WorkedMessage(self._random_id))

    def output(self, task: Task, consumers: Sequence[Task], mail: TaskMail) -> Gated:
        return partial(AnchoredOutput, anchor=self._work(task).send)

    def input(self, task: Task, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        return partial(AnchoredInput, begin=self._work(task).begin)

    def reader(self, task: Task, head: Head) -> Head:
        return _AckingHead(head, self._work(task), _Reports(self._network, self._send))

    def source(self, task: Task, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]) -> Head:
        policy: PendingSource[pa.RecordBatch] = self._mechanism.pending_source(task, self._clock(), self._random_id)
        replaying = ReplayingHead(head, policy, self._work(task), _Reports(self._network, self._send).started)
        self._sources[task] = replaying, mail
        return replaying

    def on_order(self, order: object) -> None:
        if not isinstance(order, EndTrees):
            return
        for vertex, subtask, root in order.trees:
            task = vertex, subtask
            if task in self._sources:
                head, mail = self._sources[task]
                mail.put(partial(head.on_ended, TreeEnded((task,), root)))


class WorkedMessage:
    """The message that a task processes now. Gives an id to each message that the task sends because of this one."""

    def __init__(self, random_id: Callable[[], int]) -> None:
        self._random_id = random_id
        self.message: AnchoredMessage | None = None

    def begin(self, anchor: Anchor | None) -> None:
        """Note that the task starts to process the message `anchor`; None if the element has no id."""
        self.message = None if anchor is None else AnchoredMessage(anchor.root, anchor.id, self._random_id)

    def send(self) -> Anchor | None:
        """Return a new id for a message that the task sends; None if the processed element has no id."""
        if self.message is None:
            return None
        return Anchor(self.message.root, self.message.send())


class _Reports:
    """The reports of one task to the acker. One message carries all reports of a millisecond.

    The lock protects the waiting reports: the task's thread adds reports, and the network thread sends them.
    """

    def __init__(self, network: Network, send: Callable[[FromTaskManager], None]) -> None:
        self._network = network
        self._send = send
        self._lock = threading.Lock()
        self._started: list[tuple[int, int, int, int]] = []
        self._done: list[tuple[int, int]] = []

    def started(self, tree: TreeStarted) -> None:
        with self._lock:
            self._plan_flush()
            self._started.append((tree.root, tree.ids, *tree.source))

    def done(self, message: MessageDone) -> None:
        with self._lock:
            self._plan_flush()
            self._done.append((message.root, message.ids))

    def _plan_flush(self) -> None:
        if not self._started and not self._done:
            self._network.call_later(_GATHER, self._flush)

    def _flush(self) -> None:
        with self._lock:
            started, self._started = self._started, []
            done, self._done = self._done, []
        self._send(ReportTrees(started=started, done=done))


class _AckingHead(WrappedHead):
    """A `Head` that reports each message when its task has processed it."""

    def __init__(self, head: Head, work: WorkedMessage, reports: _Reports) -> None:
        super().__init__(head)
        self._work = work
        self._reports = reports

    def step(self, now: float) -> float:
        until = self._head.step(now)
        message, self._work.message = self._work.message, None
        if message is not None:
            self._reports.done(message.done())
        return until
