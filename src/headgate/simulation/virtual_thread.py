"""A thread of a simulation: it runs turns, and each turn occupies it for the time that the turn spends."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from headgate.simulation.world import World


class VirtualThread(ABC):
    """A thread that the world runs turn by turn. A turn that is due during another turn begins when that turn ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.number = world.new_number()
        #: When the last turn has ended, or will end.
        self.busy_until = 0.0
        self._next = math.inf
        self._runs = False

    @property
    def is_waiting(self) -> bool:
        """Whether the thread has no turn ahead, until another thread wakes it."""
        return self._next == math.inf

    def wake(self) -> None:
        """Run the next turn as soon as the thread is free."""
        self.wake_at(self.world.clock())

    def wake_at(self, time: float) -> None:
        """Run the next turn at `time`, or when the thread is free after that. A turn that is due earlier stays."""
        if time < self.busy_until:
            time = self.busy_until
        if time < self._next:
            self._next = time
            if not self._runs:
                self.world.at(time, self._run)

    def _run(self) -> None:
        world = self.world
        if world.now != self._next:  # an earlier wake-up has replaced this one
            return
        self._next = math.inf
        self._runs = True
        again = self.turn()
        self._runs = False
        self.busy_until = end = world.clock()
        world.log.add(world.now, self.number, end)
        again, self._next = min(again, self._next), math.inf
        if again != math.inf:
            self.wake_at(again)

    @abstractmethod
    def turn(self) -> float:
        """Do the next piece of work. Returns the time of the next turn, or infinity to wait for a wake-up.

        A wake-up may cause an earlier turn.
        """
