"""Input channels: the local one reads its subpartition in place, the remote one under credit; leave gives all back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from headgate.errors import ExchangeError, TaskManagerLost
from headgate.exchange.channels import LocalInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.pool_usage import Usage, exclusive_usage, floating_usage, output_usage
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.decoders import NO_MEMORY_YET
from headgate.protocol.messages import (
    DATA_BUFFER,
    EVENT_BUFFER,
    AckAllUserRecordsProcessed,
    BacklogAnnouncement,
    BufferResponse,
    NewBufferSize,
    OfChannel,
    ResumeConsumption,
    encode,
    encode_buffer_response,
)
from headgate.protocol.receiver import Receiver
from headgate.records.events import (
    Alignment,
    Announcement,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Event,
    encode_event,
)
from headgate.runtime.task.exchange_parts import GateChannels
from tests.exchange.link import input_parts, output_parts, write_bytes
from tests.memory.conftest import CheckedLocks, request_one

SIZE = 8


# ---- local


class Local:
    """A producer and a consumer of one TaskManager."""

    def __init__(self) -> None:
        self.network = NetworkBufferPool(4, SIZE, CheckedLocks())
        self.partition = output_parts(self.network, extra=2, cap=4).partition("out", 1, lambda: None)
        self.pool = self.partition.pool
        self.notified: list[int] = []
        self.channel = LocalInputChannel(3, self.partition.subpartition(0), self.notified.append, lambda index: None)
        self.channel.start()

    def write(self, data: bytes) -> None:
        assert write_bytes(self.partition, 0, data) == len(data)

    def read(self) -> list[bytes | Event]:
        """Return the items that a gate polls when notified, while more follows."""
        seen: list[bytes | Event] = []
        while self.notified:
            assert self.notified.pop() == 3
            more = True
            while more:
                taken, more = self.channel.poll(2)
                if isinstance(taken, list):
                    seen += [bytes(buffer.view) for buffer in taken]
                    recycle_all(taken)
                elif taken is not None:
                    seen.append(taken)
        return seen


@pytest.fixture
def local() -> Iterator[Local]:
    local = Local()
    yield local
    local.partition.release()
    local.pool.destroy()
    local.network.validate()
    assert local.network.holders() == {}
    local.network.close()


def test_a_local_channel_hands_on_buffers_and_events_in_order(local: Local) -> None:
    local.write(b"0123456789")
    local.partition.write_event(0, EndOfData())
    local.partition.write_event(0, EndOfPartition())
    assert local.read() == [b"01234567", b"89", EndOfData(), EndOfPartition()]
    assert local.channel.bytes_polled == 10


def test_a_local_channel_copies_nothing(local: Local) -> None:
    local.write(b"01234567")
    taken, _ = local.channel.poll()
    assert isinstance(taken, list)
    (buffer,) = taken
    local.notified.clear()
    buffer.segments[0].view[0:1] = b"X"
    assert bytes(buffer.view) == b"X1234567"
    buffer.recycle()


def test_a_local_channel_is_notified_again_after_it_has_polled_everything(local: Local) -> None:
    local.write(b"01234567")
    assert local.read() == [b"01234567"]
    local.write(b"ab")
    assert local.read() == []
    local.partition.flush(0)
    assert local.read() == [b"ab"]


def test_a_local_channel_that_leaves_frees_the_producer(local: Local) -> None:
    local.write(bytes(3 * SIZE))
    local.channel.release()
    assert local.pool.in_use == 0
    assert local.partition.is_consumed
    assert local.channel.poll() == (None, False)
    local.write(bytes(10 * SIZE))


# ---- remote


class Remote:
    """One remote channel with 2 exclusive and up to 3 floating buffers, fed by hand with a producer's bytes."""

    def __init__(self, exclusive: int = 2, channels: int = 2) -> None:
        self.network = NetworkBufferPool(exclusive + 4, SIZE, CheckedLocks())
        self.notified: list[int] = []
        self.posted: list[tuple[str, int]] = []
        self.messages: list[OfChannel] = []
        self.gate = InputGate(lambda: self.notified.append(1))
        made = GateChannels(input_parts(self.network, exclusive, floating=3), self.gate, "gate", channels)
        [self.floating] = made.pools
        self.channel = made.add_remote((4, 5, 6), self)
        self.receiver = Receiver(SIZE)
        self.number = self.receiver.request(self.channel)
        self.sequence = 0

    def credit_available(self, receiver: int) -> None:
        self.posted.append(("credit", receiver))

    def send(self, message: OfChannel) -> None:
        self.messages.append(message)

    def cancel(self, receiver: int) -> None:
        self.posted.append(("cancel", receiver))

    def deliver(self) -> None:
        """What the network thread does with what was posted."""
        for what, receiver in self.posted:
            (self.receiver.credit_available if what == "credit" else self.receiver.cancel)(receiver)
        self.posted.clear()

    def arrive(self, data: bytes) -> None:
        """Bytes come from the socket."""
        while data:
            count = 0
            for place in self.receiver.buffers():
                part = data[count : count + len(place)]
                place[: len(part)] = part
                count += len(part)
            data = data[count:]
            self.receiver.received(count)
            self.receiver.notify_channels()

    def frame(self, content: bytes | Event, backlog: int = 0) -> bytes:
        kind = DATA_BUFFER if isinstance(content, bytes) else EVENT_BUFFER
        body = content if isinstance(content, bytes) else encode_event(content)
        self.sequence += 1
        return encode_buffer_response(self.number, self.sequence - 1, backlog, kind, len(body)) + body

    def poll(self) -> bytes | Event | None:
        polled = self.gate.poll()
        if polled is None:
            return None
        taken = polled[1]
        if not isinstance(taken, list):
            return taken
        (buffer,) = taken
        content = bytes(buffer.view)
        buffer.recycle()
        return content

    def close(self) -> None:
        self.channel.release()
        self.deliver()
        self.receiver.fail()
        self.floating.destroy()
        self.network.validate()
        assert self.network.holders() == {}
        self.network.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Remote]]:
    remotes: list[Remote] = []

    def make_remote(**sizes: int) -> Remote:
        remotes.append(Remote(**sizes))
        return remotes[-1]

    yield make_remote
    for remote in remotes:
        remote.close()


