"""The virtual time of a simulation: events in the order of their times, and the time that an event itself takes."""

from __future__ import annotations

import hashlib
import heapq
import math
import random
import struct
from collections.abc import Callable
from typing import Final

from headgate.runtime.task.clocks import Clocks

#: What the wall clock shows at the start of every simulation, in seconds since the epoch.
EPOCH: Final = 1_000_000_000.0
#: The log is hashed in pieces of this many bytes.
_PIECE: Final = 1 << 16


class EventLog:
    """The SHA-256 of all events of a simulation. Two runs with the same hash did the same at the same times.

    >>> first, second = EventLog(), EventLog()
    >>> first.add(0.5, 1, 2.0)
    >>> second.add(0.5, 1, 2.0)
    >>> first.sha256 == second.sha256
    True
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._unhashed = bytearray()
        self._pack = struct.Struct("<dqd").pack
        self.events = 0

    def add(self, time: float, who: int, what: float) -> None:
        """Add an event: its time in seconds, the number of the thread or line, and a number that says what happened."""
        self.events += 1
        self._unhashed += self._pack(time, who, what)
        if len(self._unhashed) >= _PIECE:
            self._hash.update(self._unhashed)
            self._unhashed.clear()

    @property
    def sha256(self) -> str:
        """The hash of all events so far, in hexadecimal."""
        hashed = self._hash.copy()
        hashed.update(self._unhashed)
        return hashed.hexdigest()


class World:
    """The clock and the event queue of one simulation. Times are seconds since its start.

    An event runs at its time `now`. Work within the event takes time only if it calls `spend`. `clock` then shows the
    time at which the event has come so far. What one event does to others must not happen before that time: the caller
    schedules it with `at(clock(), ...)`. Events of the same time run in the order in which they were scheduled.
    """

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.log = EventLog()
        self.random = random.Random(seed)
        #: The random numbers of the throttles. They change no duration.
        self.throttle_random = random.Random(f"throttle {seed}")
        self.clocks = Clocks(self.clock, self.wall, self.spend)
        self._spent = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._threads = 0
        self._stops = False
        #: The longest time for which `check_at` has planned an event.
        self.longest_check = 0.0

    def clock(self) -> float:
        """Return the time that the running event has reached."""
        return self.now + self._spent

    def wall(self) -> float:
        """Return the time of `clock` in seconds since the epoch."""
        return EPOCH + self.now + self._spent

    def spend(self, seconds: float) -> None:
        """Let the running event take `seconds` longer."""
        self._spent += seconds

    def new_number(self) -> int:
        """Return a number for a thread or a line, by which the event log names it."""
        self._threads += 1
        return self._threads

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Run `event` at `time`, or now if `time` has passed."""
        self._scheduled += 1
        heapq.heappush(self._queue, (time if time > self.now else self.now, self._scheduled, event))

    def check_at(self, time: float, event: Callable[[], None]) -> None:
        """Run `event` at `time`, like `at`. Tasks may wait until then, although no event of the job wakes them."""
        self.longest_check = max(self.longest_check, time - self.clock())
        self.at(time, event)

    def run(self, until: float = math.inf) -> None:
        """Run the events up to and including the time `until`, in order. `stop` ends the run earlier.

        Afterwards `now` is `until`, unless the run was stopped, or `until` is infinite.
        """
        queue, pop = self._queue, heapq.heappop
        self._stops = False
        while queue and queue[0][0] <= until and not self._stops:
            self.now, _, event = pop(queue)
            self._spent = 0.0
            event()
        self._spent = 0.0
        if not self._stops and self.now < until < math.inf:
            self.now = until

    def stop(self) -> None:
        """Let `run` return after the running event."""
        self._stops = True

    @property
    def is_idle(self) -> bool:
        """Whether no event is left to run."""
        return not self._queue
