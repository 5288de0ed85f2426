"""What a throttle uses of its TaskManager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.config import Config
from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import FromTaskManager
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.taskmanager.link_ends import LinkEnds
from headgate.transport.network_thread import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlePlace:
    """TaskManager `index`: what a throttle uses of it. `send` sends a message to the driver."""

    #: The name of the job and the number of its attempt.
    job: str
    config: Config
    index: int
    plan: ExecutionPlan
    clocks: Clocks
    network: Network
    links: LinkEnds
    send: Callable[[FromTaskManager], None]
