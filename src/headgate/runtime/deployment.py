"""The interface between the runtime and a platform, such as Spark or this machine, that runs TaskManagers."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import cloudpickle

from headgate.config import Config
from headgate.errors import PlanError
from headgate.plan.execution import ExecutionPlan
from headgate.protocol.handshake import Credentials
from headgate.runtime import user_modules
from headgate.runtime.pickled import pickled
from headgate.runtime.unpicklable import why_unpicklable
from headgate.runtime.user_modules import UserModule
from headgate.state.checkpoint_metadata import CheckpointMetadata


class Plan:
    """An execution plan, which is pickled to bytes of its own: only `load` unpickles it. So a process that cannot load
    the plan can still unpickle the rest, and report the error to the driver."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan: ExecutionPlan | None = plan
        self._bytes = b""
        self._modules: tuple[UserModule, ...] = ()

    def __getstate__(self) -> tuple[bytes, tuple[UserModule, ...]]:
        """Pickle the plan. Raises PlanError with the name of the operator whose function cannot be sent."""
        assert self._plan is not None
        try:
            return pickled(self._plan), user_modules.of_this_program()
        except Exception as error:
            raise _cannot_travel(self._plan, error) from None

    def __setstate__(self, state: tuple[bytes, tuple[UserModule, ...]]) -> None:
        self._plan = None
        self._bytes, self._modules = state

    def load(self) -> ExecutionPlan:
        """Return the plan. Raises PlanError when something in it cannot be imported here."""
        if self._plan is None:
            user_modules.install(self._modules)
            try:
                self._plan = cloudpickle.loads(self._bytes)
            except Exception as error:
                raise PlanError(
                    f"the pipeline cannot be loaded in the TaskManager's process: {type(error).__name__}: {error}; "
                    "modules that its functions import must be installed there too, or lie in the program's folder "
                    "and be loaded when the job starts"
                ) from error
        return self._plan


def _cannot_travel(plan: ExecutionPlan, error: Exception) -> PlanError:
    for vertex in plan.job.vertices:
        for node in vertex.nodes:
            try:
                pickled(node)
            except Exception as cause:
                found = PlanError(why_unpicklable(node, cause))
                found.at(operator=node.name)
                return found
    return PlanError(f"the pipeline cannot be sent to another process: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerSpec:
    """The values that the driver passes to each TaskManager at its start.

    The driver sends the spec in Spark's task closure or by a pipe, never over a socket of Headgate. The spec contains
    the user's functions and the job's secret.
    """

    job: str
    plan: Plan
    config: Config
    credentials: Credentials
    #: The address at which the JobMaster listens.
    control_address: tuple[str, int]
    #: The number of the next checkpoint, or 0 without checkpoints.
    checkpoint: int = 0
    #: The checkpoint that the job resumes from, or None.
    restore: CheckpointMetadata | None = None
    #: The address of the job's page on the driver, or None.
    page: str | None = None

    def pickled(self) -> bytes:
        """Return the spec as pickled bytes. Raises PlanError for a function that cannot be sent."""
        return pickle.dumps(self)


def cut_off(driver: tuple[str, int], reason: str = "") -> str:
    """Describe the loss of a TaskManager that still ran when its link to the driver was cut.

    `driver` is the driver's address.
    """
    why = f" ({reason})" if reason else ""
    return (
        f"its link to the driver at {driver[0]}:{driver[1]} was cut{why} while it was alive. Without a driver it ends "
        "itself; find out what ends connections between the two machines: a firewall, a proxy, the network"
    )


#: Called when TaskManager `index` has ended; None means all. The reason is empty if it ended without an error.
OnExit = Callable[[int | None, str], None]


class Gang(Protocol):
    """The TaskManagers of one attempt, started together."""

    #: Whether `cancel` ends a TaskManager that does not respond; threads cannot be killed.
    can_kill: bool

    def cancel(self) -> None:
        """Let the platform end all TaskManagers. Returns at once; a second call does nothing."""

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until all TaskManagers have ended. Returns whether all have ended."""

    def why_waiting(self) -> str:
        """Return why TaskManagers have not been started yet, and what the user can do.

        The text is empty if the platform does not know.
        """


class Deployment(Protocol):
    """A platform that runs the TaskManagers of jobs."""

    name: str
    #: Whether functions run in other processes, on copies of the variables that they close over.
    copies_functions: bool

    def warm_up(self) -> None:
        """Start slow parts of the platform, while the program builds its plan. Returns at once."""

    def taskmanagers(self, parallelism: int, config: Config) -> int:
        """Return how many TaskManagers a job of this parallelism gets."""

    def reserve(
        self, taskmanagers: int, config: Config, slots: int, cancelled: threading.Event
    ) -> AbstractContextManager[None]:
        """Reserve room for all TaskManagers of a job at once, and `slots` more slots for Spark jobs of this program.

        No other job gets this room within the context. When the context ends, the launched TaskManagers hold the room.
        On entry the context waits for room, at most `slots_timeout` seconds, or until `cancelled` is set. Raises
        NotEnoughSlots or ConfigError.
        """

    def bind_hosts(self) -> str:
        """Return the address at which TaskManagers reach the driver."""

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        """Start `count` TaskManagers."""