@pytest.fixture
def remote(make: Callable[..., Remote]) -> Remote:
    return make()


def test_a_remote_channel_asks_for_its_subpartition_with_its_exclusive_buffers(remote: Remote) -> None:
    request = remote.channel.request(remote.number)
    assert (request.edge, request.producer, request.subpartition, request.credit) == (4, 5, 6, 2)


def test_buffers_and_events_come_in_order_and_are_counted(remote: Remote) -> None:
    remote.arrive(remote.frame(b"12345678") + remote.frame(b"9") + remote.frame(EndOfData()))
    assert remote.channel.queue_length == 3
    assert remote.notified
    assert remote.poll() == b"12345678"
    assert remote.poll() == b"9"
    assert remote.poll() == EndOfData()
    assert remote.poll() is None
    assert (remote.channel.bytes_in, remote.channel.buffers_in) == (9, 2)


def test_an_empty_buffer_reports_its_backlog_like_any_other(remote: Remote) -> None:
    remote.arrive(remote.frame(b"", backlog=3))
    assert remote.floating.in_use == 3
    assert remote.posted == [("credit", remote.number)]
    assert remote.channel.take_unannounced() == 3
    assert remote.poll() == b""


def test_the_gate_is_notified_again_after_it_has_polled_everything(remote: Remote) -> None:
    for content in (b"1", b"2", EndOfData()):
        remote.notified.clear()
        remote.arrive(remote.frame(content))
        assert remote.notified
        assert remote.poll() == content
        assert remote.poll() is None


def test_credit_comes_back_when_a_buffer_is_consumed_not_when_it_is_received(remote: Remote) -> None:
    held = [request_one(remote.floating) for _ in range(3)]
    remote.arrive(remote.frame(b"1"))
    assert remote.posted == []
    assert remote.channel.take_unannounced() == 0
    remote.poll()
    assert remote.posted == [("credit", remote.number)]
    assert remote.channel.take_unannounced() == 1
    for segment in held:
        assert segment is not None
        remote.floating.recycle(segment)


