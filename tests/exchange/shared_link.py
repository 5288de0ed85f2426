"""One connection to several gates, in either mode of the data plane, and a wire you hold: real pools, partition,
sender, receiver, channels and gates, no sockets. Nothing moves by itself; the wire holds a limited number of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from headgate.config import FlowControl
from headgate.errors import ExchangeError
from headgate.exchange.channel_parts import BuffersOf
from headgate.exchange.channels import RemoteInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.subpartition import PipelinedSubpartition
from headgate.memory.buffer import Buffer
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.credit import BufferManager
from headgate.protocol.data_plane import new_receiver, new_sender
from headgate.protocol.exclusive import ExclusiveBuffers
from headgate.protocol.messages import MAX_RUN, OfChannel, PartitionRequest
from headgate.protocol.outgoing import Outgoing
from headgate.protocol.plain_tcp import SharedBuffers
from headgate.records.events import EndOfPartition
from tests.exchange.link import OneAtATime, output_parts, write_bytes
from tests.memory.conftest import CheckedLocks

SEGMENT = 16
#: What stands for the end in a channel's bytes.
END = 256
ALL = 1 << 20


class SharedLink:
    """`channels[g]` channels to gate g, which has `buffers[g]` buffers: with credit, one exclusive one per channel and
    the rest floating, else all shared."""

    def __init__(
        self,
        flow_control: FlowControl,
        channels: list[int],
        buffers: list[int],
        *,
        extra: int = 4,
        cap: int = 100,
        capacity: int = ALL,
    ) -> None:
        self.count = sum(channels)
        self.gate_of = [gate for gate, many in enumerate(channels) for _ in range(many)]
        self.capacity = capacity
        one = OneAtATime()
        # The producer's end.
        self.producer_memory = NetworkBufferPool(self.count + 1 + extra, SEGMENT, CheckedLocks())
        self.partition = output_parts(self.producer_memory, extra, cap).partition("partition", self.count, lambda: None)
        self.pool = self.partition.pool
        self.sender = new_sender(flow_control, self._open_view, lambda receiver: self.data_posts.append(receiver))
        self.outgoing = Outgoing()
        # The wire, and what threads have yet to hear.
        self.to_consumer, self.to_producer = bytearray(), bytearray()
        self.read_size = ALL  # what one read takes, where nothing else is said
        self.data_posts: deque[int] = deque()
        self.buffer_posts: deque[int] = deque()
        self.cancel_posts: deque[int] = deque()
        # The consumer's end.
        self.consumer_memory = NetworkBufferPool(sum(buffers), SEGMENT, CheckedLocks())
        self.receiver = new_receiver(flow_control, SEGMENT)
        self.gates = [InputGate(lambda: None) for _ in channels]
        self.gate_pools: list[LocalBufferPool] = []
        self.channels: list[RemoteInputChannel] = []
        for gate, many in enumerate(channels):
            own = many if flow_control is FlowControl.CREDIT else 0
            self.gate_pools.append(
                self.consumer_memory.create_local_pool(
                    f"gate {gate}", required=buffers[gate] - own, maximum=buffers[gate] - own
                )
            )
            for _ in range(many):
                self._add_channel(flow_control, gate, one)
        for gate, each in enumerate(self.gates):
            each.channels = [channel for number, channel in enumerate(self.channels) if self.gate_of[number] == gate]
        self.first = [self.gate_of.index(gate) for gate in range(len(channels))]
        self.held: deque[Buffer] = deque()
        # The books, per channel.
        self.written: list[list[int]] = [[] for _ in self.channels]
        self.read: list[list[int]] = [[] for _ in self.channels]
        self.ended = [False] * self.count
        self.released = [False] * self.count

    def _add_channel(self, flow_control: FlowControl, gate: int, one: OneAtATime) -> None:
        number = len(self.channels)
        buffers_of: BuffersOf = partial(SharedBuffers, self.gate_pools[gate], lock_factory=one)
        if flow_control is FlowControl.CREDIT:
            exclusive = ExclusiveBuffers(self.consumer_memory, f"channel {number}")
            buffers_of = partial(
                BufferManager,
                exclusive=exclusive,
                initial_credit=1,
                floating_pool=self.gate_pools[gate],
                channels=self.gate_of.count(gate),
                lock_factory=one,
            )
        within = number - self.gate_of.index(gate)
        channel = RemoteInputChannel(
            within,
            (0, 0, number),
            buffers_of=buffers_of,
            notify=self.gates[gate].notify,
            notify_priority=self.gates[gate].notify_priority,
            connection=self,
        )
        assert self.receiver.request(channel) == number
        self.channels.append(channel)

    # ---- what threads tell each other

    def credit_available(self, receiver: int) -> None:
        self.buffer_posts.append(receiver)

    def send(self, message: OfChannel) -> None:
        raise AssertionError(f"no barrier asked for {message}")

    def cancel(self, receiver: int) -> None:
        self.cancel_posts.append(receiver)

    def deliver_posts(self) -> None:
        while self.data_posts:
            self.sender.data_available(self.data_posts.popleft())
        while self.buffer_posts:
            self.receiver.credit_available(self.buffer_posts.popleft())
        while self.cancel_posts:
            self.receiver.cancel(self.cancel_posts.popleft())

    def _open_view(self, request: PartitionRequest, notify: Callable[[], None]) -> PipelinedSubpartition:
        subpartition = self.partition.subpartition(request.subpartition)
        subpartition.attach(notify)
        return subpartition  # type: ignore[return-value]

    # ---- the producer

    def write(self, channel: int, count: int) -> int:
        """Write and flush up to `count` numbered bytes; returns how many found room."""
        tokens = self.written[channel]
        data = bytes((len(tokens) + i) * 7 + channel & 0xFF for i in range(count))
        done = write_bytes(self.partition, channel, data)
        self.partition.flush(channel)
        tokens.extend(data[:done])
        return done

    def end(self, channel: int) -> None:
        self.partition.write_event(channel, EndOfPartition())
        self.written[channel].append(END)
        self.ended[channel] = True

    def produce(self, room: int = MAX_RUN) -> None:
        if self.outgoing.is_writable:
            self.outgoing.add(*self.sender.next_frames(room))

    def write_socket(self, count: int) -> None:
        """What one call of the socket takes: as much as the wire still holds."""
        count = min(count, self.capacity - len(self.to_consumer))
        data = b"".join(self.outgoing.next_write)[: max(0, count)]
        self.to_consumer += data
        self.outgoing.written(len(data))

    def receive_control(self, count: int) -> None:
        chunk = bytes(self.to_producer[:count])
        del self.to_producer[:count]
        self.sender.receive(chunk)

    # ---- the consumer

    def receive(self, count: int) -> None:
        """Read up to `count` bytes as one call of the socket would, unless reading is stopped."""
        chunk, done = bytes(self.to_consumer[:count]), 0
        places = self.receiver.buffers()
        assert bool(places) != self.receiver.is_stopped
        for place in places:
            part = chunk[done : done + len(place)]
            place[: len(part)] = part
            done += len(part)
        del self.to_consumer[:done]
        if places:
            self.receiver.received(done)
            self.receiver.notify_channels()

    def send_control(self) -> None:
        self.to_producer += self.receiver.data_to_send()

    def consume(self, gate: int, limit: int = 1) -> bool:
        """Take buffers of a gate, of about `limit` segments, or an event; buffers stay held until `recycle`. False when
        there is nothing."""
        polled = self.gates[gate].poll(limit)
        if polled is None:
            return False
        channel, taken = self.first[gate] + polled[0], polled[1]
        if isinstance(taken, list):
            for buffer in taken:
                self.read[channel].extend(b"".join(buffer.views))
            self.held.extend(taken)
        else:
            self.read[channel].append(END)
        got = self.read[channel]
        assert got == self.written[channel][: len(got)], "lost, doubled or reordered"
        return True

    def recycle(self, which: int = 0) -> None:
        """Finish one of the buffers that were consumed."""
        self.held.rotate(-(which % len(self.held)))
        self.held.popleft().recycle()

    def release(self, channel: int) -> None:
        """The consumer takes leave of a channel, whatever is still to come."""
        self.released[channel] = True
        self.channels[channel].release()

    # ---- laws

    def check(self) -> None:
        """What holds after every step."""
        self.producer_memory.validate()
        self.consumer_memory.validate()
        self.partition.validate()
        for channel in self.channels:
            channel._buffers.validate()  # type: ignore[attr-defined]
        assert len(self.to_consumer) <= self.capacity

    def settle(self) -> None:
        """Move all that moves while the tasks stand still, and check that it stops only where it must."""
        for _ in range(1000):
            before = len(self.to_consumer), self.outgoing.unwritten, self.receiver.bytes_received
            self.deliver_posts()
            self.send_control()
            self.receive_control(ALL)
            self.produce()
            self.write_socket(ALL)
            while self.to_consumer and not self.receiver.is_stopped:
                self.receive(self.read_size)
            self.check()
            after = len(self.to_consumer), self.outgoing.unwritten, self.receiver.bytes_received
            if before == after and not (self.data_posts or self.buffer_posts or self.cancel_posts or self.to_producer):
                break
        else:
            raise AssertionError("the link never comes to rest")
        if self.receiver.is_stopped:
            assert any(not pool.free for pool in self.gate_pools), "reading is stopped though every gate has a buffer"
            assert self.held or any(channel.queue_length for channel in self.channels), "stuck: nothing can be consumed"
        else:
            assert not self.to_consumer, "bytes are available but not read"
        for gate, each in enumerate(self.gates):
            waits = any(channel.queue_length for channel in each.channels)
            assert each.has_data or not waits, f"gate {gate} does not know of data"

    # ---- the end

    def run_to_the_end(self, more: int) -> None:
        """Every producer writes `more` bytes and ends; consumers that go on consuming must make that possible."""
        left = [0 if ended else more for ended in self.ended]
        for _ in range(200 + 20 * more * self.count):
            for index in range(self.count):
                if not self.ended[index]:
                    left[index] -= self.write(index, left[index])
                    if not left[index]:
                        self.end(index)
            self.settle()
            for gate in range(len(self.gates)):
                while self.consume(gate):
                    pass
            for index in range(self.count):
                if not self.released[index] and self.read[index][-1:] == [END]:
                    self.release(index)
            while self.held:
                self.recycle()
            if all(self.ended) and all(self.released):
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
        self.deliver_posts()
        self.produce()
        self.write_socket(ALL)
        self.receive(count)
        for channel in self.receiver.fail():
            channel.on_error(ExchangeError("cut"))
        self.sender.release()
        self.outgoing.release()
        for index in range(self.count):
            if not self.released[index]:
                self.release(index)
        while self.held:
            self.recycle()

    def close(self) -> None:
        """All memory must be back, at both ends."""
        self.partition.release()
        self.pool.destroy()
        for pool in self.gate_pools:
            pool.destroy()
        for memory in (self.producer_memory, self.consumer_memory):
            memory.validate()
            assert memory.holders() == {}, f"not returned: {memory.holders()}"
            memory.close()
