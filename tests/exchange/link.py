"""Two ends of a data link and a wire you hold: real pools, partition, sender, receiver, channels and gate, no sockets.

Nothing moves by itself. Bytes cross in cuts of any size, and what threads would tell each other waits in a queue until
it is delivered. The link counts what it sees on the wire and checks the laws of credit after each step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headgate.config import Config
from headgate.errors import ExchangeError
from headgate.exchange.channels import RemoteInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.partition import ResultPartition
from headgate.exchange.subpartition import PipelinedSubpartition
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.buffer_builder import BufferConsumer
from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment
from headgate.protocol.credit import BufferManager, SenderCredit
from headgate.protocol.decoders import NO_MEMORY_YET, NoMemoryYet, RequestDecoder
from headgate.protocol.messages import (
    BUFFER_RESPONSE,
    BUFFER_RESPONSE_ID,
    EVENT_BUFFER,
    MAX_RUN,
    TURN,
    AddCredit,
    BufferResponse,
    OfChannel,
    PartitionRequest,
    ResumeConsumption,
)
from headgate.protocol.receiver import Receiver
from headgate.protocol.sender import Sender
from headgate.records.events import (
    Alignment,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Event,
    blocks,
    decode_event,
    is_priority,
)
from headgate.records.spanning import SpanningSerializer
from headgate.runtime.task.exchange_parts import ExchangeParts, GateChannels
from tests.memory.conftest import CheckedLocks

SEGMENT = 16
#: What a channel carries, one number each: a byte is itself, then these.
END_OF_DATA, END_OF_PARTITION, BARRIER = 256, 257, 258
TOKENS: dict[type[Event], int] = {
    EndOfData: END_OF_DATA,
    EndOfPartition: END_OF_PARTITION,
    CheckpointBarrier: BARRIER,
}
ALL = 1 << 20


class OneAtATime:
    """Locks of which a thread never holds two: so none can wait for another, and none is held during a callback."""

    def __init__(self) -> None:
        self.held = False

    def __call__(self) -> OneAtATime:
        return self

    def __enter__(self) -> None:
        assert not self.held, "a lock was taken while another was held"
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


def output_parts(
    memory: NetworkBufferPool, extra: int, cap: int, clock: Callable[[], float] = lambda: 0.0, **options: Any
) -> ExchangeParts:
    """Makes outputs that may have `extra` segments more than they can run with, and `cap` in one subpartition."""
    config = Config(buffers_per_channel=1, floating_buffers_per_gate=1 + extra, max_buffers_per_channel=cap, **options)
    return ExchangeParts(config, memory, OneAtATime(), clock)


def input_parts(memory: NetworkBufferPool, exclusive: int, floating: int, **options: Any) -> ExchangeParts:
    """Makes inputs with so many buffers."""
    config = Config(buffers_per_channel=exclusive, floating_buffers_per_gate=floating, **options)
    return ExchangeParts(config, memory, OneAtATime())


def buffers_in(polled: tuple[int, list[Buffer] | Event] | None) -> list[Buffer]:
    """What a gate gave, which is no event."""
    assert polled is not None
    _, given = polled
    assert isinstance(given, list)
    return given


def write_bytes(partition: ResultPartition, channel: int, data: bytes, *, overdraft: bool = False) -> int:
    """Write as much of `data` as finds room; returns how many bytes that was."""
    record = SpanningSerializer([memoryview(data)])
    if data:
        assert partition.write(channel, record, overdraft=overdraft) == (not record.remaining)
    return len(data) - record.remaining


class WatchedChannel(RemoteInputChannel):
    """A remote channel that counts the buffers it fills and checks that it takes as many as its backlog calls for."""

    taken = 0
    backlog = 0
    #: What it wants of the floating buffers without a backlog, while data may come.
    share = 0
    expects_data = False
    has_ended = False
    released = False
    #: Credit ends with the partition; that of a channel without buffers of its own also with a barrier that blocks it.
    forget_credit: Callable[[], None]
    #: An aligned barrier has arrived.
    on_barrier_in: Callable[[], None]

    @property
    def credits(self) -> BufferManager:
        return self._buffers  # type: ignore[return-value]

    @property
    def floating(self) -> int:
        return len(self._buffers._floating)  # type: ignore[attr-defined]

    def take_segments(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        segments = super().take_segments(count)
        assert segments is not NO_MEMORY_YET, "credit that no buffer stands for"
        self.taken += len(segments or ())
        return segments

    def on_read(self, backlog: int) -> None:
        self._heed(backlog, lambda: super(WatchedChannel, self).on_read(backlog))

    def on_backlog(self, backlog: int) -> None:
        self._heed(backlog, lambda: super(WatchedChannel, self).on_backlog(backlog))

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        event = decode_event(body)
        is_blocked, self.has_ended = blocks(event), isinstance(event, EndOfPartition)
        self._heed(response.backlog, lambda: super(WatchedChannel, self).on_event(response, body), is_blocked)
        if is_blocked:
            self.on_barrier_in()
        if self.has_ended or (is_blocked and not self.credits.initial_credit):
            assert not self.credits.free, "a channel that gets nothing holds buffers that others could use"
            self.forget_credit()

    def _heed(self, backlog: int, heed: Callable[[], None], is_blocked: bool = False) -> None:
        before = self.floating
        heed()
        self.backlog, self.expects_data = backlog, not is_blocked
        if self.floating > before:
            self.assert_not_greedy()
        assert self.released or not self.is_missing_what_is_free, "2.5: a floating buffer is free, and is not taken"

    @property
    def wanted(self) -> int:
        if self.has_ended:
            return 0
        return max(self.backlog, self.share if self.expects_data else 0) + self.credits.initial_credit

    @property
    def is_missing_what_is_free(self) -> bool:
        return self.credits.free < self.wanted and self.credits._pool.free > 0

    def assert_not_greedy(self) -> None:
        assert self.credits.free <= self.wanted, f"2.6 c: has {self.credits.free} free buffers, wanted {self.wanted}"


class Link:
    """`channels` channels from one partition to one gate; 2.5 and 2.6 are sections of the rules of Flink's protocol."""

    def __init__(self, *, channels: int, exclusive: int, floating: int, extra: int, cap: int, overdraft: int) -> None:
        self.count = channels
        self.cap = cap
        # The producer's end.
        self.producer_memory = NetworkBufferPool(channels + 1 + extra + overdraft, SEGMENT, CheckedLocks())
        parts = output_parts(self.producer_memory, extra, cap, max_overdraft_buffers_per_gate=overdraft)
        self.partition = parts.partition("partition", channels, self._on_segment_free)
        self.pool = self.partition.pool
        self.sender = Sender(self._open_view, self._post_data)
        self.pieces: list[bytes | memoryview] = []
        self.sending: list[Buffer] = []
        # The wire, and what threads have yet to hear.
        self.to_consumer, self.to_producer = bytearray(), bytearray()
        # What one read takes, and what one write has room for, where nothing else is said.
        self.read_size, self.room = ALL, MAX_RUN
        self.data_posts: deque[int] = deque()
        self.credit_posts: deque[int] = deque()
        self.message_posts: deque[OfChannel] = deque()
        self.cancel_posts: deque[int] = deque()
        # The consumer's end.
        self.consumer_memory = NetworkBufferPool(channels * exclusive + floating, SEGMENT, CheckedLocks())
        self.receiver = Receiver(SEGMENT)
        self.gate = InputGate(lambda: None)
        made = GateChannels(input_parts(self.consumer_memory, exclusive, floating), self.gate, "gate", channels)
        [self.floating] = made.pools
        self.channels = [self._channel(index, made) for index in range(channels)]
        self.gate.channels = self.channels
        self.held: deque[Buffer] = deque()
        # The books, per channel.
        self.granted = [exclusive] * channels
        self.delivered = [0] * channels
        self.spent = [0] * channels
        self.all_granted = [0] * channels
        self.injected: list[deque[int]] = [deque() for _ in range(channels)]  # bytes before each aligned barrier
        self.aligned = 0
        self.sequence = [0] * channels
        self.written: list[list[int]] = [[] for _ in range(channels)]
        self.visible = [0] * channels
        self.sent = [0] * channels
        self.read: list[list[int]] = [[] for _ in range(channels)]
        self.ended = [False] * channels
        self.barriers = 0
        self.stopped: set[int] = set()  # channels whose producer has sent a barrier that blocks them
        self.blocked: set[int] = set()  # channels whose consumer has seen it
        self.overtaking = [0] * channels
        self.overtook = [0] * channels
        self.kept: list[tuple[list[Buffer], bytes]] = []  # overtaken, and held for a while
        self.wakes = 0
        self.short: dict[int, int] = {}  # channels whose last write fell short, and the wakes until then
        self._granting, self._delivering = RequestDecoder(), RequestDecoder()
        for channel in self.channels:
            assert self.receiver.request(channel) == channel.index

    def _channel(self, index: int, made: GateChannels) -> WatchedChannel:
        channel = WatchedChannel(
            index=index,
            address=(0, 0, index),
            buffers_of=made.buffers,
            notify=self.gate.notify,
            notify_priority=self.gate.notify_priority,
            connection=self,
        )
        channel.forget_credit = lambda: self._forget_credit(index)
        channel.on_barrier_in = lambda: self._check_aligned(index)
        channel.share = self.floating.size if self.count == 1 else self.floating.size // (2 * self.count)
        return channel

    def _forget_credit(self, index: int) -> None:
        self.granted[index] = self.channels[index].taken

    # ---- what threads tell each other

    def _on_segment_free(self) -> None:
        self.wakes += 1

    def _post_data(self, receiver: int) -> None:
        self.data_posts.append(receiver)

    def credit_available(self, receiver: int) -> None:
        self.credit_posts.append(receiver)

    def send(self, message: OfChannel) -> None:
        self.message_posts.append(message)

    def cancel(self, receiver: int) -> None:
        self.cancel_posts.append(receiver)

    def deliver_posts(self) -> None:
        while self.data_posts:
            self.sender.data_available(self.data_posts.popleft())
        while self.credit_posts:
            self.receiver.credit_available(self.credit_posts.popleft())
        while self.message_posts:
            self.receiver.send(self.message_posts.popleft())
        while self.cancel_posts:
            self.receiver.cancel(self.cancel_posts.popleft())

    # ---- the producer's task

    def write(self, channel: int, count: int) -> int:
        """Write up to `count` numbered bytes; returns how many found room."""
        tokens = self.written[channel]
        data = bytes((len(tokens) + i) * 7 + channel & 0xFF for i in range(count))
        done = write_bytes(self.partition, channel, data, overdraft=count % 2 == 1)
        self.short.pop(channel, None)
        if done < count:
            self.short[channel] = self.wakes
        tokens.extend(data[:done])
        builder = self.partition._builders[channel]
        self.visible[channel] = max(self.visible[channel], len(tokens) - (builder.size if builder else 0))
        return done

    def flush(self, channel: int) -> None:
        self.partition.flush(channel)
        self.visible[channel] = len(self.written[channel])

    def write_event(self, channel: int) -> None:
        self.partition.write_event(channel, EndOfData())
        self.written[channel].append(END_OF_DATA)
        self.visible[channel] = len(self.written[channel])

    def write_barrier(self, channel: int) -> None:
        """A barrier in order, which blocks its channel."""
        self.barriers += 1
        self.injected[channel].append(sum(token < END_OF_DATA for token in self.written[channel]))
        self.partition.write_event(channel, CheckpointBarrier(self.barriers, 0))
        self.written[channel].append(BARRIER)
        self.visible[channel] = len(self.written[channel])

    def overtake(self, channel: int) -> None:
        """A barrier that goes before all that is not yet sent."""
        self.barriers += 1
        barrier = CheckpointBarrier(self.barriers, 0, Alignment.UNALIGNED)
        overtaken = self.partition.subpartition(channel).overtake(barrier)
        if not self.partition.subpartition(channel).is_released:
            self.overtaking[channel] += 1
            waiting = [token for token in self.written[channel][self.sent[channel] :] if token < END_OF_DATA]
            kept = b"".join(view for buffer in overtaken for view in buffer.views)
            assert kept == bytes(waiting), "not what is overtaken"
            self.kept.append((overtaken, kept))

    def let_go(self) -> None:
        """The data that barriers have overtaken are stored, and no longer needed. They were there all the time."""
        for overtaken, kept in self.kept:
            assert b"".join(view for buffer in overtaken for view in buffer.views) == kept, "came back too early"
            recycle_all(overtaken)
        self.kept = []

    def end(self, channel: int) -> None:
        self.partition.write_event(channel, EndOfPartition())
        self.written[channel].append(END_OF_PARTITION)
        self.visible[channel] = len(self.written[channel])
        self.ended[channel] = True

    # ---- the network threads

    def _open_view(self, request: PartitionRequest, notify: Callable[[], None]) -> PipelinedSubpartition:
        if request.subpartition >= self.count:
            raise ExchangeError(f"no subpartition {request.subpartition}")
        subpartition = self.partition.subpartition(request.subpartition)
        subpartition.attach(notify, sends_empty=request.credit == 0)
        return subpartition  # type: ignore[return-value]

    def produce(self, room: int) -> None:
        """Let the sender choose what goes next, of about `room` segments, once the last is wholly written."""
        if self.pieces:
            return
        self.pieces, self.sending = self.sender.next_frames(room)  # type: ignore[assignment]
        sent = sum(len(buffer.segments) for buffer in self.sending)
        assert sent < room + TURN or len(self.sender._readers) == 1, f"{sent} segments in a turn of about {room}"
        backlogs: dict[int, int] = {}
        for number, piece in enumerate(self.pieces):
            if isinstance(piece, bytes) and piece[8] == BUFFER_RESPONSE_ID:
                receiver, backlog = self._count_sent(piece, self.pieces[number + 1 : number + 2])
                backlogs[receiver] = backlog
        for receiver, backlog in backlogs.items():
            waiting = self.partition.subpartition(receiver).reported_backlog
            is_right = backlog == waiting or self._is_behind_read_buffer(receiver)  # a flush of nothing
            assert is_right, f"a backlog of {backlog} was announced, but {waiting} buffers wait"

    def _count_sent(self, header: bytes, payload: list[bytes | memoryview]) -> tuple[int, int]:
        """Return the receiver and its announced backlog."""
        _, _, _, receiver, sequence, backlog, kind, size = BUFFER_RESPONSE.unpack(header)
        assert sequence == self.sequence[receiver], "2.6 e: sequence numbers are dense"
        assert receiver not in self.stopped, "something was sent behind a barrier that blocks"
        count = 1 if kind == EVENT_BUFFER else max(1, -(-size // SEGMENT))
        self.sequence[receiver] += count
        if kind == EVENT_BUFFER:
            event = decode_event(payload[0])
            self.sent[receiver] += not is_priority(event)
            if blocks(event):
                self.stopped.add(receiver)
            return receiver, backlog
        self.sent[receiver] += size
        self.spent[receiver] += count
        assert self.spent[receiver] <= self.delivered[receiver], "2.6 b: data were sent without credit"
        return receiver, backlog

    def write_socket(self, count: int) -> None:
        """Put `count` bytes of what is being sent on the wire; what is wholly written is recycled."""
        while count and self.pieces:
            piece = self.pieces[0]
            self.to_consumer += piece[:count]
            if len(piece) > count:
                self.pieces[0] = memoryview(piece)[count:]
                return
            count -= len(piece)
            del self.pieces[0]
        if not self.pieces:
            for buffer in self.sending:
                buffer.recycle()
            self.sending = []

    def receive(self, count: int) -> None:
        """Read up to `count` bytes from the wire as one call of the socket would."""
        chunk = bytes(self.to_consumer[:count])
        done = 0
        for place in self.receiver.buffers():
            part = chunk[done : done + len(place)]
            place[: len(part)] = part
            done += len(part)
        del self.to_consumer[:done]
        if done:
            self.receiver.received(done)
            self.receiver.notify_channels()

    def send_control(self) -> None:
        data = self.receiver.data_to_send()
        for message in self._granting.feed(data):
            if isinstance(message, AddCredit):
                self.granted[message.receiver] += message.credit
        self.to_producer += data

    def receive_control(self, count: int) -> None:
        chunk = bytes(self.to_producer[:count])
        del self.to_producer[:count]
        for message in self._delivering.feed(chunk):
            if isinstance(message, AddCredit | PartitionRequest):
                self.delivered[message.receiver] += message.credit
                self.all_granted[message.receiver] += message.credit
            elif isinstance(message, ResumeConsumption):
                self.stopped.discard(message.receiver)
                if not self.channels[message.receiver].credits.initial_credit:
                    self.delivered[message.receiver] = self.spent[message.receiver]
        self.sender.receive(chunk)

    # ---- the consumer's task

    def consume(self, limit: int = 1) -> bool:
        """Take buffers, of about `limit` segments, or an event; buffers stay held until `recycle`. False when there is
        nothing."""
        while (urgent := self.gate.poll_priority()) is not None:
            self.overtook[urgent[0]] += 1
        polled = self.gate.poll(limit)
        if polled is None:
            return False
        channel, taken = polled
        if isinstance(taken, list):
            for buffer in taken:
                self.read[channel].extend(b"".join(buffer.views))
            self.held.extend(taken)
        else:
            self.read[channel].append(TOKENS[type(taken)])
            if blocks(taken):
                self.blocked.add(channel)
        got = self.read[channel]
        assert got == self.written[channel][: len(got)], "lost, doubled or reordered"
        return True

    def recycle(self, which: int, count: int = 1) -> None:
        """Finish some of the buffers that were consumed, together."""
        self.held.rotate(-(which % len(self.held)))
        before = [channel.floating for channel in self.channels]
        recycle_all([self.held.popleft() for _ in range(min(count, len(self.held)))])
        for channel, floating in zip(self.channels, before, strict=True):
            if channel.floating > floating:
                channel.assert_not_greedy()

    def resume(self) -> None:
        """Have the producers go on behind the barriers that were seen."""
        for channel in self.blocked:
            if not self.channels[channel].released:
                self.channels[channel].resume()
        self.blocked.clear()

    def release(self, channel: int) -> None:
        """The consumer takes leave of a channel, whatever is still to come."""
        self.channels[channel].released = True
        self.channels[channel].release()

    # ---- laws

    def check(self) -> None:
        """What holds after every step."""
        self.producer_memory.validate()
        self.consumer_memory.validate()
        self.partition.validate()
        self.gate.validate()
        for index, wakes in self.short.items():
            has_room = self.pool.free > 0 and self.pool.outstanding(index) < self.cap
            assert self.wakes > wakes or not has_room, (
                "a writer with an incomplete write was not woken by a free segment"
            )
        kept = {segment.index for overtaken, _ in self.kept for buffer in overtaken for segment in buffer.segments}
        free = {segment.index for segment in (*self.pool._free, *self.producer_memory._free)}
        assert kept.isdisjoint(free), "a segment came back while it had a reference"
        ready = list(self.sender._ready)
        assert len({id(reader) for reader in ready}) == len(ready), "2.6 f: a reader is queued twice"
        readers = self.sender._readers
        assert all(reader.queued == (reader in ready) for reader in readers.values()), (
            "2.6 f: queued, but not in the queue"
        )
        for channel in self.channels:
            channel.credits.validate()
            index = channel.index
            if index in readers:
                credit = readers[index].credit.available
                assert credit == self.delivered[index] - self.spent[index], "the producer miscounts its credit"
                granted = readers[index].credit.granted
                assert granted == self.all_granted[index], "the producer miscounts what it was granted"
            self._check_counts(channel)
        if not any(channel.released for channel in self.channels):
            on_the_way = self.partition.bytes_out - sum(channel.bytes_in for channel in self.channels)
            memory = self.producer_memory.total_segments + self.consumer_memory.total_segments
            assert 0 <= on_the_way <= memory * SEGMENT, f"{on_the_way} bytes are on the way, more than the pools hold"
            if not channel.released:
                credit = self.granted[index] + channel.credits.unannounced - channel.taken
                assert credit == channel.credits.free, (
                    f"2.6 a: {credit} credits for {channel.credits.free} free buffers"
                )

    def _check_counts(self, channel: WatchedChannel) -> None:
        """What the ends count: what is on the way between them, and no more than the consumer has buffers for."""
        index, subpartition = channel.index, self.partition.subpartition(channel.index)
        assert subpartition.buffers_sent == self.spent[index], "a buffer was sent, and not counted"
        if not channel.released:
            on_the_way = subpartition.buffers_sent - channel.buffers_in
            assert 0 <= on_the_way <= self.consumer_memory.total_segments, f"{on_the_way} buffers are on the way"
            size = subpartition.bytes_sent - channel.bytes_in
            assert 0 <= size <= on_the_way * SEGMENT, f"{size} bytes are on the way in {on_the_way} buffers"

    def _check_aligned(self, index: int) -> None:
        """An aligned barrier has arrived: both ends have counted the same, which is what was written before it."""
        channel, subpartition = self.channels[index], self.partition.subpartition(index)
        before = self.injected[index].popleft()
        if channel.released:
            return
        self.aligned += 1
        assert channel.bytes_in == subpartition.bytes_sent == before, "bytes before a barrier are missing"
        assert channel.buffers_in == subpartition.buffers_sent, "buffers before a barrier are missing"

    def settle_producer(self) -> None:
        """Put on the wire what credit allows."""
        self.receive_control(ALL)
        self.deliver_posts()
        self.write_socket(ALL)
        self.produce(self.room)
        self.write_socket(ALL)

    def settle(self) -> None:
        """Move all that moves while the tasks stand still, and check that it stops only where it must."""
        for _ in range(1000):
            self.deliver_posts()
            self.send_control()
            self.receive_control(ALL)
            self.produce(self.room)
            self.write_socket(ALL)
            while self.to_consumer:
                self.receive(self.read_size)
            self.check()
            posts = self.data_posts or self.credit_posts or self.message_posts or self.cancel_posts
            if not (posts or self.pieces or self.to_consumer or self.to_producer or self.sender.has_output):
                break
        else:
            raise AssertionError("the link never comes to rest")
        for channel in self.channels:
            if not channel.released:
                self._check_at_rest(channel)

    def _check_at_rest(self, channel: WatchedChannel) -> None:
        index, credits = channel.index, channel.credits
        assert not credits.unannounced, "credit was never announced"
        self._check_waits(channel)
        assert self.gate.has_data or not channel.queue_length, "the gate does not know of data"
        if index in self.stopped:
            return
        waits = self.visible[index] > self.sent[index]
        has_credit = self.delivered[index] > self.spent[index]
        assert not (waits and has_credit), "stuck: there are data and credit"
        seen_all = self._is_behind_read_buffer(index)
        assert not waits or seen_all or credits.initial_credit or channel.backlog, (
            "stuck: the consumer does not know the backlog"
        )
        if waits:
            assert self.written[index][self.sent[index]] < END_OF_DATA or self._is_behind_read_buffer(index), (
                "stuck: events need no credit"
            )
        assert not channel.is_missing_what_is_free, (
            "2.5: a floating buffer is free, and a channel lacks it for its backlog or its share"
        )
        while (urgent := self.gate.poll_priority()) is not None:
            self.overtook[urgent[0]] += 1
        assert self.overtook[index] == self.overtaking[index], "stuck: nothing holds back a barrier that overtakes"

    def _check_waits(self, channel: WatchedChannel) -> None:
        """The clocks of both ends run while data wait for them, and at no other time."""
        subpartition, credits = self.partition.subpartition(channel.index), channel.credits
        credit = subpartition.credit
        assert isinstance(credit, SenderCredit)
        starves = not credit.available and subpartition.reported_backlog > 0
        assert credit._waiting.is_waiting == starves, "the wait for credit is not measured"
        expects = (channel.backlog > 0 or credits.initial_credit > 0) and channel.expects_data
        lacks = expects and not channel.has_ended and not credits.free
        assert credits._without.is_waiting == lacks, "the time without a buffer is not measured"

    def _is_behind_read_buffer(self, index: int) -> bool:
        """An event behind a buffer whose bytes have all been sent is not yet at the head of its queue."""
        queue = self.partition.subpartition(index)._queue
        return bool(queue) and isinstance(queue[0], BufferConsumer) and not queue[0].has_unread

    # ---- the end

    def run_to_the_end(self, more: int) -> None:
        """Every producer writes `more` bytes and ends; a consumer that goes on consuming must make that possible."""
        self.let_go()
        left = [0 if ended else more for ended in self.ended]
        for _ in range(200 + 20 * more * self.count):
            for index in range(self.count):
                if not self.ended[index]:
                    left[index] -= self.write(index, left[index])
                    if not left[index]:
                        self.write_event(index)
                        self.end(index)
            self.settle()
            while self.consume():
                pass
            for channel in self.channels:
                if not channel.released and self.read[channel.index][-1:] == [END_OF_PARTITION]:
                    self.release(channel.index)
            while self.held:
                self.recycle(0)
            self.resume()
            if all(self.ended) and all(channel.released for channel in self.channels):
                break
        else:
            raise AssertionError(f"stuck: wrote {list(map(len, self.written))}, read {list(map(len, self.read))}")
        self.settle()
        assert self.sender.closed, "the consumer's leave did not arrive"
        assert self.partition.is_consumed, "the consumer's leave did not arrive"

    def cut(self, count: int) -> None:
        """The connection breaks after `count` more bytes: both ends let go of it, and every channel hears why."""
        for index in range(self.count):
            if not self.ended[index]:
                self.write(index, 2 * SEGMENT)
        self.settle_producer()
        self.receive(count)
        for channel in self.receiver.fail():
            channel.on_error(ExchangeError("cut"))
        open_views = list(self.sender._readers)
        self.sender.release()
        assert all(self.partition.subpartition(index).is_released for index in open_views), (
            "a view is open without a reader"
        )
        self.pieces = []
        self.write_socket(0)
        hopeful = [channel for channel in self.channels if not channel.released]
        assert not hopeful or self._hears_of_the_cut(), "the loss of the connection was not reported"
        for channel in hopeful:
            self.release(channel.index)
        while self.held:
            self.recycle(0)
        self.let_go()

    def _hears_of_the_cut(self) -> bool:
        try:
            while self.consume():
                pass
        except ExchangeError as error:
            return error.message == "cut"
        return False

    def close(self) -> None:
        """All memory must be back, at both ends."""
        self.partition.release()
        self.pool.destroy()
        self.floating.destroy()
        for memory in (self.producer_memory, self.consumer_memory):
            memory.validate()
            assert memory.holders() == {}, f"not returned: {memory.holders()}"
            memory.close()
