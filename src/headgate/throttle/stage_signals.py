"""The signals that go to the senders of a TaskManager, on the connections of their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.throttle.mechanism import Scope, Task, ThrottleSignal


@dataclass(frozen=True, slots=True)
class BackPressureStatus(ThrottleSignal):
    """Which subtasks of one TaskManager are full, and which are not. Together these are all of its subtasks.

    The receiver applies every status that arrives, so an old status that arrives late counts too. Nothing
    acknowledges a status, and nothing repeats a lost one.
    """

    scope: ClassVar[Scope] = Scope.SENDERS
    taskmanager: int
    number: int
    full: tuple[Task, ...]
    free: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class JStormStop(ThrottleSignal):
    """A subtask of `taskmanager` stops or releases the messages that the TaskManager `sender` sends to it.

    Nothing acknowledges or repeats it, and no time limit ends it.
    """

    scope: ClassVar[Scope] = Scope.ONE_SENDER
    sender: int
    taskmanager: int
    task: Task
    stops: bool
