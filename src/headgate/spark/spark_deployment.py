"""Running a job on Spark: one barrier job, each of its tasks a TaskManager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.runtime.deployment import OnExit, TaskManagerSpec
from headgate.spark.gang import SparkGang, barrier_tasks
from headgate.spark.listeners import warn_of_listeners
from headgate.spark.session import context_of, is_local, jvm_errors, prepare
from headgate.spark.slots import reserve_slots

_LOOPBACK = "127.0.0.1"


class SparkDeployment:
    """TaskManagers as barrier tasks of the user's session, which is never stopped.

    Raises ConfigError for sessions that cannot run barrier jobs: Spark Connect and stopped ones.
    """

    copies_functions = True

    def __init__(self, spark: SparkSession) -> None:
        prepare(spark)
        self._spark = spark
        self.name = f"Spark {context_of(spark).master}"

    def warm_up(self) -> None:
        """The session is up."""

    def taskmanagers(self, parallelism: int, config: Config) -> int:
        """How many TaskManagers hold `parallelism` subtasks: one for each `slots_per_task` of them."""
        return -(-parallelism // config.slots_per_task)

    def reserve(
        self, taskmanagers: int, config: Config, slots: int, cancelled: threading.Event
    ) -> AbstractContextManager[None]:
        """Slots for as many tasks, and `slots` more, waited for until the job is cancelled. Raises NotEnoughSlots,
        ConfigError."""
        return reserve_slots(context_of(self._spark), taskmanagers, config.slots_timeout, slots, cancelled)

    def bind_hosts(self) -> str:
        """The address of the driver that executors reach."""
        return driver_host(context_of(self._spark))

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> SparkGang:
        """Start `count` TaskManagers; `on_exit(index, reason)` is called once, when the Spark job has ended.

        `index` is the TaskManager whose task ended it, if Spark names one. Raises what pickling the plan raises,
        SessionLost.
        """
        context = context_of(self._spark)
        host = _LOOPBACK if is_local(context) else None
        if not is_local(context):
            warn_of_listeners(str(context.applicationId), driver_host(context), _setting(context))
        payload = spec.pickled()
        with jvm_errors(context_of(self._spark)):
            tasks = barrier_tasks(self._spark, _run_taskmanager, payload, count, host)
            return SparkGang(self._spark, tasks, count, on_exit)


def driver_host(context: SparkContext) -> str:
    return _LOOPBACK if is_local(context) else str(context.getConf().get("spark.driver.host", _LOOPBACK))


def _setting(context: SparkContext) -> Callable[[str, str], str]:
    conf = context.getConf()
    return lambda name, default: str(conf.get(name, default))


def _run_taskmanager(payload: bytes, index: int, host: str) -> None:
    import pyarrow as pa

    from headgate.runtime.taskmanager import taskmanager_process

    pa.array([0])  # pyarrow then imports pandas: a third of a second that no row should wait for
    taskmanager_process.run(payload, index, host)
