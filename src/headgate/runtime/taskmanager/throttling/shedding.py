"""`Shedding`: input queues drop messages when they are full (the mechanism `Shed`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.queued_input import QueuedInput
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttling import Throttling
from headgate.throttle.mechanism import QueuePolicy, Task


class Shedding(Throttling):
    """The part of `Shed` in one TaskManager. It gives each task an input queue with the limit of `policy`."""

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy

    def input(self, task: Task, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        return partial(QueuedInput, policy=self._policy, wake=mail.wake)
