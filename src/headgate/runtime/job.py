"""What the user holds of a job: its handle, and its result."""

from __future__ import annotations

import atexit
import os
import weakref
from dataclasses import dataclass, field
from typing import Any

from headgate.config import Config
from headgate.errors import CheckpointError, HeadgateError, InsufficientBuffers
from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import StreamGraph
from headgate.plan.job_graph import build_job_graph
from headgate.plan.network_memory import check_network_memory
from headgate.runtime.checkpoint_coordinator import CheckpointRecord
from headgate.runtime.deployment import Deployment
from headgate.runtime.jobmaster import JobMaster, JobState
from headgate.runtime.where import current_operator

#: How long the end of a program waits for the end of its jobs.
_EXIT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """A finished job. `rows_in` counts rows read by sources, `rows_out` rows taken by sinks; `duration_s` runs from the
    start of the tasks to the commit of the sinks, through all `restarts`."""

    name: str
    rows_in: int
    rows_out: int
    late_rows: int
    duration_s: float
    restarts: int
    metrics: dict[str, Any] = field(repr=False)


class JobHandle:
    """A running job. All methods may be called from any thread."""

    def __init__(self, name: str, master: JobMaster) -> None:
        self._name = name
        self._master = master

    def status(self) -> str:
        """CREATED, RUNNING, RESTARTING, FINISHED, FAILED or CANCELLED."""
        return self._master.state.value

    def wait(self, timeout: float | None = None) -> JobResult:
        """The result, once the job has finished and nothing of it is left running. Raises the job's error,
        JobCancelled, or TimeoutError after `timeout` seconds."""
        if not self._master.ended.wait(timeout):
            raise TimeoutError(f"job {self._name!r} is {self.status()} after {timeout} s")
        if self._master.error is not None:
            raise self._master.error.with_traceback(None)  # not those of earlier calls
        metrics = self.metrics()
        return JobResult(
            self._name,
            metrics["rows_in"],
            metrics["rows_out"],
            metrics["late_rows"],
            self._master.duration_s,
            self._master.restarts,
            metrics,
        )

    def cancel(self) -> None:
        """End the job; returns when all its tasks have ended. Again, or after the end, it does nothing. Within a
        function of a job, which cannot wait for its own end, it returns at once."""
        self._master.cancel()
        if current_operator() is None:
            self._master.ended.wait()

    def savepoint(self, uri: str | os.PathLike[str], timeout: float | None = None) -> str:
        """Take a savepoint: a checkpoint that is kept until you remove it, in a new folder below `uri`, a path or URI.
        Returns its URI, once it is complete and what sinks wrote before it is committed; `execute(resume=)` takes it.

        The job goes on, and need not take checkpoints of its own. It begins when a checkpoint under way is over, or
        when a job that is starting or restarting runs again. Raises CheckpointError when nothing comes of it, which
        does the job no harm: because it cannot be written, or the job fails meanwhile or has ended. Raises
        TimeoutError after `timeout` seconds; it may still become complete."""
        if current_operator() is not None:
            raise CheckpointError("a function of a job cannot wait for a savepoint; ask for it in the program")
        try:
            return self._master.savepoint(uri).result(timeout)
        except TimeoutError:
            raise TimeoutError(f"the savepoint of job {self._name!r} is not complete after {timeout} s") from None
        except HeadgateError as error:
            raise error.with_traceback(None) from None

    def metrics(self) -> dict[str, Any]:
        """Counters of the job as last reported (four times a second while it runs); see `docs/metrics.md`."""
        return self._master.metrics()

    @property
    def restarts(self) -> int:
        """How often it has started again so far."""
        return self._master.restarts

    def checkpoints(self) -> list[CheckpointRecord]:
        """The last ten checkpoints and savepoints, of all attempts, in the order in which they ended."""
        return self._master.checkpoints()

    def __repr__(self) -> str:
        return f"JobHandle({self._name!r}, {self.status()})"


def submit(
    graph: StreamGraph, name: str, config: Config, deployment: Deployment, resume: str | None = None
) -> JobHandle:
    """Check, prepare sources and sinks, and start; `resume` is the checkpoint to go on from: its path or URI, or
    "latest". Raises what is wrong before anything runs."""
    job_graph = build_job_graph(graph)
    count = deployment.taskmanagers(job_graph.parallelism, config)
    plan = ExecutionPlan(job_graph, count)
    try:
        check_network_memory(plan, config)
    except InsufficientBuffers as error:
        raise error.at(job=name) from None
    run = f"{os.getpid():x}-{os.urandom(4).hex()}"
    master = JobMaster(name, run, plan, config, deployment, resume)
    try:
        master.start()
    except HeadgateError as error:
        raise error.at(job=name) from None
    _unfinished.add(master)
    return JobHandle(name, master)


#: Jobs that nobody may be waiting for.
_unfinished: weakref.WeakSet[JobMaster] = weakref.WeakSet()


@atexit.register
def _cancel_unfinished() -> None:
    """A program that ends takes its jobs with it, and they take back their hidden files."""
    masters = [master for master in _unfinished if not master.ended.is_set()]
    for master in masters:
        master.cancel()
    for master in masters:
        master.ended.wait(_EXIT_TIMEOUT)


__all__ = ["JobHandle", "JobResult", "JobState", "submit"]
