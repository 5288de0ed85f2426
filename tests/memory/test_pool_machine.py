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
    PlantedBug("the pool loses a recycled segment", Local.recycle_many, dropped(call("extend"))),
    PlantedBug("a recycled segment is in the free list twice", Local.recycle_many,
               replaced(call("extend").argument(1), "[*THIS, *segments]")),
    PlantedBug("a recycled segment goes to the free list although a listener waits", Local.recycle_many,
               only(comparison())),
    PlantedBug("the pool keeps a recycled segment beyond its share", Local.recycle_many, dropped(comparison())),
    PlantedBug("recycling a segment does not call on_available", Local.recycle_many, dropped(call("on_available"))),
    PlantedBug("recycling a segment calls on_available under the lock", Local.recycle_many,
               replaced(assignment(2, of=2), "THIS; self.on_available()")),
    PlantedBug("the pool is available although a subpartition is at its cap", Local.request_many, only(call("bool"))),
    PlantedBug("the cap of a subpartition is one segment too high", Local.__init__,
               plus(assignment(12, of=17).value, 1)),
    PlantedBug("a subpartition that falls to its cap counts as below the cap", Local._discharge,
               compared(condition(2, of=2), "<=")),
    PlantedBug("a request for several segments counts as one segment", Local.request_many,
               constant(call("len", 3, of=3), 1)),
    PlantedBug("a request that jumps past the cap does not count the subpartition as capped", Local.request_many,
               replaced(condition(7, of=7), "after == self._cap")),
    PlantedBug("a request does not update the availability", Local.request_many, dropped(assignment(7, of=7))),
    PlantedBug("a request returns one segment too many", Local.request_many, compared(condition(2, of=7), "<=")),
    PlantedBug("the pool does not report a new segment (on_refill) while a subpartition is at its cap", Local._place,
               dropped(call("on_refill"))),
    PlantedBug("a request fetches no segment in advance", Local.request_many, constant(call("_fetch"), None)),
    PlantedBug("the pool fetches a segment in advance beyond its share", Local._fetch,
               compared(comparison(1, of=2), ">")),
    PlantedBug("the pool does not count a segment that it fetches", Local._fetch, dropped(increment())),
    PlantedBug("an empty pool does not register as a waiter at the global pool", Local._fetch,
               constant(call("take").argument(1), None)),
    PlantedBug("fetching a segment takes the lock for creating pools, which others may hold for long", Local._fetch,
               replaced(call("take"), "self._global.holders() and THIS")),
    PlantedBug("the pool does not count an overdraft segment", Local._overdraw, dropped(increment())),
    PlantedBug("the pool grants one overdraft segment too many", Local._overdraw,
               compared(comparison(1, of=2), "<=", at=2)),
    PlantedBug("the pool grants overdraft to a request without overdraft", Local._overdraw,
               always(condition(2, of=3).operand(1).operand(1))),
    PlantedBug("after one offer of the global pool, the pool waits for no other", Local.offer, dropped(assignment())),
    PlantedBug("the pool does not count an offered segment", Local.offer, dropped(increment())),
    PlantedBug("an offered segment does not call on_available", Local._place, never(condition(6, of=7))),
    PlantedBug("the pool calls one listener twice", Local._place, replaced(call("popleft"), "self._listeners[0]")),
    PlantedBug("the pool serves the newest listener first", Local._place, calling(call("popleft"), "pop")),
    PlantedBug("a segment that a listener declines still counts as in use", Local._place, dropped(call("_discharge"))),
    PlantedBug("after a listener accepts a segment, the pool fetches no further one", Local._place,
               constant(call("_fetch"), None)),
    PlantedBug("a shrinking pool still counts the segments that it returns", Local.resize, dropped(increment())),
    PlantedBug("a shrinking pool returns no free segments", Local.resize, never(condition(2, of=2).operand(1))),
    PlantedBug("a shrinking pool does not update its availability", Local.resize,
               replaced(assignment(3, of=3).target, "_")),
    PlantedBug("a destroyed pool keeps segments that are recycled later", Local.destroy, dropped(assignment(2, of=5))),
    PlantedBug("a destroyed pool loses its free segments", Local.destroy, replaced(call("dismiss").argument(2), "[]")),
    PlantedBug("a destroyed pool does not call its listeners", Local.destroy, dropped(call("listener"))),
    PlantedBug("a returned segment is offered to no waiting pool", Network.give_back, dropped(call("_serve_waiters"))),
    PlantedBug("a segment that a pool declines is lost", Network._serve_waiters, dropped(call("appendleft"))),
    PlantedBug("the segments promised to a destroyed pool stay promised", Network.dismiss,
               dropped(increment(1, of=2))),
    PlantedBug("the share of a destroyed pool is not redistributed", Network.dismiss, dropped(call("_redistribute"))),
    PlantedBug("a pool whose share has grown fetches no segment", Network._settle, dropped(call("refill"))),
    PlantedBug("the segments of a destroyed pool are offered to no waiting pool", Network.dismiss,
               dropped(call("_settle"))),
    PlantedBug("the network pool promises one segment more than it has", Network._reserve,
               plus(condition().operand(2), 1)),
    PlantedBug("a refused request for exclusive segments keeps its reservation", Network.request_exclusive,
               dropped(call("_release_exclusive"))),
    PlantedBug("returned exclusive segments are not redistributed", Network.recycle_exclusive,
               dropped(call("_redistribute"))),
    PlantedBug("the shares of the pools together are one segment too large", Network._redistribute,
               plus(operation(), 1)),
    PlantedBug("shares stay although the pools now want more segments than there are", Network._redistribute,
               replaced(condition(), "had_plenty")),
    PlantedBug("shares stay although each pool may have its maximum again", Network._redistribute,
               replaced(condition(), "self._has_plenty")),
    PlantedBug("the segments that a shrinking pool returns are lost", Network._redistribute, dropped(call("extend"))),
]  # fmt: skip


def test_pools_under_random_use() -> None:
    run_machine(PoolMachine, settings(HUNT, max_examples=99, stateful_step_count=50))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, PoolMachine)
