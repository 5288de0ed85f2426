"""The objects of a TaskManager that a throttle uses."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.config import Config
from headgate.memory.memory_guard import MemoryGuard
from headgate.plan.execution import ExecutionPlan
from headgate.protocol.throttle_message import StageSignal
from headgate.runtime.control_messages import FromTaskManager
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.taskmanager.link_ends import LinkEnds
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.transport.network_thread import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlePlace:
    """The objects of TaskManager `index` that its part of a throttle uses. `send` sends a message to the driver.

    `count` counts the signals.
    """

    #: A name that is unique to this attempt: the job's name, its random bytes, because another program may run a job of
    #: the same name, and the attempt's number.
    job: str
    config: Config
    index: int
    plan: ExecutionPlan
    clocks: Clocks
    #: Returns the seconds since the job started.
    elapsed: Callable[[], float]
    network: Network
    links: LinkEnds
    send: Callable[[FromTaskManager], None]
    count: SignalCount = field(default_factory=SignalCount)
    #: The random numbers of the throttle. Those of Python's module `random` would depend on the user's functions.
    chance: random.Random = field(default_factory=random.Random)

    @property
    def guard(self) -> MemoryGuard:
        """The most bytes in one queue of a throttle."""
        return MemoryGuard(self.config.network_memory, self.elapsed)

    def signal_driver(self, message: FromTaskManager) -> None:
        """Send a signal to the driver."""
        self.count.note()
        self.send(message)

    def signal_senders(self, signal: StageSignal, peer: int | None) -> None:
        """Send a signal to one TaskManager, or to all from which this one receives."""
        self.count.note()
        self.links.signal(signal, peer)
