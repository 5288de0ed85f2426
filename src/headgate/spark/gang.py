"""One barrier Spark job whose tasks are TaskManagers.

All tasks start together, each in a Python worker of its own; if one is lost, Spark ends the rest. Nothing is retried
here: a barrier result stage never is, and what to do about a loss is for the runtime to decide.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import InheritableThread, SparkContext
from pyspark.sql import DataFrame, SparkSession

from headgate.runtime.cores import own_cores
from headgate.runtime.deployment import OnExit
from headgate.spark.failures import explain

#: What a task does: `(payload, index, host)`, host being the address to bind for the other TaskManagers.
TaskMain = Callable[[bytes, int, str], None]

#: How often the tasks still running are counted once the job is over, seconds.
_INTERVAL = 0.05


class SparkGang:
    """The running job. It starts when it is made; `on_exit` is called from its own thread."""

    can_kill = True

    def __init__(self, spark: SparkSession, tasks: DataFrame, on_exit: OnExit) -> None:
        self._context: SparkContext = spark.sparkContext
        self._group = f"headgate-{uuid.uuid4().hex[:12]}"
        self._tasks = tasks
        self._on_exit = on_exit
        self._thread = InheritableThread(target=self._run, name=self._group, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Tell Spark to end the job, also one that it has not seen yet; returns at once."""
        if self._thread.is_alive() and self._context._jsc is not None:
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

    def join(self, timeout: float) -> bool:
        """Wait until the job and all its tasks have ended, `timeout` seconds at the most; tell whether they have."""
        deadline = time.monotonic() + timeout
        self._thread.join(timeout)
        while not self._thread.is_alive():
            if self._running_tasks() == 0:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(_INTERVAL, left))
        return False

    def _run(self) -> None:
        # Both settings are local to the JVM thread that belongs to this one.
        self._context.setJobGroup(self._group, "Headgate TaskManagers", interruptOnCancel=True)
        try:
            self._tasks.collect()
        except Exception as error:
            self._on_exit(*explain(str(error)))
        else:
            self._on_exit(None, "")

    def _running_tasks(self) -> int:
        """Tasks of the job that Spark has not seen the end of: after a failure siblings are killed a little later."""
        if self._context._jsc is None:
            return 0
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


def barrier_tasks(spark: SparkSession, main: TaskMain, payload: bytes, count: int, host: str | None) -> DataFrame:
    """A DataFrame whose collection runs `main` in `count` tasks at once.

    `payload` travels in the task closure (as a broadcast when it is large). `host` None = the executor's address.
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

    return spark.range(0, count, 1, count).mapInArrow(run, "id long", barrier=True)
