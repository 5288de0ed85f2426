"""Credit at both ends of a channel: one credit is one free buffer of the consumer, and it comes back on consumption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from headgate.errors import ExchangeError
from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment
from headgate.protocol.credit import MAX_CREDIT, BufferManager, SenderCredit
from headgate.protocol.exclusive import ExclusiveBuffers
from tests.memory.conftest import CheckedLocks, request_one


class NoLock:
    """One thread; taking it twice would be a deadlock with two."""

    def __init__(self) -> None:
        self.held = False

    def __call__(self) -> NoLock:
        return NoLock()

    def __enter__(self) -> None:
        assert not self.held
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


# ---- the producer's end


def test_the_producer_spends_one_credit_for_each_buffer_and_never_more() -> None:
    credit = SenderCredit(1)
    credit.add(2)
    credit.spend(2)
    assert credit.available == 1
    with pytest.raises(ExchangeError, match="2 data buffers were about to be sent with a credit of 1"):
        credit.spend(2)
    credit.spend(1)
    assert credit.available == 0
    with pytest.raises(ExchangeError, match="1 data buffers were about to be sent with a credit of 0"):
        credit.spend(1)
    assert credit.available == 0


@pytest.mark.parametrize(("initial", "grant"), [(0, -1), (0, MAX_CREDIT + 1), (MAX_CREDIT, 1)])
def test_more_credit_than_there_can_be_buffers_is_refused(initial: int, grant: int) -> None:
    credit = SenderCredit(initial)
    with pytest.raises(ExchangeError, match="impossible"):
        credit.add(grant)


# ---- the consumer's end


class Side:
    """Two channels over one pool of floating buffers, of which each may keep a share."""

    def __init__(self, exclusive: int = 2, floating: int = 3, sharing: int = 2) -> None:
        self.sharing = sharing
        self.network = NetworkBufferPool(2 * exclusive + floating, 8, CheckedLocks())
        self.pool = self.network.create_local_pool("floating", required=1, maximum=floating)
        self.exclusive = ExclusiveBuffers(self.network, "exclusive")
        self.words = [0, 0]
        self.now = 0.0
        self.channels = [self._channel(index, exclusive) for index in range(2)]
        self.one, self.other = self.channels
        self.taken: list[tuple[BufferManager, MemorySegment]] = []

    def _channel(self, index: int, exclusive: int) -> BufferManager:
        def word() -> None:
            self.words[index] += 1

        return BufferManager(
            exclusive=self.exclusive,
            initial_credit=exclusive,
            floating_pool=self.pool,
            channels=self.sharing,
            on_credit=word,
            lock_factory=NoLock(),
            clock=lambda: self.now,
        )

    def receive(self, channel: BufferManager, backlog: int = 0) -> MemorySegment:
        (segment,) = self.receive_run(channel, 1, backlog)
        return segment

    def receive_run(self, channel: BufferManager, count: int, backlog: int = 0) -> Sequence[MemorySegment]:
        segments = self.take(channel, count)
        channel.on_backlog(backlog)
        return segments

    def take(self, channel: BufferManager, count: int) -> Sequence[MemorySegment]:
        segments = channel.take(count)
        assert segments is not None
        assert len(segments) == count
        self.taken += [(channel, segment) for segment in segments]
        return segments

    def consume(self) -> None:
        channel, segment = self.taken.pop(0)
        channel.recycle(segment)

    def close(self) -> None:
        for channel in self.channels:
            channel.release()
        while self.taken:
            self.consume()
        self.pool.destroy()
        self.network.validate()
        assert self.network.holders() == {}
        self.network.close()


@pytest.fixture
def side() -> Iterator[Side]:
    side = Side()
    yield side
    side.close()


def test_the_initial_credit_is_the_exclusive_buffers_and_is_not_announced_again(side: Side) -> None:
    assert side.one.initial_credit == side.one.free == 2
    assert side.one.take_unannounced() == 0
    assert side.words == [0, 0]


def test_receiving_brings_no_credit_but_for_floating_buffers(side: Side) -> None:
    others = [request_one(side.pool) for _ in range(3)]
    side.receive(side.one)
    side.receive(side.one)
    assert (side.one.free, side.one.take_unannounced()) == (0, 0)
    side.consume()
    assert (side.one.free, side.one.take_unannounced()) == (1, 1)
    for segment in others:
        assert segment is not None
        side.pool.recycle(segment)


@pytest.mark.parametrize(("sharing", "share"), [(1, 8), (2, 2), (3, 1), (5, 0)])
def test_a_channel_keeps_its_share_of_the_floating_buffers_without_a_backlog(sharing: int, share: int) -> None:
    """All of them if it is the only one, else half of them are left to those with a backlog."""
    side = Side(floating=8, sharing=sharing)
    assert side.pool.in_use == 0, "nothing has come yet"
    side.receive(side.one, backlog=100)
    assert side.pool.in_use == 8
    side.consume()
    for _ in range(20):
        side.receive(side.one)
        side.consume()
    assert (side.one.free, side.pool.in_use) == (2 + share, share)
    side.close()


def test_a_backlog_is_met_with_floating_buffers_as_far_as_there_are_any(side: Side) -> None:
    side.receive(side.one, backlog=1)
    assert (side.one.free, side.one.take_unannounced(), side.pool.in_use) == (3, 2, 2)
    side.receive(side.one, backlog=100)
    assert (side.one.free, side.one.take_unannounced(), side.pool.in_use) == (3, 1, 3)
    assert side.pool.listeners == 1


def test_a_smaller_backlog_takes_none_and_keeps_those_it_has(side: Side) -> None:
    side.receive(side.one, backlog=2)
    before = side.one.free
    side.receive(side.one, backlog=0)
    assert side.one.free == before - 1
    assert side.pool.in_use == 3


def test_floating_buffers_are_filled_first(side: Side) -> None:
    side.receive(side.one, backlog=1)
    segment = side.receive(side.one, backlog=0)
    assert not side.exclusive.owns(segment)


def test_credit_is_announced_once_however_much_gathers(side: Side) -> None:
    side.receive(side.one, backlog=1)
    side.consume()
    assert side.words[0] == 1
    gathered = side.one.take_unannounced()
    assert gathered >= 2
    side.receive(side.one, backlog=2)
    assert side.words[0] == 2


def test_an_exclusive_buffer_that_comes_back_frees_a_floating_one_that_is_too_many(side: Side) -> None:
    side.receive(side.one, backlog=2)
    side.one.on_backlog(0)
    side.one.take_unannounced()
    free = side.one.free
    side.consume()
    assert side.one.free == free
    assert side.one.take_unannounced() == 0, "one came, one went"
    assert side.pool.in_use == 2


def test_a_floating_buffer_goes_to_the_channel_that_waits_for_it(side: Side) -> None:
    side.receive(side.one, backlog=1)
    side.receive(side.one, backlog=0)
    side.receive(side.one, backlog=0)
    side.receive(side.other, backlog=100)
    had = side.other.free
    waiting = side.pool.listeners
    assert waiting == 1
    while side.taken and side.other.free == had:
        side.consume()
    assert side.other.free == had + 1
    assert side.words[1] == 1


def test_a_channel_that_waits_no_longer_needs_what_it_is_offered(side: Side) -> None:
    side.receive(side.one, backlog=100)
    side.receive(side.other, backlog=100)
    side.other.on_backlog(0)
    side.consume()
    side.one.on_backlog(0)
    side.network.validate()


@pytest.mark.parametrize("counts", [[1, 1, 1], [2, 1], [1, 2], [3]], ids=str)
def test_a_buffer_without_credit_is_the_producers_fault(side: Side, counts: list[int]) -> None:
    for count in counts[:-1]:
        side.take(side.one, count)
    free = side.one.free
    with pytest.raises(ExchangeError, match=f"it sent {counts[-1]} buffers, the channel has {free} free"):
        side.one.take(counts[-1])
    assert side.one.free == free, "nothing was taken"


def test_a_run_takes_floating_buffers_first_and_as_many_as_it_has_segments(side: Side) -> None:
    side.one.on_backlog(2)
    assert (side.one.free, side.one.take_unannounced()) == (4, 2)
    segments = side.take(side.one, 3)
    assert [side.exclusive.owns(segment) for segment in segments] == [False, False, True]
    assert side.one.free == 1
    side.one.validate()


def test_release_gives_everything_back_and_takes_no_more(side: Side) -> None:
    side.receive_run(side.one, 2, backlog=1)
    side.one.release()
    side.one.release()
    assert side.one.take(1) is None
    assert side.one.take(100) is None
    assert side.one.take_unannounced() == 0
    side.one.on_backlog(100)
    assert side.pool.listeners == 0
    side.consume()
    side.consume()
    assert side.network.holders()["exclusive"] == 2, "the other channel's"
    assert side.pool.in_use == 0


def test_a_channel_that_left_declines_what_it_had_waited_for(side: Side) -> None:
    side.receive(side.one, backlog=100)
    side.receive(side.other, backlog=100)
    side.other.release()
    while side.taken:
        side.consume()
    side.one.release()
    assert side.pool.in_use == 0


# ---- how long a channel has no buffer


def test_a_channel_is_without_a_buffer_from_its_last_one_to_the_next(side: Side) -> None:
    side.receive_run(side.one, 2, backlog=3)
    side.take(side.one, side.one.free)
    side.one.on_backlog(0)
    assert side.one.free == 0
    side.now = 4
    assert side.one.without_buffer_s == 4
    side.one.recycle(side.taken.pop()[1])
    side.now = 9
    assert side.one.without_buffer_s == 4


@pytest.mark.parametrize(("backlog", "waited"), [(0, 0), (1, 4)])
def test_a_channel_without_buffers_of_its_own_lacks_one_for_a_backlog_only(backlog: int, waited: float) -> None:
    side = Side(exclusive=0, floating=1, sharing=2)
    side.receive_run(side.other, 0, backlog=1)
    side.one.on_backlog(backlog)
    side.now = 4
    assert side.one.without_buffer_s == waited
    side.close()


@pytest.mark.parametrize("end", ["release", "block"])
def test_a_channel_that_expects_nothing_lacks_no_buffer(side: Side, end: str) -> None:
    side.receive_run(side.one, 2, backlog=3)
    side.take(side.one, side.one.free)
    side.one.on_backlog(3)
    side.now = 1
    getattr(side.one, end)()
    side.now = 9
    assert side.one.without_buffer_s == 1
