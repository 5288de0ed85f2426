"""One local pool's rules: overdraft, the soft cap, availability, listeners, shrinking, destruction."""

from __future__ import annotations

import pytest

from headgate.errors import ExchangeError
from headgate.memory.local_pool import Listener, LocalBufferPool
from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment
from tests.memory.conftest import CheckedLocks, request_one


class Owner:
    """Counts the calls of `on_available`, and checks that each comes when it is true and no lock is held."""

    def __init__(self, pool: LocalBufferPool, locks: CheckedLocks) -> None:
        self.pool, self.locks, self.calls = pool, locks, 0
        pool.on_available = self

    def __call__(self) -> None:
        self.locks.assert_free()
        assert self.pool.available
        self.calls += 1


def take(pool: LocalBufferPool, count: int, subpartition: int = 0) -> list[MemorySegment]:
    segments = [request_one(pool, subpartition) for _ in range(count)]
    assert None not in segments
    return [segment for segment in segments if segment is not None]


def test_a_new_pool_holds_one_segment_ready(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=4)
    assert (pool.available, pool.free, pool.requested, pool.size, pool.in_use) == (True, 1, 1, 4, 0)
    assert network.free_segments == 9


def test_the_last_segment_of_the_share_ends_availability_and_its_return_restores_it(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=2)
    owner = Owner(pool, locks)
    segments = take(pool, 2)
    assert not pool.available
    assert request_one(pool) is None
    pool.recycle(segments[0])
    pool.recycle(segments[1])
    assert (pool.available, owner.calls, pool.in_use, pool.free) == (True, 1, 0, 2)
    network.validate()


def test_overdraft_is_bounded_and_goes_back_to_the_global_pool_first(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=2, max_overdraft=3)
    owner = Owner(pool, locks)
    segments = take(pool, 5)
    assert request_one(pool) is None
    assert (pool.requested, network.free_segments, pool.available) == (5, 5, False)
    for segment in segments[:3]:
        pool.recycle(segment)
    assert (pool.requested, network.free_segments, pool.available, owner.calls) == (2, 8, False, 0)
    pool.recycle(segments[3])
    assert (pool.available, owner.calls) == (True, 1)
    network.validate()


