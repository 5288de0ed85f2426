"""Reserves task slots before the driver submits a job.

Spark itself checks a barrier job only every 15 s and gives up after 10 minutes (SPARK-24819). If slots are busy, Spark
waits without end. So Headgate counts the free slots first: the slots of registered executors, minus the slots that jobs
of this program hold. Headgate waits a short time for executors that start and jobs that end. Then Headgate raises an
error that says how many slots are missing.
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

#: Seconds between two counts of the free slots while slots are missing.
_INTERVAL = 0.05


def count_slots(context: SparkContext) -> int:
    """Return how many tasks can run at once on the executors that are registered now. Raises SessionLost.

    Spark's own check of barrier jobs counts in the same way.
    """
    with jvm_errors(context):
        scheduler = context._jsc.sc()
        profile = scheduler.resourceProfileManager().defaultResourceProfile()
        return int(scheduler.maxNumConcurrentTasks(profile))


def slots_held(context: SparkContext) -> list[int]:
    """Return how many slots of the context each job of this program holds, waits for, or has reserved."""
    return gang_slots(context) + [reserved.count for reserved in _reservations if reserved.context is context]


@contextmanager
def reserve_slots(
    context: SparkContext, needed: int, timeout: float, besides: int = 0, cancelled: threading.Event | None = None
) -> Iterator[None]:
    """Reserve `needed` slots for TaskManagers while the context is open. No other job of this program holds them.

    In addition, `besides` slots stay free for Spark jobs of a sink. Waits up to `timeout` seconds, or until the job
    is `cancelled`; a cancelled job gets no slots. Raises NotEnoughSlots if too few are free by then, ConfigError for
    dynamic allocation.
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
    """The slots of a job that is about to start its TaskManagers."""

    context: SparkContext
    count: int
    besides: int

    def wait(self, timeout: float, cancelled: threading.Event) -> None:
        """Wait until the slots are reserved. Raises NotEnoughSlots."""
        deadline, failing_executors = time.monotonic() + timeout, FailingExecutors(self.context)
        while not cancelled.is_set() and (few := self._take()) is not None:
            remaining = deadline - time.monotonic()
            if _is_fixed(self.context) and few.there < self.count + self.besides:
                raise NotEnoughSlots(few.message())
            if remaining <= 0:
                raise NotEnoughSlots(few.message(f" after waiting {timeout:g} s (slots_timeout)"))
            failing_executors.look()
            cancelled.wait(min(_INTERVAL, remaining))

    def _take(self) -> _TooFew | None:
        """Count the slots and reserve them in one step, and return None. If too few are free, return the count."""
        with _lock:
            there, held = count_slots(self.context), slots_held(self.context)
            if there - sum(held) < self.count + self.besides:
                return _TooFew(self, there, held)
            _reservations.add(self)
            return None


#: Protects `_reservations`, and makes counting and reserving one step. Without this lock, two jobs could count the same
#: free slots. Then each job would wait in Spark for slots that the other job got.
_lock = threading.Lock()
_reservations: set[_Reservation] = set()


def _is_fixed(context: SparkContext) -> bool:
    """Return whether the number of slots is fixed. In `local[n]` this process's JVM is the only executor."""
    return is_local(context) and not str(context.master).startswith("local-cluster")


@dataclass(frozen=True, slots=True)
class _TooFew:
    """A count of slots that was too low."""

    wanted: _Reservation
    #: All slots of the context.
    there: int
    #: How many of these slots each other job of this program holds.
    held: list[int]

    def message(self, waited: str = "") -> str:
        """Return the error: what is missing, which jobs hold slots, and what to do."""
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
    """Raise ConfigError for a session with dynamic allocation."""
    enabled = context.getConf().get("spark.dynamicAllocation.enabled", "false")
    if enabled == "true" and not _is_fixed(context):
        raise ConfigError(
            "Spark's dynamic allocation cannot run barrier jobs (SPARK-24942), not even with minExecutors equal to "
            "maxExecutors; build the session with spark.dynamicAllocation.enabled=false and a fixed "
            "spark.executor.instances"
        )
