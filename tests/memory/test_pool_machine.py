"""The pools under random use, and the planted bugs that this finds (listed in docs/evidence/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.memory.local_pool import LocalBufferPool as Local
from headgate.memory.network_pool import NetworkBufferPool as Network
from tests.memory.edits import always, calling, compared, constant, dropped, never, only, plus, replaced
from tests.memory.places import assignment, call, comparison, condition, increment, operation
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine
from tests.memory.pool_machine import PoolMachine

BUGS = [
    PlantedBug("a recycled segment is lost", Local.recycle_many, dropped(call("extend"))),
    PlantedBug("a recycled segment is free twice", Local.recycle_many,
               replaced(call("extend").argument(1), "[*THIS, *segments]")),
    PlantedBug("a recycled segment skips those who wait", Local.recycle_many, only(comparison())),
    PlantedBug("a recycled segment beyond the share is kept", Local.recycle_many, dropped(comparison())),
    PlantedBug("a recycle does not notify", Local.recycle_many, dropped(call("on_available"))),
    PlantedBug("a recycle calls back under the lock", Local.recycle_many,
               replaced(assignment(2, of=2), "THIS; self.on_available()")),
    PlantedBug("availability ignores the cap", Local.request_many, only(call("bool"))),
    PlantedBug("the cap is off by one", Local.__init__, plus(assignment(12, of=17).value, 1)),
    PlantedBug("the cap is released too early", Local._discharge, compared(condition(2, of=2), "<=")),
    PlantedBug("several segments count as one", Local.request_many, constant(call("len", 3, of=3), 1)),
    PlantedBug("several segments pass the cap unseen", Local.request_many,
               replaced(condition(7, of=7), "after == self._cap")),
    PlantedBug("availability is not recomputed after a request", Local.request_many, dropped(assignment(7, of=7))),
    PlantedBug("one segment too many is given", Local.request_many, compared(condition(2, of=7), "<=")),
    PlantedBug("a refill that a cap hides does not notify", Local._place, dropped(call("on_refill"))),
    PlantedBug("no segment is fetched ahead", Local.request_many, constant(call("_fetch"), None)),
    PlantedBug("a segment fetched ahead goes beyond the share", Local._fetch, compared(comparison(1, of=2), ">")),
    PlantedBug("a fetched segment is not counted", Local._fetch, dropped(increment())),
    PlantedBug("a pool does not register for what is missing", Local._fetch, constant(call("take").argument(1), None)),
    PlantedBug("a pool takes the factory lock on the data path", Local._fetch,
               replaced(call("take"), "self._global.holders() and THIS")),
    PlantedBug("overdraft is not counted", Local._overdraw, dropped(increment())),
    PlantedBug("one overdraft too many", Local._overdraw, compared(comparison(1, of=2), "<=", at=2)),
    PlantedBug("an overdraft that was not requested", Local._overdraw,
               always(condition(2, of=3).operand(1).operand(1))),
    PlantedBug("a pool waits for good after its first offer", Local.offer, dropped(assignment())),
    PlantedBug("an offered segment is not counted", Local.offer, dropped(increment())),
    PlantedBug("an offered segment does not notify", Local._place, never(condition(6, of=7))),
    PlantedBug("a listener is served twice", Local._place, replaced(call("popleft"), "self._listeners[0]")),
    PlantedBug("the last listener is served first", Local._place, calling(call("popleft"), "pop")),
    PlantedBug("a declined segment stays counted", Local._place, dropped(call("_discharge"))),
    PlantedBug("the next segment is not asked for after a listener took one", Local._place,
               constant(call("_fetch"), None)),
    PlantedBug("shrinking steals what it returns", Local.resize, dropped(increment())),
    PlantedBug("shrinking returns nothing", Local.resize, never(condition(2, of=2).operand(1))),
    PlantedBug("shrinking leaves availability as it was", Local.resize, replaced(assignment(3, of=3).target, "_")),
    PlantedBug("a destroyed pool keeps late returns", Local.destroy, dropped(assignment(2, of=5))),
    PlantedBug("a destroyed pool loses its free segments", Local.destroy, replaced(call("dismiss").argument(2), "[]")),
    PlantedBug("a destroyed pool forgets its listeners", Local.destroy, dropped(call("listener"))),
    PlantedBug("a segment that comes back serves no waiter", Network.give_back, dropped(call("_serve_waiters"))),
    PlantedBug("a segment that a pool declined is lost", Network._serve_waiters, dropped(call("appendleft"))),
    PlantedBug("a destroyed pool's right is not given up", Network.dismiss, dropped(increment())),
    PlantedBug("a destroyed pool's share is not redistributed", Network.dismiss, dropped(call("_redistribute"))),
    PlantedBug("a grown share is not used", Network._settle, dropped(call("refill"))),
    PlantedBug("no waiter gets a destroyed pool's segments", Network.dismiss, dropped(call("_settle"))),
    PlantedBug("one segment too many is promised", Network._reserve, plus(condition().operand(2), 1)),
    PlantedBug("a refused request for exclusive segments keeps its promise", Network.request_exclusive,
               dropped(call("_release_exclusive"))),
    PlantedBug("returned exclusive segments are not redistributed", Network.recycle_exclusive,
               dropped(call("_redistribute"))),
    PlantedBug("one segment too many is shared out", Network._redistribute, plus(operation(), 1)),
    PlantedBug("surplus segments are lost on the way back", Network._redistribute, dropped(call("extend"))),
]  # fmt: skip


def test_pools_under_random_use() -> None:
    run_machine(PoolMachine, settings(HUNT, max_examples=99, stateful_step_count=50))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, PoolMachine)
