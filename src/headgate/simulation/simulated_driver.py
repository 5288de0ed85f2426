"""The driver of a simulated job: it has the driver's part of a throttle. Control links have the latency of the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import get_args

from headgate.runtime.control_messages import FromTaskManager, ThrottleOrder
from headgate.runtime.master.throttle_master import Heard, Order, ThrottleMaster
from headgate.simulation.costs import Line
from headgate.simulation.world import World


class SimulatedDriver:
    """Passes reports to `master`, and the master's orders to the TaskManagers. Without a master it does nothing.

    `orders` has a function for each TaskManager, which takes an order.
    """

    def __init__(
        self,
        world: World,
        line: Line,
        master: ThrottleMaster | None,
        orders: Sequence[Callable[[ThrottleOrder], None]],
    ) -> None:
        self._world = world
        self._latency = line.latency
        self._master = master
        self._orders = orders
        self._due = math.inf

    def start(self) -> None:
        """Start the master. Call this when the tasks begin."""
        if self._master is not None:
            self._master.start(self._world.clock())
            self._plan()

    def on_report(self, sender: int, message: FromTaskManager) -> None:
        """Take a message that TaskManager `sender` sends now. It arrives after the latency of the line."""
        if isinstance(message, get_args(Heard)):
            self._later(partial(self._handle, sender, message))

    def _handle(self, sender: int, message: Heard) -> None:
        if self._master is not None:
            self._send(self._master.on_message(self._world.clock(), sender, message))
            self._plan()

    def _plan(self) -> None:
        """Schedule the call of the master's `on_time` at its deadline."""
        at = self._master.deadline if self._master is not None else math.inf
        if at < self._due:
            self._due = at
            self._world.check_at(at, self._on_time)

    def _on_time(self) -> None:
        self._due = math.inf
        if self._master is not None:
            self._send(self._master.on_time(self._world.clock()))
            self._plan()

    def _send(self, orders: Sequence[Order]) -> None:
        for order, to in orders:
            for number in range(len(self._orders)) if to is None else to:
                self._later(partial(self._orders[number], order))

    def _later(self, event: Callable[[], None]) -> None:
        self._world.at(self._world.clock() + self._latency, event)
