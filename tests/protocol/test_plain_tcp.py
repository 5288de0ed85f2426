"""Flow control by the socket alone: what the ends of a connection without credit do with buffers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.config import FlowControl
from headgate.errors import ExchangeError
from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment
from headgate.protocol.decoders import NO_MEMORY_YET
from headgate.protocol.messages import AddCredit, PartitionRequest, encode
from headgate.protocol.plain_tcp import SharedBuffers
from tests.exchange.link import OneAtATime
from tests.exchange.shared_link import END, SEGMENT, SharedLink
from tests.memory.conftest import CheckedLocks


class Shared:
    """Two channels' buffers over a pool of two segments."""

    def __init__(self) -> None:
        self.memory = NetworkBufferPool(2, SEGMENT, CheckedLocks())
        self.pool = self.memory.create_local_pool("gate", required=2, maximum=2)
        self.notified: list[int] = []
        self.now = 0.0
        one = OneAtATime()
        self.one = SharedBuffers(self.pool, lambda: self.notified.append(1), one, lambda: self.now)
        self.two = SharedBuffers(self.pool, lambda: self.notified.append(2), one)


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.pool.destroy()
    made.memory.validate()
    assert made.memory.holders() == {}
    made.memory.close()


def taken(buffers: SharedBuffers) -> MemorySegment:
    segments = buffers.take(1)
    assert segments is not None
    assert segments is not NO_MEMORY_YET
    (segment,) = segments
    return segment


def test_channels_take_turns_when_none_is_free(shared: Shared) -> None:
    first, second = taken(shared.one), taken(shared.one)
    assert shared.one.take(1) is NO_MEMORY_YET
    assert shared.two.take(1) is NO_MEMORY_YET
    assert shared.one.take(1) is NO_MEMORY_YET, "asking again does not wait twice"
    shared.one.recycle(first)
    assert shared.notified == [1]
    assert shared.two.take(1) is NO_MEMORY_YET
    shared.one.recycle(taken(shared.one))
    assert shared.notified == [1, 2]
    shared.two.recycle(taken(shared.two))
    shared.one.recycle(second)
    assert shared.pool.free == 2


def test_a_channel_is_without_a_buffer_while_a_frame_waits_for_one(shared: Shared) -> None:
    first, second = taken(shared.one), taken(shared.one)
    assert shared.one.take(1) is NO_MEMORY_YET
    shared.now = 2
    assert shared.one.without_buffer_s == 2
    assert shared.one.take(1) is NO_MEMORY_YET
    assert (shared.one.reader_stops, shared.two.reader_stops) == (1, 0)
    shared.one.recycle(first)
    shared.now = 5
    assert shared.one.without_buffer_s == 2
    shared.one.recycle(taken(shared.one), second)


def test_a_released_channel_takes_nothing_more_and_keeps_nothing(shared: Shared) -> None:
    first, second = taken(shared.one), taken(shared.one)
    assert shared.one.take(1) is NO_MEMORY_YET
    assert shared.two.take(1) is NO_MEMORY_YET
    shared.one.release()
    assert shared.one.take(1) is None
    shared.one.recycle(first)
    assert shared.notified == [2], "the released one declines, and the next in line is asked"
    shared.two.release()
    shared.one.recycle(second)
    assert shared.pool.free == 2


def test_a_channel_that_leaves_with_nothing_frees_nothing(shared: Shared) -> None:
    first, second = taken(shared.two), taken(shared.two)
    shared.one.release()
    shared.pool.validate()
    assert not shared.pool.available
    shared.two.recycle(first, second)


def test_a_run_gets_as_many_buffers_as_there_are(shared: Shared) -> None:
    segments = shared.one.take(8)
    assert segments is not None
    assert segments is not NO_MEMORY_YET
    assert len(segments) == 2
    assert shared.one.take(6) is NO_MEMORY_YET, "the rest of the run waits"
    shared.one.recycle(*segments)
    assert shared.notified == [1]
    rest = shared.one.take(6)
    assert rest is not None
    assert rest is not NO_MEMORY_YET
    assert len(rest) == 1, "the one that was offered"
    shared.one.recycle(*rest)


@pytest.mark.parametrize(
    "message", [AddCredit(1, 0), PartitionRequest(0, 0, 0, 0, 2)], ids=["granted later", "with the request"]
)
def test_a_consumer_that_grants_credit_is_refused(message: AddCredit | PartitionRequest) -> None:
    link = SharedLink(FlowControl.TCP, [1], [1])
    if isinstance(message, AddCredit):
        link.settle()
    with pytest.raises(ExchangeError, match="on a connection without credit"):
        link.sender.receive(encode(message))
    link.release(0)
    link.sender.release()
    link.close()


