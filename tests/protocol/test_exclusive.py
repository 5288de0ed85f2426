"""The exclusive buffers of a gate are one stack: whichever channel takes one gets the one used last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.errors import InsufficientBuffers
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.credit import BufferManager
from headgate.protocol.exclusive import ExclusiveBuffers
from tests.memory.conftest import CheckedLocks
from tests.protocol.test_credit import NoLock


@pytest.fixture
def memory() -> Iterator[NetworkBufferPool]:
    memory = NetworkBufferPool(6, 8, CheckedLocks())
    yield memory
    memory.validate()
    assert memory.holders() == {}
    memory.close()


def test_the_segment_that_came_back_last_is_filled_next_by_any_channel(memory: NetworkBufferPool) -> None:
    exclusive, floating = ExclusiveBuffers(memory, "gate"), memory.create_local_pool("floating", required=1, maximum=1)
    one, other = (
        BufferManager(
            exclusive=exclusive,
            initial_credit=2,
            floating_pool=floating,
            channels=2,
            on_credit=lambda: None,
            lock_factory=NoLock(),
        )
        for _ in range(2)
    )
    [first] = one.take(1) or []
    [second] = one.take(1) or []
    one.recycle(second)
    one.recycle(first)
    assert other.take(1) == [first]
    assert other.take(1) == [second], "those of the other channel are cold"
    assert (one.free, other.free, exclusive.free) == (2, 0, 2)
    for channel in (one, other):
        channel.validate()
        channel.release()
    other.recycle(first, second)
    floating.destroy()


def test_a_segment_that_was_given_back_may_come_again_as_a_floating_one(memory: NetworkBufferPool) -> None:
    exclusive = ExclusiveBuffers(memory, "gate")
    exclusive.reserve(6)
    taken = exclusive.take(6)
    exclusive.put(taken[:4])
    exclusive.give_back(taken[4:])
    assert [exclusive.owns(segment) for segment in taken] == [True] * 4 + [False] * 2
    pool = memory.create_local_pool("floating", required=2, maximum=2)
    assert not any(map(exclusive.owns, pool.request_many(2)))
    assert pool.in_use == 2
    pool.recycle_many(taken[4:])
    pool.destroy()
    exclusive.give_back(exclusive.take(4))


def test_more_than_there_is_cannot_be_reserved(memory: NetworkBufferPool) -> None:
    exclusive = ExclusiveBuffers(memory, "gate")
    exclusive.reserve(4)
    with pytest.raises(InsufficientBuffers, match="gate needs 3 network buffers of 8 bytes"):
        exclusive.reserve(3)
    assert exclusive.free == 4
    exclusive.give_back(exclusive.take(4))