def test_overdraft_needs_a_free_segment_in_the_global_pool(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(3, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=2, max_overdraft=5)
    take(pool, 3)
    assert request_one(pool) is None
    network.validate()


def test_a_subpartition_at_its_cap_ends_availability_but_is_still_served(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=10, subpartitions=2, max_per_subpartition=2)
    owner = Owner(pool, locks)
    segments = take(pool, 1, subpartition=1)
    assert pool.available
    segments += take(pool, 2, subpartition=1)
    assert (pool.available, pool.free, pool.outstanding(0), pool.outstanding(1)) == (False, 1, 0, 3)
    pool.recycle(segments[0], 1)
    assert (pool.available, owner.calls) == (False, 0)
    pool.recycle(segments[1], 1)
    assert (pool.available, owner.calls) == (True, 1)
    network.validate()


def test_two_subpartitions_at_their_cap_must_both_come_down(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=10, subpartitions=2, max_per_subpartition=1)
    zero, one = request_one(pool, 0), request_one(pool, 1)
    assert zero is not None
    assert one is not None
    pool.recycle(zero, 0)
    assert not pool.available
    pool.recycle(one, 1)
    assert pool.available


def test_several_at_once_are_what_that_many_requests_give(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool(
        "out", required=2, maximum=4, subpartitions=2, max_per_subpartition=3, max_overdraft=1
    )
    assert len(pool.request_many(2, 1)) == 2
    assert (pool.outstanding(1), pool.free, pool.available) == (2, 1, True)
    assert len(pool.request_many(9, 1)) == 2
    assert not pool.is_overdrawn
    assert len(pool.request_many(9, 1, overdraft=True)) == 1
    assert pool.is_overdrawn
    assert (pool.outstanding(1), pool.requested, pool.available) == (5, 5, False)
    assert pool.request_many(1) == []
    network.validate()


def test_a_segment_from_the_global_pool_notifies_even_while_a_cap_keeps_the_pool_unavailable(
    locks: CheckedLocks,
) -> None:
    network = NetworkBufferPool(3, 512, locks)
    greedy = network.create_local_pool("greedy", required=1, maximum=2)
    borrowed = take(greedy, 2)
    pool = network.create_local_pool("out", required=2, maximum=2, subpartitions=2, max_per_subpartition=1)
    owner, refills = Owner(pool, locks), []
    pool.on_refill = lambda: refills.append(pool.free)
    take(pool, 1, subpartition=1)
    greedy.recycle(borrowed[0])
    assert (refills, pool.available, owner.calls) == ([1], False, 0)
    network.validate()


def test_one_return_too_many_is_refused(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out[3]", required=2, maximum=4, subpartitions=2)
    (segment,) = take(pool, 1, subpartition=1)
    pool.recycle(segment, 1)
    with pytest.raises(ExchangeError, match=r"out\[3\]: a buffer of subpartition 1 was recycled twice"):
        pool.recycle(segment, 1)
    network.validate()


def test_a_share_is_filled_as_other_pools_return_segments(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(4, 512, locks)
    greedy = network.create_local_pool("greedy", required=1, maximum=4)
    segments = take(greedy, 4)
    late = network.create_local_pool("late", required=2, maximum=2)
    owner = Owner(late, locks)
    assert (late.available, request_one(late), greedy.size) == (False, None, 2)
    greedy.recycle(segments[0])
    assert (late.available, late.free, owner.calls, greedy.requested) == (True, 1, 1, 3)
    greedy.recycle(segments[1])
    assert (late.free, network.free_segments, greedy.requested) == (1, 1, 2)
    network.validate()


def test_of_several_waiting_pools_each_gets_one_in_turn(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(6, 512, locks)
    greedy = network.create_local_pool("greedy", required=1, maximum=6)
    segments = take(greedy, 6)
    first, second = (network.create_local_pool(name, required=2, maximum=2) for name in ("first", "second"))
    greedy.recycle(segments[0])
    assert (first.available, second.available) == (True, False)
    greedy.recycle(segments[1])
    assert (first.available, second.available) == (True, True)
    network.validate()


def test_listeners_are_served_one_segment_each_in_order_of_registration(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("gate", required=2, maximum=2)
    segments = take(pool, 2)
    served: list[str] = []

    def listener(name: str, accept: bool) -> Listener:
        def listen(segment: MemorySegment | None) -> bool:
            locks.assert_free()
            assert segment is not None
            served.append(name)
            return accept

        return listen

    assert pool.add_listener(listener("a", True))
    assert pool.add_listener(listener("declines", False))
    assert pool.add_listener(listener("b", True))
    pool.recycle(segments[0])
    assert (served, pool.in_use, pool.available) == (["a"], 2, False)
    pool.recycle(segments[1])
    assert (served, pool.in_use) == (["a", "declines", "b"], 2)
    pool.recycle(segments[0])
    assert (served, pool.free, pool.available) == (["a", "declines", "b"], 1, True)
    network.validate()


def test_a_listener_is_not_needed_while_a_segment_is_free(locks: CheckedLocks) -> None:
    pool = NetworkBufferPool(10, 512, locks).create_local_pool("gate", required=1, maximum=1)
    assert not pool.add_listener(lambda segment: True)


def test_a_segment_from_the_global_pool_goes_to_a_listener_first(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(3, 512, locks)
    greedy = network.create_local_pool("greedy", required=1, maximum=3)
    segments = take(greedy, 3)
    gate = network.create_local_pool("gate", required=2, maximum=2)
    got: list[MemorySegment | None] = []
    for _ in range(2):
        assert gate.add_listener(lambda segment: got.append(segment) or True)
    greedy.recycle(segments[0])
    greedy.recycle(segments[1])
    assert got == segments[:2]
    assert (gate.in_use, greedy.requested) == (2, 1)
    network.validate()


def test_shrinking_gives_back_what_is_free_and_never_steals_what_is_in_use(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("out", required=2, maximum=10)
    segments = take(pool, 6)
    for segment in segments[4:]:
        pool.recycle(segment)
    assert (pool.requested, pool.in_use) == (7, 4)
    network.create_local_pool("other", required=8, maximum=8)
    assert (pool.size, pool.requested, pool.in_use, pool.available) == (2, 4, 4, False)
    network.validate()
    pool.recycle(segments[0])
    pool.recycle(segments[1])
    assert (pool.requested, pool.in_use, pool.free) == (2, 2, 0)
    pool.recycle(segments[2])
    assert (pool.requested, pool.free, pool.available) == (2, 1, True)
    network.validate()


def test_destruction_notifies_waiters_and_passes_late_returns_to_the_global_pool(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    pool = network.create_local_pool("gate of join[1]", required=2, maximum=2)
    owner = Owner(pool, locks)
    segments = take(pool, 2)
    heard: list[MemorySegment | None] = []
    assert pool.add_listener(lambda segment: heard.append(segment) or False)
    pool.destroy()
    pool.destroy()
    assert (heard, owner.calls, pool.available) == ([None], 1, True)
    with pytest.raises(ExchangeError, match=r"gate of join\[1\] requested a buffer after its pool was destroyed"):
        request_one(pool)
    assert not pool.add_listener(lambda segment: True)
    assert network.holders() == {"gate of join[1]": 2}
    network.validate()
    for segment in segments:
        pool.recycle(segment)
    assert (network.holders(), network.free_segments) == ({}, 10)
    network.validate()
    network.close()