def test_a_floating_buffer_stands_in_for_the_one_that_is_being_consumed(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1"))
    assert remote.channel.take_unannounced() == 1
    assert remote.floating.in_use == 1


def test_a_backlog_brings_floating_buffers_and_credit_for_them(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1", backlog=2))
    assert remote.channel.take_unannounced() == 3, "2 and the initial 2 are wanted, 1 is left"
    assert remote.floating.in_use == 3


def test_an_empty_buffer_is_consumed_like_any_other(remote: Remote) -> None:
    remote.arrive(remote.frame(b""))
    remote.channel.take_unannounced()
    assert remote.poll() == b""
    assert remote.floating.in_use == 0


@pytest.mark.parametrize(("sequence", "words"), [(1, "buffer 1 came where 0"), (7, "buffer 7 came where 0")])
def test_a_gap_in_the_sequence_is_an_error_and_loses_no_segment(remote: Remote, sequence: int, words: str) -> None:
    remote.sequence = sequence
    with pytest.raises(ExchangeError, match=f"{words} was expected"):
        remote.arrive(remote.frame(b"1"))


def test_a_buffer_twice_is_an_error(remote: Remote) -> None:
    frame = remote.frame(b"1")
    remote.arrive(frame)
    with pytest.raises(ExchangeError, match="buffer 0 came where 1 was expected"):
        remote.arrive(frame)


def test_events_without_end_are_refused_since_no_credit_holds_them_back(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.exchange.channels._MAX_WAITING", 3)
    remote.arrive(b"".join(remote.frame(EndOfData()) for _ in range(3)))
    with pytest.raises(ExchangeError, match="too many events: 3 already wait for the task"):
        remote.arrive(remote.frame(EndOfData()))


def test_buffers_that_wait_are_no_events_without_end(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.exchange.channels._MAX_WAITING", 2)
    remote.arrive(remote.frame(b"1") + remote.frame(b"2") + remote.frame(EndOfData()))
    assert remote.poll() == b"1"
    assert remote.poll() == b"2"
    assert remote.poll() == EndOfData()


def test_an_event_counts_in_the_sequence(remote: Remote) -> None:
    remote.arrive(remote.frame(EndOfData()))
    remote.sequence = 0
    with pytest.raises(ExchangeError, match="buffer 0 came where 1 was expected"):
        remote.arrive(remote.frame(EndOfPartition()))


def test_the_sequence_wraps(remote: Remote) -> None:
    remote.channel._sequence = remote.sequence = (1 << 32) - 1
    remote.arrive(remote.frame(b"1"))
    remote.sequence = 0
    remote.arrive(remote.frame(b"2"))
    assert remote.poll() == b"1"
    assert remote.poll() == b"2"


def test_an_unknown_event_is_corruption(remote: Remote) -> None:
    body = b"\x00\x00\x00\x63"
    with pytest.raises(ExchangeError, match="unknown event"):
        remote.arrive(encode_buffer_response(remote.number, 0, 0, EVENT_BUFFER, len(body)) + body)


def test_an_error_surfaces_behind_what_was_received(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1") + remote.frame(b"2"))
    remote.channel.on_error(TaskManagerLost("gone"))
    assert remote.poll() == b"1"
    assert remote.poll() == b"2"
    with pytest.raises(TaskManagerLost, match="gone"):
        remote.poll()


def test_an_error_alone_wakes_the_gate(remote: Remote) -> None:
    remote.channel.on_error(TaskManagerLost("gone"))
    assert remote.notified
    with pytest.raises(TaskManagerLost, match="gone"):
        remote.poll()


def test_release_recycles_received_buffers_and_cancels_at_the_producer_once(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1", backlog=5) + remote.frame(b"2"))
    remote.channel.release()
    assert remote.network.holders() == {"gate, floating": remote.floating.free}
    assert remote.posted == [("credit", 0), ("cancel", 0)]
    assert remote.channel.queue_length == 0


def test_a_buffer_in_the_hands_of_the_task_outlives_the_leave(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1"))
    polled = remote.gate.poll()
    assert polled is not None
    assert isinstance(polled[1], list)
    (buffer,) = polled[1]
    remote.channel.release()
    assert remote.network.holders()["gate, exclusive"] == 1
    assert bytes(buffer.view) == b"1"
    buffer.recycle()
    assert "gate, exclusive" not in remote.network.holders()


def test_what_still_arrives_for_a_channel_that_left_is_dropped(remote: Remote) -> None:
    """The leave is not yet known to the network thread: whole buffers, then an event."""
    remote.arrive(remote.frame(b"1"))
    remote.channel.release()
    remote.arrive(remote.frame(b"2") + remote.frame(b"3") + remote.frame(EndOfData()))
    remote.deliver()
    remote.arrive(remote.frame(b"4") + remote.frame(EndOfPartition()))
    assert remote.channel.queue_length == 0
    assert remote.channel.poll() == (None, False)


# ---- barriers

ALIGNED = CheckpointBarrier(1, 0)
TIMED = CheckpointBarrier(1, 0, Alignment.TIMEOUT, 5)
PRIORITY = CheckpointBarrier(1, 0, Alignment.UNALIGNED)


def test_an_aligned_barrier_stays_in_order_and_the_producer_is_asked_to_resume(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1") + remote.frame(ALIGNED))
    assert remote.gate.poll_priority() is None
    assert remote.poll() == b"1"
    assert remote.poll() == ALIGNED
    assert remote.poll() is None
    remote.channel.resume()
    assert remote.messages == [ResumeConsumption(remote.number)]


def test_a_blocked_channel_keeps_its_data_and_gives_no_credit(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1"))
    remote.channel.block()
    assert remote.poll() is None
    remote.arrive(remote.frame(b"2"))
    assert remote.poll() is None
    assert remote.channel.queue_length == 2
    remote.channel.unblock()
    assert [remote.poll(), remote.poll()] == [b"1", b"2"]
    remote.channel.block()
    remote.channel.on_error(ExchangeError("gone"))
    with pytest.raises(ExchangeError, match="gone"):
        remote.poll()


def test_a_blocked_local_channel_leaves_the_data_to_its_producer(local: Local) -> None:
    local.write(b"0123")
    local.channel.block()
    local.partition.flush(0)
    assert local.read() == []
    local.notified.clear()
    local.channel.unblock()
    assert local.notified == [3]
    assert local.read() == [b"0123"]


def test_a_priority_barrier_is_there_at_once_and_counts_what_came_before_it(remote: Remote) -> None:
    remote.arrive(remote.frame(b"12") + remote.frame(b"345"))
    remote.poll()
    remote.arrive(remote.frame(PRIORITY) + remote.frame(b"6"))
    assert remote.gate.poll_priority() == (0, PRIORITY)
    assert remote.gate.poll_priority() is None
    assert (remote.channel.bytes_polled, remote.channel.bytes_before(1)) == (2, 5)
    assert remote.poll() == b"345"
    assert remote.poll() == b"6"
    assert remote.poll() is None
    assert remote.channel.bytes_before(2) == 6, "its barrier has not come"


def test_a_barrier_with_a_timeout_is_announced_and_passed_over_once_it_was_acted_upon(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1") + remote.frame(TIMED))
    assert remote.gate.poll_priority() == (0, Announcement(1, TIMED))
    remote.channel.prioritise(1)
    assert remote.poll() == b"1"
    assert remote.poll() is None
    assert remote.channel.bytes_before(1) == 1


def test_barriers_that_were_acted_upon_before_anybody_came_to_them_are_all_passed_over(remote: Remote) -> None:
    later = replace(TIMED, id=TIMED.id + 1)
    remote.arrive(remote.frame(b"1") + remote.frame(TIMED))
    remote.channel.prioritise(TIMED.id)
    remote.arrive(remote.frame(later) + remote.frame(b"2"))
    remote.channel.prioritise(later.id)
    assert remote.poll() == b"1"
    assert remote.poll() == b"2"
    assert remote.poll() is None


def test_a_barrier_whose_timeout_did_not_pass_comes_in_order(remote: Remote) -> None:
    remote.arrive(remote.frame(b"1") + remote.frame(TIMED))
    assert remote.poll() == b"1"
    assert remote.poll() == TIMED


def test_a_backlog_behind_a_barrier_that_blocks_is_an_error(remote: Remote) -> None:
    with pytest.raises(ExchangeError, match="announced a backlog of 2 behind the barrier"):
        remote.arrive(remote.frame(ALIGNED, backlog=2))


def test_a_channel_without_buffers_of_its_own_takes_floating_ones_for_an_announced_backlog(
    make: Callable[..., Remote],
) -> None:
    remote = make(exclusive=0)
    assert remote.channel.request(remote.number).credit == 0
    remote.arrive(encode(BacklogAnnouncement(2, remote.number)))
    assert remote.channel.take_unannounced() == 2
    assert remote.floating.in_use == 2
    remote.arrive(remote.frame(b"1", backlog=1) + remote.frame(b"2"))
    assert remote.poll() == b"1"
    assert remote.poll() == b"2"
    assert remote.floating.in_use == 0


def test_and_gives_them_up_while_a_barrier_blocks_it(make: Callable[..., Remote]) -> None:
    remote = make(exclusive=0)
    remote.arrive(encode(BacklogAnnouncement(3, remote.number)))
    remote.arrive(remote.frame(b"1"))
    remote.arrive(remote.frame(ALIGNED))
    assert remote.floating.in_use == 1
    assert remote.channel.take_unannounced() == 0
    assert remote.poll() == b"1"
    assert remote.floating.in_use == 0, "no credit until it goes on"


def test_a_consumer_acknowledges_and_chooses_its_buffer_size(remote: Remote) -> None:
    remote.channel.acknowledge()
    remote.channel.announce_buffer_size(512)
    assert remote.messages == [AckAllUserRecordsProcessed(remote.number), NewBufferSize(512, remote.number)]
    for message in remote.messages:
        remote.receiver.send(message)
    assert remote.receiver.data_to_send().endswith(b"".join(map(encode, remote.messages)))
    remote.channel.release()
    remote.deliver()
    remote.receiver.data_to_send()
    remote.receiver.send(remote.messages[0])
    assert remote.receiver.data_to_send() == b"", "who has left has nothing to say"


def test_a_local_channel_hands_on_barriers_and_what_it_asks_of_its_producer(local: Local) -> None:
    subpartition = local.partition.subpartition(0)
    local.write(b"0123")
    local.partition.write_event(0, ALIGNED)
    local.write(b"4")
    local.partition.flush(0)
    assert local.read() == [b"0123", ALIGNED]
    local.channel.resume()
    assert local.read() == [b"4"]
    assert subpartition.overtake(PRIORITY) == []
    assert local.channel.poll_priority() == PRIORITY
    local.channel.announce_buffer_size(4)
    local.partition.write_event(0, EndOfData())
    local.write(b"567890")
    local.channel.acknowledge()
    assert subpartition.is_settled
    assert local.read() == [EndOfData(), b"5678"]


def test_a_buffer_half_received_when_the_channel_leaves_is_dropped(remote: Remote) -> None:
    frame = remote.frame(b"12345678")
    remote.arrive(frame[:-3])
    remote.channel.release()
    remote.deliver()
    assert remote.network.holders()["gate, exclusive"] == 1
    remote.arrive(frame[-3:] + remote.frame(b"next"))
    assert "gate, exclusive" not in remote.network.holders()
    assert remote.channel.queue_length == 0


def test_a_buffer_half_received_when_the_connection_ends_is_given_back(remote: Remote) -> None:
    remote.arrive(remote.frame(b"12345678")[:-3])
    remote.channel.release()
    remote.deliver()
    remote.receiver.fail()
    assert "gate, exclusive" not in remote.network.holders()


def test_a_task_that_leaves_while_a_buffer_is_put_into_its_queue_loses_no_segment(remote: Remote) -> None:
    """The network thread sees a channel that is not released; then the task releases it; then the buffer is queued."""
    channel = remote.channel

    class Overtaken(type(channel._received)):  # type: ignore[misc]
        def append(self, item: Buffer | Event) -> None:
            channel.release()
            super().append(item)

    channel._received = Overtaken()
    segments = channel.take_segments(1)
    assert segments is not None
    assert segments is not NO_MEMORY_YET
    channel.on_data(BufferResponse(0, 0, 0, False, 1), segments)
    assert "gate, exclusive" not in remote.network.holders()


def test_a_channel_released_before_it_was_requested_cancels_nothing(remote: Remote) -> None:
    other = GateChannels(input_parts(remote.network, exclusive=0, floating=1), InputGate(lambda: None), "other", 1)
    other.add_remote((0, 0, 0), remote)
    other.release()
    assert remote.posted == []


# ---- how full pools are


def test_the_usage_of_an_output_is_its_segments_that_hold_data(local: Local) -> None:
    assert output_usage([local.pool]).ratio == 0
    local.write(bytes(3 * SIZE))
    assert output_usage([local.pool]) == Usage(3, 4)
    assert output_usage([local.pool]).ratio == 0.75
    assert exclusive_usage([local.channel]) == floating_usage([], [local.channel]) == Usage()
    assert Usage().ratio == 0, "a task without buffers"
    local.read()
    assert output_usage([local.pool]) == Usage(0, 4)


def test_the_usage_of_an_input_leaves_out_buffers_that_stand_ready(remote: Remote) -> None:
    def usage() -> tuple[Usage, Usage]:
        return exclusive_usage([remote.channel]), floating_usage([remote.floating], [remote.channel])

    assert usage() == (Usage(0, 2), Usage(0, 3))
    remote.arrive(remote.frame(b"1", backlog=3))
    assert remote.floating.in_use == 3
    assert usage() == (Usage(1, 2), Usage(0, 3)), "floating ones stand ready"
    remote.arrive(remote.frame(b"2", backlog=2) + remote.frame(b"3", backlog=1))
    assert usage() == (Usage(1, 2), Usage(2, 3))
    assert sum(usage(), Usage()).ratio == 3 / 5
    remote.arrive(remote.frame(b"4") + remote.frame(b"5"))
    assert usage() == (Usage(2, 2), Usage(3, 3))
    assert remote.poll() == b"1"
    assert remote.poll() == b"2"
    assert remote.poll() == b"3"
    assert remote.poll() == b"4"
    assert remote.poll() == b"5"
    assert usage() == (Usage(0, 2), Usage(0, 3))
    remote.channel.release()
    assert usage() == (Usage(0, 2), Usage(0, 3))
