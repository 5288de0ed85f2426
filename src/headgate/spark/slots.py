"""Counting free task slots before a job is submitted.

Spark itself checks a barrier job only every 15 s and gives up after 10 minutes (SPARK-24819), and for slots that are
busy it waits without an end; we look first, at the executors that have registered and at what jobs of this program
hold of them, wait a little for those on their way or about to end, and say what is missing.
"""

from __future__ import annotations

import threading
import time

from pyspark import SparkContext

from headgate.errors import ConfigError, NotEnoughSlots
from headgate.spark.gang import slots_held
from headgate.spark.session import is_local

#: How often the free slots are counted while some are missing, seconds.
_INTERVAL = 0.05


def count_slots(context: SparkContext) -> int:
    """Tasks that can run at once on the executors registered now; the same count as in Spark's own barrier check."""
    scheduler = context._jsc.sc()
    profile = scheduler.resourceProfileManager().defaultResourceProfile()
    return int(scheduler.maxNumConcurrentTasks(profile))


def wait_for_slots(
    context: SparkContext, needed: int, timeout: float, besides: int = 0, cancelled: threading.Event | None = None
) -> None:
    """Return when there are slots that no job of this program holds for `needed` TaskManagers, and `besides` more for
    Spark jobs that a sink runs meanwhile, or the job is `cancelled`, after `timeout` seconds at the latest.

    Raises NotEnoughSlots when they are still too few, ConfigError for dynamic allocation.
    """
    _refuse_dynamic_allocation(context)
    cancelled = cancelled or threading.Event()
    deadline = time.monotonic() + timeout
    while (there := count_slots(context)) - sum(held := slots_held(context)) < needed + besides:
        left = deadline - time.monotonic()
        if _is_fixed(context) and there < needed + besides:
            raise NotEnoughSlots(_missing(context, needed, besides, there, held))
        if left <= 0:
            waited = f" after waiting {timeout:g} s (slots_timeout)"
            raise NotEnoughSlots(_missing(context, needed, besides, there, held, waited))
        if cancelled.wait(min(_INTERVAL, left)):
            return


def _is_fixed(context: SparkContext) -> bool:
    """In `local[n]` the one executor is this process's JVM: nothing more can come."""
    return is_local(context) and not str(context.master).startswith("local-cluster")


def _missing(context: SparkContext, needed: int, besides: int, there: int, held: list[int], waited: str = "") -> str:
    """`held` has how many slots each other job of this program holds of those that are `there`."""
    every, free = needed + besides, there - sum(held) - besides
    why = f" ({needed} for its TaskManagers and {besides} for the Spark jobs of foreach_dataframe)" if besides else ""
    others = f", of which other jobs of this program hold {sum(held)} ({len(held)} running)" if held else ""
    remedies = [
        *(["run fewer jobs at a time"] if held else []),
        *([f"set parallelism to {max(free, 1)} or less"] if free > 0 or not held else []),
        "raise slots_per_task",
        f"or give the session more cores (for example master local[{every + sum(held)}], more executors, a higher "
        "spark.executor.cores or lower spark.task.cpus)",
    ]
    has = f"{context.master} has {there}{others}{waited}"
    return f"the job needs {every} Spark task slots at the same time{why}, but {has}; {', '.join(remedies)}"


def _refuse_dynamic_allocation(context: SparkContext) -> None:
    enabled = context.getConf().get("spark.dynamicAllocation.enabled", "false")
    if enabled == "true" and not _is_fixed(context):
        raise ConfigError(
            "Spark's dynamic allocation cannot run barrier jobs (SPARK-24942); "
            "build the session with spark.dynamicAllocation.enabled=false and a fixed spark.executor.instances"
        )