def stalled(flow_control: FlowControl) -> SharedLink:
    """Two gates on one connection. The first takes nothing, and its producer has written more than its buffers hold;
    then the second one's producer writes as much."""
    link = SharedLink(flow_control, [1, 1], [2, 2], extra=10, capacity=200)
    link.settle()
    link.write(0, 5 * SEGMENT)
    link.settle()
    link.write(1, SEGMENT)
    link.settle()
    return link


def test_with_credit_a_stalled_gate_stops_its_own_channel_alone() -> None:
    link = stalled(FlowControl.CREDIT)
    for _ in range(20):
        assert link.consume(1), "the other gate's data came past"
        link.recycle()
        link.write(1, SEGMENT)
        link.settle()
    assert not link.receiver.is_stopped
    assert len(link.read[1]) == 20 * SEGMENT
    link.run_to_the_end(0)
    link.close()


def test_without_credit_a_stalled_gate_stops_all_channels_of_its_connection() -> None:
    link = stalled(FlowControl.TCP)
    assert link.receiver.is_stopped
    assert link.gate_pools[0].free == 0
    assert link.gate_pools[1].in_use == 0, "the other gate has all its buffers"
    assert not link.consume(1), "and yet nothing reaches it"
    while link.write(1, SEGMENT):
        link.settle()
    assert not link.pool.available, "in the end its producer stands still too"
    assert link.consume(0)
    link.recycle()
    link.settle()
    assert link.receiver.is_stopped
    assert not link.consume(1), "one buffer lets one frame past"
    for _ in range(2):
        assert link.consume(0)
        link.recycle()
        link.settle()
    assert link.consume(1), "behind the last of them"
    link.run_to_the_end(0)
    assert link.read[0][-1] == link.read[1][-1] == END
    link.close()


def recorded() -> bytes:
    """What a producer sends: full and small buffers of two channels, and their ends."""
    link = SharedLink(FlowControl.TCP, [1, 1], [8, 8], extra=20)
    link.send_control()
    link.receive_control(1 << 20)
    for channel, size in ((0, 40), (1, 16), (0, 3), (1, 33)):
        link.write(channel, size)
    for channel in (0, 1):
        link.end(channel)
    link.deliver_posts()
    link.produce(100)
    link.write_socket(1 << 20)
    stream = bytes(link.to_consumer)
    link.receiver.fail()
    link.sender.release()
    link.outgoing.release()
    for channel in (0, 1):
        link.release(channel)
    link.close()
    return stream


STREAM = recorded()


@pytest.mark.parametrize("buffers", [1, 3])
def test_frames_cut_at_every_byte_wait_for_buffers_and_come_whole(buffers: int) -> None:
    for cut in range(len(STREAM) + 1):
        link = SharedLink(FlowControl.TCP, [1, 1], [buffers, buffers])
        link.send_control()
        link.written = [[(i * 7 + c) & 0xFF for i in range(n)] + [END] for c, n in ((0, 43), (1, 49))]
        for part in (STREAM[:cut], STREAM[cut:]):
            link.to_consumer += part
            while link.to_consumer or link.receiver.is_stopped:
                link.receive(1 << 20)
                while link.consume(0) or link.consume(1):
                    if link.held:
                        link.recycle()
                link.deliver_posts()
        while link.consume(0) or link.consume(1):
            if link.held:
                link.recycle()
        assert link.read == link.written
        link.receiver.fail()
        for channel in (0, 1):
            link.release(channel)
        link.close()


def test_a_connection_that_ends_while_a_frame_waits_keeps_no_buffer() -> None:
    link = stalled(FlowControl.TCP)
    for channel in link.receiver.fail():
        channel.on_error(ExchangeError("cut"))
    link.sender.release()
    link.outgoing.release()
    for index in (0, 1):
        link.release(index)
    link.close()


def test_a_gate_lends_no_buffer_but_for_data_that_came() -> None:
    """Or other connections of the gate would find nothing while this one has nothing to say."""
    link = SharedLink(FlowControl.TCP, [1], [8], extra=20)
    link.settle()
    for _ in range(10):
        link.write(0, 4 * SEGMENT)
        link.settle()
        assert link.gate_pools[0].in_use == link.channels[0].queue_length
        while link.consume(0):
            link.recycle()
    link.receive(0)
    assert link.gate_pools[0].in_use == 0
    link.run_to_the_end(0)
    link.close()


def test_a_channel_that_leaves_takes_its_waiting_frame_out_of_the_way() -> None:
    link = stalled(FlowControl.TCP)
    link.release(0)
    link.settle()
    assert not link.receiver.is_stopped
    assert link.consume(1)
    link.recycle()
    link.run_to_the_end(0)
    link.close()
