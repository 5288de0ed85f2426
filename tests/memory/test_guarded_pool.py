"""A pool without a limit, which ends the job where another would let it wait."""

from __future__ import annotations

import pytest

from headgate.errors import NetworkMemoryFull
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.network_pool import NetworkBufferPool
from tests.memory.conftest import CheckedLocks


def guarded(memory: NetworkBufferPool, owner: str, required: int = 1) -> LocalBufferPool:
    return memory.create_local_pool(owner, required=required, maximum=99, guard=lambda: 12.34)


def close(memory: NetworkBufferPool, *pools: LocalBufferPool) -> None:
    for pool in pools:
        pool.destroy()
    memory.validate()
    assert memory.holders() == {}
    memory.close()


def test_the_last_segment_is_an_error_that_says_when_and_what_to_do() -> None:
    memory = NetworkBufferPool(4, 512, CheckedLocks())
    pool = guarded(memory, "output of a to b")
    assert pool.request_many(0) == []
    segments = pool.request_many(3)
    assert len(segments) == 3
    assert pool.available
    wanted = "out of memory at 12.3 s: output of a to b has 3 buffers of 512 bytes queued.*network_memory"
    with pytest.raises(NetworkMemoryFull, match=wanted):
        pool.request_many(8)
    assert pool.available, "the failed request has taken nothing"
    pool.recycle_many(segments)
    again = pool.request_many(2)
    assert len(again) == 2
    pool.recycle_many(again)
    close(memory, pool)


def test_one_pool_may_use_what_the_others_do_not() -> None:
    """With shares, each of two pools could use half."""
    memory = NetworkBufferPool(10, 512, CheckedLocks())
    one, other = guarded(memory, "one"), guarded(memory, "other")
    segments = one.request_many(8)
    assert len(segments) == 8, "all but one ahead for each pool"
    one.recycle_many(segments)
    memory.validate()
    segments = other.request_many(8)
    assert len(segments) == 8, "what came back is there for all"
    other.recycle_many(segments)
    close(memory, one, other)


def test_a_pool_keeps_its_required_segments() -> None:
    memory = NetworkBufferPool(10, 512, CheckedLocks())
    one, other = guarded(memory, "one", required=3), guarded(memory, "other")
    one.recycle_many(one.request_many(5))
    assert one.free == 3
    segments = other.request_many(6)
    with pytest.raises(NetworkMemoryFull, match="other has 6 buffers"):
        other.request_many(1)
    other.recycle_many(segments)
    close(memory, one, other)
