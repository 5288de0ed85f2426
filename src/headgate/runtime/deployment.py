"""What the runtime needs of a place to run: start some TaskManagers, say when one is gone, end them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import cloudpickle

from headgate.config import Config
from headgate.plan.execution import ExecutionPlan
from headgate.protocol.handshake import Credentials


@dataclass(frozen=True, slots=True)
class TaskManagerSpec:
    """All that a TaskManager is told when it is started. It travels in Spark's task closure or down a pipe from the
    driver, never over a socket of ours: it holds the user's functions and the job's secret."""

    job: str
    plan: ExecutionPlan
    config: Config
    credentials: Credentials
    #: Where the JobMaster listens.
    control_address: tuple[str, int]

    def pickled(self) -> bytes:
        """Raises what cloudpickle raises for a function that cannot travel."""
        payload: bytes = cloudpickle.dumps(self)
        return payload


#: Called when TaskManager `index` (None: all of them) has ended; the reason is empty when it ended well.
OnExit = Callable[[int | None, str], None]


class Gang(Protocol):
    """TaskManagers that were started together."""

    #: Whether `cancel` ends a TaskManager that does not listen; threads cannot be killed.
    can_kill: bool

    def cancel(self) -> None:
        """Have the platform end them all; returns at once, again is harmless."""

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; returns whether all have ended."""


class Deployment(Protocol):
    """A place to run."""

    name: str

    def taskmanagers(self, parallelism: int, config: Config) -> int:
        """How many TaskManagers a job of this parallelism gets."""

    def check(self, needed: int, config: Config) -> None:
        """Make sure that as many can run at once. Raises NotEnoughSlots or ConfigError."""

    def bind_hosts(self) -> str:
        """The driver's address as TaskManagers reach it."""

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        """Start `count` TaskManagers."""
