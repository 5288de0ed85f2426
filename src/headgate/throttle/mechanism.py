"""The interfaces of back-pressure mechanisms: who has to slow down, and how.

The user makes a `Mechanism`: a frozen dataclass of numbers. It makes the policies of one attempt of a job. A policy is
pure. The runtime calls it on one thread and passes the time, in seconds of the monotonic clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

#: A subtask: the number of its vertex in the job, and its own number.
Task: TypeAlias = tuple[int, int]
#: The time that a source policy returns when only a signal can let the source read again.
NEVER: Final = math.inf


class SourcePolicy(Protocol):
    """Decides when one subtask of a source may read. The task asks before each read, and reports the rows after it."""

    def permit(self, now: float) -> float:
        """Return the time from which the subtask may read its next batch. If it is not after `now`, it may read now.

        The task asks again after each signal, because a signal may change the time.
        """

    def emitted(self, now: float, rows: int) -> None:
        """Note that the subtask has read a batch of `rows` rows, and passed all of them on.

        A batch is never divided. If it has more rows than the policy allows now, the next batch waits longer.
        """


class SendPolicy(Protocol):
    """Decides to which subtasks the subtasks of one TaskManager may send.

    A task asks for all of its destinations before it takes a new batch. If it may not send to one of them, it waits.
    """

    def may_send(self, task: Task) -> bool:
        """Return whether this subtask may get another message now."""


class Scope(enum.StrEnum):
    """To whom a signal goes."""

    #: Each TaskManager with a subtask that sends to a subtask here. A new connection gets the newest signal at once.
    SENDERS = "senders"
    #: The TaskManager that the signal names as its `sender`.
    ONE_SENDER = "one sender"
    #: The subtasks that the signal names as its `tasks`.
    TASKS = "tasks"
    #: All other TaskManagers of the job.
    EVERYONE = "everyone"
    #: The driver.
    DRIVER = "driver"
    #: The ackers of the job. All signals about one root go to the same acker.
    ACKER = "acker"
    #: ZooKeeper.
    ZOOKEEPER = "zookeeper"


class ThrottleSignal:
    """What one part of a mechanism tells another part."""

    __slots__ = ()
    scope: ClassVar[Scope]


class Monitor(Protocol):
    """Watches the input queues of the subtasks of one TaskManager. It returns the signals that this leads to."""

    @property
    def next_check(self) -> float:
        """The time at which the TaskManager calls `check`. It may have become earlier after each other call."""

    def check(self, now: float) -> Sequence[ThrottleSignal]:
        """Do what is due now."""

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> Sequence[ThrottleSignal]:
        """Note that a message with rows was added to a subtask's input queue, which now has `queued` messages.

        `sender` is the TaskManager that it came from. None: this one.
        """

    def taken(self, now: float, task: Task, queued: int) -> Sequence[ThrottleSignal]:
        """Note that a subtask has taken a message from its input queue, which now has `queued` messages."""


class Overflow(enum.StrEnum):
    """What an input queue does with one message too many."""

    #: The queue drops the message that arrives.
    DROP_NEWEST = "newest"
    #: The queue drops the message that has waited longest.
    DROP_OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The limit of one subtask's input queue, in messages with rows. Events do not count, and are never dropped."""

    capacity: int
    overflow: Overflow


class Mechanism:
    """A back-pressure mechanism. It makes only the parts that it consists of."""

    __slots__ = ()
    #: Whether the limit on sources never changes, whatever the job can process.
    is_static: ClassVar[bool] = False

    def source_policy(self, now: float) -> SourcePolicy | None:
        """Return the policy of one subtask of a source, which starts now. None: sources are not asked."""
        return None

    def queue_policy(self) -> QueuePolicy | None:
        """Return the limit of each input queue. None: this mechanism sets no limit."""
        return None
