"""Connects the JobMaster to the driver's part of the job's throttle."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import FromDriver, ReportCheckpointMetrics, TaskFinished, ToThrottle
from headgate.throttle.mechanism import Mechanism


class JobThrottle:
    """The throttle of one attempt, for the JobMaster. It passes messages to the driver's part, and sends that part's
    orders.

    If the throttle has no driver's part, the methods do nothing. `send(order, to)` sends an order to the TaskManagers
    with the numbers `to`, or to all if `to` is None.
    """

    def __init__(
        self,
        mechanism: Mechanism | None,
        plan: ExecutionPlan,
        send: Callable[[FromDriver, Collection[int] | None], None],
    ) -> None:
        self._send = send
        self._master = None
        if mechanism is not None:
            from headgate.runtime.master.throttle_master import throttle_master_of  # few jobs have a throttle

            self._master = throttle_master_of(mechanism, plan)

    @property
    def deadline(self) -> float | None:
        """The time when the JobMaster must call `on_time`, in seconds of the monotonic clock; None means never."""
        if self._master is None or self._master.deadline == math.inf:
            return None
        return self._master.deadline

    @property
    def batches(self) -> list[dict[str, float]]:
        """The last batches of a throttle that makes batches, as `JobResult.metrics` shows them."""
        return [] if self._master is None else [dict(batch) for batch in self._master.batches]

    def start(self) -> None:
        """Begin. The JobMaster calls this when all tasks begin."""
        if self._master is not None:
            self._master.start(time.monotonic())

    def on_time(self, now: float) -> None:
        if self._master is not None:
            for order, to in self._master.on_time(now):
                self._send(order, to)

    def on_message(self, sender: int, message: ToThrottle | ReportCheckpointMetrics | TaskFinished) -> None:
        """Pass a message of TaskManager `sender` to the driver's part."""
        if self._master is not None:
            for order, to in self._master.on_message(time.monotonic(), sender, message):
                self._send(order, to)
