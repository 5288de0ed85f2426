"""The interfaces of back-pressure mechanisms: who has to slow down, and how.

The user makes a `Mechanism`: a frozen dataclass of numbers. It makes the policies of one attempt of a job. A policy is
pure. The runtime calls it on one thread and passes the time, in seconds of the monotonic clock.

Each of the four overflows of an input queue has its hook. The queue *drops the newest* or *drops the oldest* message
if `Mechanism.queue_policy` says so. It *grows* if a policy only watches it, as a `Monitor` does. It *blocks* its
senders by `SendPolicy.may_send`, or by `has_room` of the runtime's `WatchedInput`, which leaves messages in their
channels.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from headgate.errors import ConfigError

#: A subtask: the number of its vertex in the job, and its own number.
Task: TypeAlias = tuple[int, int]
#: The time that a source policy returns when only a signal can let the source read again.
NEVER: Final = math.inf


class SourcePolicy(Protocol):
    """Decides when one subtask of a source may read. The task asks before each read, and reports the rows after it."""

    def permit(self, now: float) -> float:
        """Return the time from which the subtask may read its next batch. If the time is not after `now`, the subtask
        may read now.

        The task asks again after each signal, because a signal may change the time.
        """

    def emitted(self, now: float, rows: int) -> None:
        """Note that the subtask has read a batch of `rows` rows, and passed all of them on.

        A batch is never divided. If it has more rows than the policy allows now, the next batch waits longer.
        """


class SendPolicy(Protocol):
    """Decides to which subtasks the subtasks of one TaskManager may send.

    An output asks before each message with rows. If the message may not go, the output holds it back, and the messages
    behind it to the same subtask. While the output may not hold back more, its task takes no new batch.
    """

    def may_send(self, task: Task, transferring: int) -> bool:
        """Return whether this subtask may get another message now.

        `transferring` is the number of messages of this TaskManager that wait for a connection.
        """

    def may_hold(self, task: Task, size: int) -> bool:
        """Return whether a task may take a new batch while it holds back `size` bytes for this subtask."""


class Scope(enum.StrEnum):
    """To whom a signal goes."""

    #: Each TaskManager with a subtask that sends to a subtask here.
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
        """The time at which the TaskManager calls `check`. Each other call may make it earlier."""

    def check(self, now: float) -> Sequence[ThrottleSignal]:
        """Do what is due now."""

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> Sequence[ThrottleSignal]:
        """Note that a message with rows was added to a subtask's input queue, which now has `queued` messages.

        `sender` is the TaskManager that it came from. None: this one.
        """

    def taken(self, now: float, task: Task, queued: int) -> Sequence[ThrottleSignal]:
        """Note that a subtask has taken a message from its input queue, which now has `queued` messages."""


class StagePolicy(Monitor, SendPolicy, Protocol):
    """The part of one TaskManager in a mechanism that stops senders stage by stage, with signals on the data links."""

    def connected(self) -> Sequence[ThrottleSignal]:
        """Return the first signals for the TaskManagers that send here. Called once, when the tasks start."""

    def on_signal(self, now: float, signal: Any) -> None:
        """Follow a signal of another TaskManager."""


class Overflow(enum.StrEnum):
    """Which message an input queue drops if it gets one too many."""

    #: The queue drops the message that arrives.
    DROP_NEWEST = "newest"
    #: The queue drops the message that has waited longest.
    DROP_OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The limit of one subtask's input queue, in messages with rows. Events do not count, and are never dropped."""

    capacity: int
    overflow: Overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a mechanism must know of the options of its job."""

    #: The most bytes that may wait in one input queue.
    network_memory: int
    has_credit: bool = False
    has_checkpoints: bool = False
    #: Whether barriers may overtake rows.
    is_unaligned: bool = False
    is_batch: bool = False
    #: Whether writers send the rows of each batch at once, so that a message has no rows of another batch.
    flushes_each_batch: bool = True


class Mechanism:
    """A back-pressure mechanism. It makes only the parts that it consists of."""

    __slots__ = ()
    #: Whether the limit on sources never changes, whatever the job can process.
    is_static: ClassVar[bool] = False
    #: Whether the mechanism waits for every source of the job, so that no source may have another throttle.
    needs_all_sources: ClassVar[bool] = False

    def check(self, job: JobOptions) -> None:
        """Raise ConfigError if a job with these options cannot have this throttle."""

    def source_policy(self, now: float) -> SourcePolicy | None:
        """Return the policy of one subtask of a source, which starts now. None: sources do not ask this mechanism."""
        return None

    def queue_policy(self) -> QueuePolicy | None:
        """Return the limit of each input queue. None: this mechanism sets no limit."""
        return None

    def stages(self, taskmanager: int, tasks: Iterable[Task], now: float) -> StagePolicy | None:
        """Return the part of one TaskManager, which runs these subtasks. None: senders are not stopped."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMechanism(Mechanism):
    """A mechanism of another system, for comparison: its own limits decide what waits, and where.

    Use it with `flow_control="unbounded"`, so that nothing else holds messages back. With `over_credit=True` you ask
    for the flow control `credit` as well.
    """

    #: Whether consumers keep messages in a queue of their own, outside of the channels.
    has_queue: ClassVar[bool] = True
    over_credit: bool = field(default=False, repr=False)

    def check(self, job: JobOptions) -> None:
        if job.has_credit and not self.over_credit:
            raise ConfigError(
                f"throttle={self} with flow_control='credit' would be two mechanisms at once: "
                f"use flow_control='unbounded', or ask for both: {type(self).__name__}(..., over_credit=True)"
            )
        if self.over_credit and not job.has_credit:
            raise ConfigError(f"throttle={self} has over_credit=True, which needs flow_control='credit'")
        if job.is_batch:
            raise ConfigError(
                f"throttle={self} has no effect with execution_mode='batch', where the output of each operator is in "
                "files: leave one out"
            )
        if self.has_queue and job.is_unaligned:
            raise ConfigError(
                f"throttle={self} with unaligned=True would lose rows after a restart: a barrier can overtake rows in "
                "channels, but not those in the input queue of a throttle: leave one out"
            )
