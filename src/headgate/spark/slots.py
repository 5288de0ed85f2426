"""Counting task slots before a job is submitted.

Spark itself checks a barrier job only every 15 s and gives up after 10 minutes (SPARK-24819); we look first, at the
executors that have registered, wait a little for those on their way, and say at once what is missing.
"""

from __future__ import annotations

import threading
import time

from pyspark import SparkContext

from headgate.errors import ConfigError, NotEnoughSlots
from headgate.spark.session import is_local

#: How often the registered executors are counted while some are missing, seconds.
_INTERVAL = 0.05


def count_slots(context: SparkContext) -> int:
    """Tasks that can run at once on the executors registered now; the same count as in Spark's own barrier check."""
    scheduler = context._jsc.sc()
    profile = scheduler.resourceProfileManager().defaultResourceProfile()
    return int(scheduler.maxNumConcurrentTasks(profile))


def wait_for_slots(
    context: SparkContext, needed: int, timeout: float, besides: int = 0, cancelled: threading.Event | None = None
) -> None:
    """Return when slots for `needed` TaskManagers, and `besides` more for Spark jobs that a sink runs meanwhile, are
    registered, or the job is `cancelled`, after `timeout` seconds at the latest.

    Raises NotEnoughSlots when they are still too few, ConfigError for dynamic allocation.
    """
    _refuse_dynamic_allocation(context)
    cancelled = cancelled or threading.Event()
    deadline = time.monotonic() + timeout
    while (there := count_slots(context)) < needed + besides:
        left = deadline - time.monotonic()
        if left <= 0 or _is_fixed(context):
            raise NotEnoughSlots(_missing(context, needed, besides, there, timeout))
        if cancelled.wait(min(_INTERVAL, left)):
            return


def _is_fixed(context: SparkContext) -> bool:
    """In `local[n]` the one executor is this process's JVM: nothing more can come."""
    return is_local(context) and not str(context.master).startswith("local-cluster")


def _missing(context: SparkContext, needed: int, besides: int, there: int, timeout: float) -> str:
    waited = "" if _is_fixed(context) else f" after waiting {timeout:g} s (slots_timeout)"
    every = needed + besides
    why = f" ({needed} for its TaskManagers and {besides} for the Spark jobs of foreach_dataframe)" if besides else ""
    return (
        f"the job needs {every} Spark task slots at the same time{why}, but {context.master} has {there}{waited}; "
        f"set parallelism to {max(there - besides, 1)} or less, raise slots_per_task, or give the session more cores "
        f"(for example master local[{every}], more executors, a higher spark.executor.cores or lower spark.task.cpus)"
    )


def _refuse_dynamic_allocation(context: SparkContext) -> None:
    enabled = context.getConf().get("spark.dynamicAllocation.enabled", "false")
    if enabled == "true" and not _is_fixed(context):
        raise ConfigError(
            "Spark's dynamic allocation cannot run barrier jobs (SPARK-24942); "
            "build the session with spark.dynamicAllocation.enabled=false and a fixed spark.executor.instances"
        )
