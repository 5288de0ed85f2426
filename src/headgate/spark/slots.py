"""Reserving task slots before a job is submitted.

Spark itself checks a barrier job only every 15 s and gives up after 10 minutes (SPARK-24819), and for slots that are
busy it waits without an end; we look first, at the executors that have registered and at what jobs of this program
hold of them, wait a little for those on their way or about to end, and say what is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import SparkContext

from headgate.errors import ConfigError, NotEnoughSlots
from headgate.spark.failing_executors import FailingExecutors
from headgate.spark.gang import gang_slots
from headgate.spark.session import is_local, jvm_errors

#: How often the free slots are counted while some are missing, seconds.
_INTERVAL = 0.05


def count_slots(context: SparkContext) -> int:
    """Tasks that can run at once on the executors registered now; the same count as in Spark's own barrier check.
    Raises SessionLost."""
    with jvm_errors(context):
        scheduler = context._jsc.sc()
        profile = scheduler.resourceProfileManager().defaultResourceProfile()
        return int(scheduler.maxNumConcurrentTasks(profile))


def slots_held(context: SparkContext) -> list[int]:
    """How many slots each job of this program holds there, waits for, or has reserved."""
    return gang_slots(context) + [each.count for each in _reservations if each.context is context]


@contextmanager
def reserve_slots(
    context: SparkContext, needed: int, timeout: float, besides: int = 0, cancelled: threading.Event | None = None
) -> Iterator[None]:
    """Reserve slots that no job of this program holds for `needed` TaskManagers, within the context; `besides` as many
    are free then for Spark jobs that a sink runs meanwhile. Waits up to `timeout` seconds, or until the job is
    `cancelled`, which then has none.

    Raises NotEnoughSlots when they are still too few, ConfigError for dynamic allocation.
    """
    _refuse_dynamic_allocation(context)
    reservation = _Reservation(context, needed, besides)
    reservation.wait(timeout, cancelled or threading.Event())
    try:
        yield
    finally:
        with _lock:
            _reservations.discard(reservation)


@dataclass(eq=False)
class _Reservation:
    """Slots of a job that is about to start its TaskManagers there."""

    context: SparkContext
    count: int
    besides: int

    def wait(self, timeout: float, cancelled: threading.Event) -> None:
        deadline, failing_executors = time.monotonic() + timeout, FailingExecutors(self.context)
        while not cancelled.is_set() and (few := self._take()) is not None:
            left = deadline - time.monotonic()
            if _is_fixed(self.context) and few.there < self.count + self.besides:
                raise NotEnoughSlots(few.message())
            if left <= 0:
                raise NotEnoughSlots(few.message(f" after waiting {timeout:g} s (slots_timeout)"))
            failing_executors.look()
            cancelled.wait(min(_INTERVAL, left))

    def _take(self) -> _TooFew | None:
        """Count and reserve in one step, or tell what was counted."""
        with _lock:
            there, held = count_slots(self.context), slots_held(self.context)
            if there - sum(held) < self.count + self.besides:
                return _TooFew(self, there, held)
            _reservations.add(self)
            return None


#: Without it, two jobs could count the same free slots, and each would wait for those that the other got.
_lock = threading.Lock()
_reservations: set[_Reservation] = set()


def _is_fixed(context: SparkContext) -> bool:
    """In `local[n]` the one executor is this process's JVM: nothing more can come."""
    return is_local(context) and not str(context.master).startswith("local-cluster")


@dataclass(frozen=True, slots=True)
class _TooFew:
    """What was counted: `held` has how many slots each other job of this program holds of those that are `there`."""

    wanted: _Reservation
    there: int
    held: list[int]

    def message(self, waited: str = "") -> str:
        context, needed, besides, held = self.wanted.context, self.wanted.count, self.wanted.besides, self.held
        every, free = needed + besides, self.there - sum(held) - besides
        why = (
            f" ({needed} for its TaskManagers and {besides} for the Spark jobs of foreach_dataframe)" if besides else ""
        )
        others = f", of which other jobs of this program hold {sum(held)} ({len(held)} running)" if held else ""
        remedies = [
            *(["run fewer jobs at a time"] if held else []),
            *([f"set parallelism to {max(free, 1)} or less"] if free > 0 or not held else []),
            "raise slots_per_task",
            f"or give the session more cores (for example master local[{every + sum(held)}], more executors, a higher "
            "spark.executor.cores or lower spark.task.cpus)",
        ]
        has = f"{context.master} has {self.there}{others}{waited}"
        if not self.there:
            remedies.append(
                "or see in the logs of the workers why no executor registers: it has to reach the driver at "
                f"{context.getConf().get('spark.driver.host')} (spark.driver.host, SPARK_LOCAL_IP)"
            )
        return f"the job needs {every} Spark task slots at the same time{why}, but {has}; {', '.join(remedies)}"


def _refuse_dynamic_allocation(context: SparkContext) -> None:
    enabled = context.getConf().get("spark.dynamicAllocation.enabled", "false")
    if enabled == "true" and not _is_fixed(context):
        raise ConfigError(
            "Spark's dynamic allocation cannot run barrier jobs (SPARK-24942), not even with minExecutors equal to "
            "maxExecutors; build the session with spark.dynamicAllocation.enabled=false and a fixed "
            "spark.executor.instances"
        )
