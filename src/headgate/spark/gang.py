"""A barrier job of Spark whose tasks are TaskManagers.

Spark starts all tasks together, each in its own Python worker. If one task is lost, Spark ends the others. Spark never
retries a barrier result stage, and this module does not retry it either: the runtime decides what to do.
"""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark import InheritableThread, SparkContext, SparkStageInfo
from pyspark.sql import DataFrame, SparkSession

from headgate.runtime.deployment import OnExit
from headgate.runtime.launch.cores import own_cores
from headgate.spark.failures import CANCELLED, explain
from headgate.spark.quiet import Terminal
from headgate.spark.session import JVM_ENDED, NO_JVM, is_stopped, jvm_answers, safe_path

#: The function of a task, called with `(payload, index, host)`. Other TaskManagers reach this one at `host`.
TaskMain = Callable[[bytes, int, str], None]

#: Seconds between two questions to Spark: for the job's stages at its start, for their tasks at its end.
_INTERVAL = 0.05

#: The gangs of this program.
_gangs: weakref.WeakSet[SparkGang] = weakref.WeakSet()


def gang_slots(context: SparkContext) -> list[int]:
    """Return how many task slots of the context each gang of this program holds or waits for."""
    return [gang.count for gang in list(_gangs) if gang.is_in(context)]


class SparkGang:
    """The TaskManagers of one attempt, as one Spark barrier job. The constructor starts the job. A thread of the gang
    calls `on_exit` when the Spark job has ended. Spark's own page shows `description` with the job.

    The gang has ended when all its tasks have ended. After a failure Spark kills the other tasks a little later.
    """

    can_kill = True

    def __init__(
        self, spark: SparkSession, tasks: DataFrame, count: int, on_exit: OnExit, description: str = "TaskManagers"
    ) -> None:
        self.count = count
        self._description = description
        self._context: SparkContext = spark.sparkContext
        self._group = f"headgate-{uuid.uuid4().hex[:12]}"
        self._tasks = tasks
        self._on_exit = on_exit
        self._cancelled = threading.Event()
        self._job = InheritableThread(target=self._run, name=f"{self._group}-job", daemon=True)
        self._job.start()
        self._watch = InheritableThread(target=self._watch_tasks, name=self._group, daemon=True)
        self._watch.start()
        _gangs.add(self)

    def is_in(self, context: SparkContext) -> bool:
        """Return whether the gang's Spark job runs in the context.

        An ended job does not count: its remaining tasks hold slots for some seconds at most.
        """
        return self._context is context and self._job.is_alive()

    def cancel(self) -> None:
        """Cancel the Spark job, even if Spark has not seen the job yet. Returns at once."""
        self._cancelled.set()
        self._cancel_job()

    def join(self, timeout: float) -> bool:
        """Wait until the job and all its tasks have ended, at most `timeout` seconds. Return whether all have ended."""
        self._watch.join(timeout)
        return not self._watch.is_alive()

    def why_waiting(self) -> str:
        """Return why Spark has not started the tasks; "" if it has. Spark starts all tasks at once when all have
        slots."""
        if any(stage.numActiveTasks for stage in self._stages()):
            return ""
        return (
            "Spark has not started their tasks, because other Spark jobs hold the task slots, or executors are lost: "
            "wait for the other jobs, or give the session more cores"
        )

    def _run(self) -> None:
        """Run the Spark job, on a thread of its own, and report its end."""
        try:
            # Spark sets the group and the interruption for one JVM thread: the one that belongs to this thread.
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            if self._cancelled.is_set():
                self._on_exit(None, CANCELLED)
                return
            self._tasks.collect()
        except Exception as error:
            self._on_exit(*self._why_ended(str(error)))
        else:
            self._on_exit(None, "")

    def _why_ended(self, error: str) -> tuple[int | None, str]:
        """Return the index of the task that ended the job (None if unknown), and the reason."""
        if not jvm_answers(self._context):
            return None, JVM_ENDED
        if is_stopped(self._context):
            return None, "the session was stopped while the job ran"
        return explain(error)

    def _cancel_job(self) -> None:
        with suppress(AttributeError, *NO_JVM):  # a session that was stopped has ended the job already
            self._context._jsc.sc().cancelJobGroup(self._group)

    def _watch_tasks(self) -> None:
        """Wait for the end of the job and of its tasks. Meanwhile keep Spark's messages about them off the terminal."""
        terminal = Terminal(self._context)
        while self._job.is_alive() and not self._stages():
            self._job.join(_INTERVAL)
        if self._cancelled.is_set():  # Spark ignores a cancellation that comes before the job
            self._cancel_job()
        with terminal.without([stage.stageId for stage in self._stages()]):
            self._job.join()
            while any(stage.numActiveTasks for stage in self._stages()):
                time.sleep(_INTERVAL)

    def _stages(self) -> list[SparkStageInfo]:
        """Return the job's stages that Spark knows; none if the session is stopped or its JVM is gone."""
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        except (AttributeError, *NO_JVM):
            return []
        return [stage for stage in stages if stage is not None]


def barrier_tasks(spark: SparkSession, main: TaskMain, payload: bytes, count: int, host: str | None) -> DataFrame:
    """Return a DataFrame whose `collect` runs `main` in `count` tasks at once.

    Spark sends `payload` in the task closure, or as a broadcast if it is large. Without `host`, tasks use the address
    of their executor.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import BarrierTaskContext

        for _ in batches:
            pass
        task = BarrierTaskContext.get()
        index = task.partitionId()
        hosts = [info.address.rpartition(":")[0] for info in task.getTaskInfos()]
        with own_cores(hosts[:index].count(hosts[index]), hosts.count(hosts[index])):
            main(payload, index, host or hosts[index])
        yield pa.RecordBatch.from_pydict({"id": pa.array([index], pa.int64())})

    with safe_path(spark.sparkContext):
        return spark.range(0, count, 1, count).mapInArrow(run, "id long", barrier=True)
