"""The part of a throttle in one TaskManager, as its tasks see it: it makes those of their parts that it has to control.

A job without a throttle, or with one that only limits sources, has none of this.
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

#: Makes the due output of one exchange.
Gated = Callable[[ResultPartition, PendingCount], DueOutput]


class Throttling:
    """The base class. Each method returns the part that a job without a throttle has."""

    def output(self, task: Subtask, consumers: Sequence[Subtask], mail: TaskMail) -> Gated:
        """Return what makes the due output of an exchange from a subtask, to consumers in the order of channels."""
        return DueOutput

    def input(self, task: Subtask, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        """Return what makes the input of a subtask; it gets the arguments of `TaskInput`.

        `senders` has the TaskManager of each channel's producer; None: this one.
        """
        return TaskInput

    def source(
        self, task: Subtask, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]
    ) -> Head:
        """Return the head of a subtask of a source, around its own head. `inject` lets a barrier start at the task."""
        return head

    def reader(self, task: Subtask, head: Head) -> Head:
        """Return the head of a subtask with producers, around its own head."""
        return head

    def start(self) -> None:
        """Begin, because all tasks are built."""

    def on_order(self, order: object) -> None:
        """Follow an order of the driver. Any thread may call this."""

    def close(self) -> None:
        """End the work that is due at certain times."""
