"""A pool that ends the job where another would let it wait."""

from __future__ import annotations

import pytest

from headgate.errors import InsufficientBuffers
from headgate.memory.network_pool import NetworkBufferPool
from tests.memory.conftest import CheckedLocks


def test_a_request_that_finds_nothing_is_an_error_that_says_what_to_do() -> None:
    memory = NetworkBufferPool(4, 512, CheckedLocks())
    pool = memory.create_local_pool("output of a to b", required=1, maximum=4, guarded=True)
    segments = pool.request_many(3)
    assert len(segments) == 3
    assert pool.available
    assert pool.request_many(0) == []
    segments += pool.request_many(8)
    assert len(segments) == 4
    with pytest.raises(InsufficientBuffers, match="output of a to b has 4 buffers of 512 bytes queued.*network_memory"):
        pool.request_many(1)
    pool.recycle_many(segments)
    again = pool.request_many(2)
    assert len(again) == 2
    pool.recycle_many(again)
    pool.destroy()
    memory.validate()
    assert memory.holders() == {}
    memory.close()
