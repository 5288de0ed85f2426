"""The deployment on Spark: each attempt of a job is a Spark barrier job, and each task is a TaskManager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.runtime.deployment import OnExit, TaskManagerSpec
from headgate.spark.gang import SparkGang, barrier_tasks
from headgate.spark.session import context_of, is_local, jvm_errors, prepare
from headgate.spark.slots import reserve_slots
from headgate.spark.unencrypted_spark import warn_if_unencrypted
from headgate.web.tunnel import tunnel

_LOOPBACK = "127.0.0.1"


class SparkDeployment:
    """A deployment that runs TaskManagers as barrier tasks in the user's Spark session. It never stops the session.

    Raises ConfigError for Spark Connect, whose sessions cannot run barrier jobs, and SessionLost for a stopped session.

    ```python
    env = hg.StreamEnvironment(deployment=hg.SparkDeployment(spark), parallelism=4)
    ```

    This is the same as `hg.StreamEnvironment(spark, parallelism=4)`.
    """

    copies_functions = True

    def __init__(self, spark: SparkSession) -> None:
        prepare(spark)
        self._spark = spark
        self.name = f"Spark {context_of(spark).master}"

    def warm_up(self) -> None:
        """Do nothing, because the session runs already."""

    def taskmanagers(self, parallelism: int, config: Config) -> int:
        """Return how many TaskManagers a job needs: `parallelism` / `slots_per_task`, rounded up."""
        return -(-parallelism // config.slots_per_task)

    def reserve(
        self, taskmanagers: int, config: Config, slots: int, cancelled: threading.Event
    ) -> AbstractContextManager[None]:
        """Reserve a Spark task slot for each TaskManager while the context is open. `slots` more slots stay free.

        Waits for slots at most `slots_timeout`, or until the job is cancelled. Raises NotEnoughSlots, ConfigError.
        """
        return reserve_slots(context_of(self._spark), taskmanagers, config.slots_timeout, slots, cancelled)

    def bind_hosts(self) -> str:
        """Return the address at which executors reach the driver."""
        return driver_host(context_of(self._spark))

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> SparkGang:
        """Start `count` TaskManagers. The gang calls `on_exit(index, reason)` once, when the Spark job has ended.

        `index` is the TaskManager whose task ended the job; None if Spark names no task. Raises SessionLost, and errors
        of pickling the plan.
        """
        context = context_of(self._spark)
        host = _LOOPBACK if is_local(context) else None
        if not is_local(context):
            warn_if_unencrypted(str(context.applicationId), driver_host(context), _setting(context))
        payload = spec.pickled()
        with jvm_errors(context_of(self._spark)):
            tasks = barrier_tasks(self._spark, _run_taskmanager, payload, count, host)
            return SparkGang(self._spark, tasks, count, on_exit, _description(spec, context))


def _description(spec: TaskManagerSpec, context: SparkContext) -> str:
    """Return the description that Spark's page shows for the job: its name, and the address of its Headgate page.

    The address is plain text, because Spark's page allows only links to itself. If executors run on other machines,
    people may open the page from other machines too.
    """
    where = "" if spec.page is None else f", its page: {spec.page}"
    far = None if spec.page is None or is_local(context) else tunnel(spec.page, driver_host(context))
    return f"Headgate job {spec.job!r}{where}" + (f" (from another machine, first: {far})" if far else "")


def driver_host(context: SparkContext) -> str:
    """Return the address at which executors reach the driver."""
    return _LOOPBACK if is_local(context) else str(context.getConf().get("spark.driver.host", _LOOPBACK))


def _setting(context: SparkContext) -> Callable[[str, str], str]:
    """Return a function that looks up a setting of the application, with a default."""
    conf = context.getConf()
    return lambda name, default: str(conf.get(name, default))


def _run_taskmanager(payload: bytes, index: int, host: str) -> None:
    """Run a TaskManager in a Spark task."""
    import pyarrow as pa

    from headgate.runtime.taskmanager import taskmanager_process

    pa.array([0])  # pyarrow imports pandas here, which takes a third of a second; otherwise the first rows would wait
    taskmanager_process.run(payload, index, host)
