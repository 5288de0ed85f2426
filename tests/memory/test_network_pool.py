"""The global pool: failing fast, sharing out, exclusive segments, accounting to the last segment."""

from __future__ import annotations

import sys
import threading

import pytest

from headgate.errors import ExchangeError, InsufficientBuffers
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment
from tests.memory.conftest import CheckedLocks, request_one


def test_too_few_buffers_fails_at_creation_and_says_what_to_change(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    network.create_local_pool("map[0] output", required=4, maximum=8)
    network.request_exclusive(3, "map[0] input")
    with pytest.raises(InsufficientBuffers) as caught:
        network.create_local_pool("sum[1] output", required=4, maximum=4)
    message = str(caught.value)
    for fact in ("sum[1] output needs 4 network buffers of 512 bytes", "only 3 of 10", "network_memory",
                 "buffers_per_channel", "segment_size"):  # fmt: skip
        assert fact in message
    with pytest.raises(InsufficientBuffers, match=r"sum\[1\] input needs 4"):
        network.request_exclusive(4, "sum[1] input")
    network.create_local_pool("sum[1] output", required=3, maximum=3)
    network.validate()


@pytest.mark.parametrize(("required", "maximum"), [(0, 3), (4, 3)])
def test_impossible_pools_are_refused(locks: CheckedLocks, required: int, maximum: int) -> None:
    with pytest.raises(ExchangeError, match="1 <= required <= maximum"):
        NetworkBufferPool(10, 512, locks).create_local_pool("out", required=required, maximum=maximum)


def test_pools_share_the_excess_as_others_come_and_go(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(20, 512, locks)
    first = network.create_local_pool("first", required=2, maximum=100)
    assert first.size == 20
    second = network.create_local_pool("second", required=2, maximum=100, expected=6)
    assert (first.size, second.size) == (5, 15)
    exclusive = network.request_exclusive(4, "channels")
    assert (first.size, second.size) == (4, 12)
    first.destroy()
    assert second.size == 16
    network.recycle_exclusive(exclusive, "channels")
    assert second.size == 20
    network.validate()


def test_requested_usage_is_what_all_could_use(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    assert network.requested_usage == 0
    network.create_local_pool("one", required=1, maximum=4)
    network.request_exclusive(3, "two")
    assert network.requested_usage == 0.7
    network.create_local_pool("three", required=1, maximum=1000)
    assert network.requested_usage == 1.7


def test_exclusive_segments_are_given_at_once_or_not_at_all(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(6, 512, locks)
    pool = network.create_local_pool("out", required=1, maximum=6)
    borrowed = [request_one(pool) for _ in range(5)]
    with pytest.raises(InsufficientBuffers, match="out': 3}; request them again when these are recycled"):
        network.request_exclusive(4, "in")
    assert (network.holders(), pool.size) == ({"out": 6}, 6)
    network.validate()
    for segment in borrowed:
        assert segment is not None
        pool.recycle(segment)
    segments = network.request_exclusive(4, "in")
    assert len({segment.index for segment in segments}) == 4
    assert network.holders() == {"in": 4, "out": 2}
    network.validate()


def test_an_owner_cannot_return_more_exclusive_segments_than_it_has(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(6, 512, locks)
    segments = network.request_exclusive(2, "in")
    with pytest.raises(ExchangeError, match="other returns 2 exclusive buffers but has only 0"):
        network.recycle_exclusive(segments, "other")
    network.recycle_exclusive(segments, "in")
    with pytest.raises(ExchangeError, match="has only 0"):
        network.recycle_exclusive(segments, "in")
    network.validate()


def test_closing_too_early_names_the_holders(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    segments = network.request_exclusive(2, "sum[0] input")
    pool = network.create_local_pool("map[1] output", required=1, maximum=1)
    with pytest.raises(ExchangeError, match=r"3 of 10 buffers .* \{'map\[1\] output': 1, 'sum\[0\] input': 2\}"):
        network.close()
    pool.destroy()
    network.recycle_exclusive(segments, "sum[0] input")
    network.close()
    network.close()


def test_a_pool_that_was_not_destroyed_is_named_even_if_it_holds_nothing(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(2, 512, locks)
    greedy = network.create_local_pool("greedy", required=1, maximum=2)
    segments = [request_one(greedy), request_one(greedy)]
    network.create_local_pool("forgotten", required=1, maximum=1)
    for segment in segments:
        assert segment is not None
        greedy.recycle(segment)
    greedy.destroy()
    with pytest.raises(ExchangeError, match=r"pools not destroyed: \['forgotten'\]"):
        network.close()


def test_validate_detects_a_lost_segment(locks: CheckedLocks) -> None:
    network = NetworkBufferPool(10, 512, locks)
    network.request_exclusive(2, "sum[0] input")
    network._free.pop()
    with pytest.raises(AssertionError, match=r"lost or doubled: 7 free of 10, lent: \{'sum\[0\] input': 2\}"):
        network.validate()


class Channel:
    """As much of a remote input channel as fairness needs: exclusive buffers, and floating ones up to `required`."""

    def __init__(self, network: NetworkBufferPool, pool: LocalBufferPool, name: str) -> None:
        self.pool, self.required = pool, 0
        self.buffers = network.request_exclusive(2, name)

    def on_backlog(self, backlog: int) -> None:
        self.required = backlog + 2
        while len(self.buffers) < self.required:
            segment = request_one(self.pool)
            if segment is None:
                assert self.pool.add_listener(self.offered)
                return
            self.buffers.append(segment)

    def offered(self, segment: MemorySegment | None) -> bool:
        if segment is None or len(self.buffers) >= self.required:
            return False
        self.buffers.append(segment)
        if len(self.buffers) < self.required:
            self.pool.add_listener(self.offered)
        return True


def test_floating_buffers_are_shared_fairly_between_channels(locks: CheckedLocks) -> None:
    """3 channels x 2 exclusive buffers, 3 floating ones, 12 segments, after Flink's RemoteInputChannelTest."""
    network = NetworkBufferPool(12, 512, locks)
    pool = network.create_local_pool("floating", required=3, maximum=3)
    channels = [Channel(network, pool, f"channel {index}") for index in range(3)]
    used = [request_one(pool) for _ in range(3)]
    for channel in channels:
        channel.on_backlog(8)
    assert [len(channel.buffers) for channel in channels] == [2, 2, 2]
    for segment in used:
        assert segment is not None
        pool.recycle(segment)
    assert [len(channel.buffers) for channel in channels] == [3, 3, 3]
    network.validate()


def test_threads_that_request_and_recycle_lose_no_segment_and_never_hang() -> None:
    """Four tasks on two small pools, each waiting only when its pool says so, with real locks."""
    network = NetworkBufferPool(8, 512, threading.Lock)
    pools = [
        network.create_local_pool(f"pool {i}", required=2, maximum=8, subpartitions=2, max_overdraft=1)
        for i in range(2)
    ]
    failures: list[BaseException] = []

    def work(pool: LocalBufferPool, subpartition: int, wake: threading.Event) -> None:
        try:
            for _ in range(1500):
                segments: list[MemorySegment] = []
                while len(segments) < 2:
                    wake.clear()
                    segment = request_one(pool, subpartition)
                    if segment is not None:
                        segments.append(segment)
                    elif segments:
                        break
                    else:
                        assert wake.wait(60), "stuck"
                for segment in segments:
                    pool.recycle(segment, subpartition)
        except BaseException as error:
            failures.append(error)

    threads = []
    for pool in pools:
        events = [threading.Event(), threading.Event()]
        pool.on_available = lambda events=events: [event.set() for event in events]  # type: ignore[assignment, misc]
        threads += [threading.Thread(target=work, args=(pool, i, event)) for i, event in enumerate(events)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    network.validate()
    for pool in pools:
        assert pool.in_use == 0
        assert pool.available
        pool.destroy()
    network.close()


def test_while_each_pool_may_have_its_maximum_a_new_one_costs_the_others_nothing(
    locks: CheckedLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the time to build a job would grow with the square of its tasks."""
    network = NetworkBufferPool(100, 512, locks)
    pools = [network.create_local_pool(f"pool {number}", required=1, maximum=10) for number in range(5)]
    assert [pool.size for pool in pools] == [10] * 5
    resized = list[str]()
    resize = LocalBufferPool.resize
    monkeypatch.setattr(LocalBufferPool, "resize", lambda pool, size: resized.append(pool.owner) or resize(pool, size))
    assert network.create_local_pool("plenty", required=1, maximum=50).size == 50
    network.request_exclusive(0, "input")
    assert resized == ["plenty"]
    assert network.create_local_pool("scarce", required=1, maximum=2).size == 2
    assert resized[1:] == [*(pool.owner for pool in pools), "plenty", "scarce"]
    network.validate()
