"""The pools under random use, and the planted bugs that this finds (listed in docs/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.memory.local_pool import LocalBufferPool as Local
from headgate.memory.network_pool import NetworkBufferPool as Network
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine
from tests.memory.pool_machine import PoolMachine

BUGS = [
    PlantedBug("a recycled segment is lost", Local, "recycle_many", "self._free.extend(segments)", "pass"),
    PlantedBug("a recycled segment is free twice", Local, "recycle_many",
               "self._free.extend(segments)", "self._free.extend([*segments, *segments])"),
    PlantedBug("a recycled segment skips those who wait", Local, "recycle_many", " and not self._listeners", ""),
    PlantedBug("a recycled segment beyond the share is kept", Local, "recycle_many",
               "self.requested <= self.size and not", "not"),
    PlantedBug("a recycle tells nobody", Local, "recycle_many", "self.on_available()", "pass"),
    PlantedBug("a recycle calls back under the lock", Local, "recycle_many",
               "self.available = True", "self.available = True; self.on_available()"),
    PlantedBug("availability ignores the cap", Local, "request_many", " and not self._capped", ""),
    PlantedBug("the cap is off by one", Local, "__init__", "self._cap = max_per_subpartition",
               "self._cap = max_per_subpartition + 1"),
    PlantedBug("the cap is released too early", Local, "_discharge", "if after < self._cap <= before:",
               "if after <= self._cap <= before:"),
    PlantedBug("several segments count as one", Local, "request_many", "before + len(segments)", "before + 1"),
    PlantedBug("several segments pass the cap unseen", Local, "request_many",
               "if before < self._cap <= after:", "if after == self._cap:"),
    PlantedBug("availability is not recomputed after a request", Local, "request_many",
               "self.available = bool(free) and not self._capped", "pass"),
    PlantedBug("one segment too many is given", Local, "request_many",
               "len(segments) < count", "len(segments) <= count"),
    PlantedBug("a refill that a cap hides tells nobody", Local, "_place", "self.on_refill()", "pass"),
    PlantedBug("no segment is fetched ahead", Local, "request_many", "ahead = self._fetch()", "ahead = None"),
    PlantedBug("a segment fetched ahead goes beyond the share", Local, "_fetch",
               "self.requested >= self.size", "self.requested > self.size"),
    PlantedBug("a fetched segment is not counted", Local, "_fetch", "self.requested += 1", "pass"),
    PlantedBug("a pool does not register for what is missing", Local, "_fetch",
               "self._global.take(self)", "self._global.take(None)"),
    PlantedBug("a pool takes the factory lock on the data path", Local, "_fetch",
               "self._global.take(self)", "self._global.holders() and self._global.take(self)"),
    PlantedBug("overdraft is not counted", Local, "_overdraw", "self.requested += 1", "pass"),
    PlantedBug("one overdraft too many", Local, "_overdraw",
               "self.requested < self.size + self._max_overdraft", "self.requested <= self.size + self._max_overdraft"),
    PlantedBug("an overdraft that nobody asked for", Local, "_overdraw", "allowed and", "True and"),
    PlantedBug("a pool waits for good after its first offer", Local, "offer", "self._waiting = False", "pass"),
    PlantedBug("an offered segment is not counted", Local, "offer", "self.requested += 1", "pass"),
    PlantedBug("an offered segment tells nobody", Local, "_place", "elif turned:", "elif False:"),
    PlantedBug("a listener is served twice", Local, "_place", "self._listeners.popleft()", "self._listeners[0]"),
    PlantedBug("the last listener is served first", Local, "_place",
               "self._listeners.popleft()", "self._listeners.pop()"),
    PlantedBug("a declined segment stays counted", Local, "_place", "self._discharge(0)", "pass"),
    PlantedBug("the next segment is not asked for after a listener took one", Local, "_place",
               "segment = self._fetch()", "segment = None"),
    PlantedBug("shrinking steals what it returns", Local, "resize", "self.requested -= 1", "pass"),
    PlantedBug("shrinking returns nothing", Local, "resize", "while self._free and", "while False and"),
    PlantedBug("shrinking leaves availability as it was", Local, "resize", "self.available = bool", "_ = bool"),
    PlantedBug("a destroyed pool keeps late returns", Local, "destroy", "self.size = 0", "pass"),
    PlantedBug("a destroyed pool loses its free segments", Local, "destroy",
               "dismiss(self, unused)", "dismiss(self, [])"),
    PlantedBug("a destroyed pool forgets its listeners", Local, "destroy", "listener(None)", "pass"),
    PlantedBug("a segment given back wakes nobody", Network, "give_back", "self._serve_waiters()", "pass"),
    PlantedBug("a segment that a pool declined is lost", Network, "_serve_waiters",
               "self._free.appendleft(segment)", "pass"),
    PlantedBug("a destroyed pool's right is not given up", Network, "dismiss",
               "self._required -= pool.claim.required", "pass"),
    PlantedBug("a destroyed pool's share goes to nobody", Network, "dismiss", "self._redistribute()", "pass"),
    PlantedBug("a grown share is not used", Network, "_settle", "pool.refill()", "pass"),
    PlantedBug("nobody hears of a destroyed pool's segments", Network, "dismiss", "self._settle()", "pass"),
    PlantedBug("one segment too many is promised", Network, "_reserve", "if count > left:", "if count > left + 1:"),
    PlantedBug("a refused request for exclusive segments keeps its promise", Network, "request_exclusive",
               "self._release_exclusive(count, owner)", "pass"),
    PlantedBug("returned exclusive segments are shared out to nobody", Network, "recycle_exclusive",
               "self._redistribute()", "pass"),
    PlantedBug("one segment too many is shared out", Network, "_redistribute",
               "self.total_segments - self._required", "self.total_segments - self._required + 1"),
    PlantedBug("surplus segments are lost on the way back", Network, "_redistribute",
               "self._free.extend(surplus)", "pass"),
]  # fmt: skip


def test_pools_under_random_use() -> None:
    run_machine(PoolMachine, settings(HUNT, max_examples=99, stateful_step_count=50))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, PoolMachine)
