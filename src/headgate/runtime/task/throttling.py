"""The base class of a throttle's part in one TaskManager. A throttle slows a job's sources or senders down.

The task builder asks this part for the outputs, inputs and heads that the throttle must control. A job without a
throttle, or whose throttle only limits sources, uses no subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.exchange.due import DueOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.records.events import CheckpointBarrier
from headgate.runtime.task.heads import Head, SourceHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.task import TaskMail
from headgate.throttle.mechanism import Task as Subtask

#: A function that creates the `DueOutput` of one exchange: the messages of a writer that wait for segments.
Gated = Callable[[ResultPartition, PendingCount], DueOutput]


class Throttling:
    """The base class. Its methods return the plain parts of a job without a throttle; subclasses return controlled
    parts."""

    def output(self, task: Subtask, consumers: Sequence[Subtask], mail: TaskMail) -> Gated:
        """Return the function that creates an exchange's output at the subtask `task`. `consumers` is in channel
        order."""
        return DueOutput

    def input(self, task: Subtask, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        """Return the function that creates the input of a subtask. The function takes the arguments of `TaskInput`.

        `senders` has the number of the TaskManager of each channel's producer, or None for this TaskManager.
        """
        return TaskInput

    def source(
        self, task: Subtask, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]
    ) -> Head:
        """Return the head that the subtask of a source runs: `head`, or a wrapper of it. `inject` starts a barrier at
        the task."""
        return head

    def reader(self, task: Subtask, head: Head) -> Head:
        """Return the head that a subtask with producers runs: `head`, or a wrapper of it."""
        return head

    def start(self) -> None:
        """Start timed work. The TaskManager calls this before its tasks take their first batches."""

    def on_order(self, order: object) -> None:
        """Carry out an order that the driver sent. Any thread may call this."""

    def close(self) -> None:
        """Stop timed work. The TaskManager calls this when it ends."""
