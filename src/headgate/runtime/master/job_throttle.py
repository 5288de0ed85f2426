"""The throttle of one attempt, as the JobMaster sees it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import FromDriver, ReportCheckpointMetrics, TaskFinished, ToThrottle
from headgate.throttle.mechanism import Mechanism


class JobThrottle:
    """Passes messages to the driver's part of a throttle, if it has one, and sends its orders.

    `send` sends an order to the TaskManagers with these numbers; None: to all.
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
        """When `on_time` must be called, in seconds of the monotonic clock, or None."""
        if self._master is None or self._master.deadline == math.inf:
            return None
        return self._master.deadline

    def start(self) -> None:
        """Begin, because all tasks begin."""
        if self._master is not None:
            self._master.start(time.monotonic())

    def on_time(self, now: float) -> None:
        if self._master is not None:
            for order, to in self._master.on_time(now):
                self._send(order, to)

    def on_message(self, sender: int, message: ToThrottle | ReportCheckpointMetrics | TaskFinished) -> None:
        """Pass on a message of TaskManager `sender`."""
        if self._master is not None:
            for order, to in self._master.on_message(time.monotonic(), sender, message):
                self._send(order, to)
