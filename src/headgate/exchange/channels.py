"""Input channels: one queue per producer subtask.

A local channel reads the subpartition directly, without copy or credit. A remote channel receives data from the
network, into buffers that its flow control provides. A channel gives the task some buffers or an event. The task copies
the bytes and recycles the buffers at once. Recycling returns credit to the producer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headgate.errors import ExchangeError, HeadgateError
from headgate.exchange.blocking import Subpartition
from headgate.exchange.channel_parts import BuffersOf, Connection
from headgate.exchange.compression import all_decompressed
from headgate.memory.buffer import Buffer
from headgate.memory.segment import MemorySegment
from headgate.protocol.decoders import NoMemoryYet
from headgate.protocol.messages import (
    AckAllUserRecordsProcessed,
    BufferResponse,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
)
from headgate.records.events import (
    Announcement,
    CheckpointBarrier,
    EndOfPartition,
    Event,
    blocks,
    decode_event,
    is_priority,
)

#: The most events of one channel that may wait for the task. Events need no credit, so credit does not limit them. A
#: correct producer never sends this many: it waits after each barrier until its consumer asks it to resume.
_MAX_WAITING: Final = 1 << 16

#: A channel remembers the positions of this many barriers. A checkpoint begins when the previous checkpoint has ended.
#: Older barriers therefore belong to checkpoints that were given up.
_REMEMBERED: Final = 64

#: A callback that takes a channel's index. It runs, on any thread, when the channel has something new for the task.
NotifyGate = Callable[[int], None]


class InputChannel:
    """The interface through which a gate uses its channels, local and remote."""

    index: int
    #: The number of data bytes that the task has polled.
    bytes_polled = 0

    def start(self) -> None:
        """Start to read. The gate must be ready for notifications."""

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        """Return (item, whether more items follow). The item is the next buffers, the next event or None.

        The buffers have about `limit` segments together. Raises the error of a failed channel.
        """
        raise AssertionError("an input channel is local or remote")

    def poll_priority(self) -> Event | None:
        """Return the next priority event, or None."""
        raise AssertionError("an input channel is local or remote")

    def resume(self) -> None:
        """Ask the producer to resume after the aligned barrier that blocks this channel."""

    def block(self) -> None:
        """Return no data until `unblock`, although the producer has resumed. A barrier has its turn in a queue behind
        the gate, and waits there for those of other channels."""

    def unblock(self) -> None:
        """Return data again after `block`."""

    def prioritise(self, checkpoint: int) -> None:
        """Let `poll` skip a checkpoint's barrier, because the task has already acted on its announcement."""

    def acknowledge(self) -> None:
        """Tell the producer that all its records have been processed."""

    def announce_buffer_size(self, size: int) -> None:
        """Ask the producer for buffers of `size` bytes at most."""

    def bytes_before(self, checkpoint: int) -> int:
        """Return the number of data bytes that arrived before a checkpoint's barrier.

        If the barrier has not arrived, return the number of all data bytes until now.
        """
        return self.bytes_polled

    def peek(self, size: int) -> list[memoryview]:
        """Return copies of the waiting buffers that hold the next `size` bytes, without consuming the buffers."""
        return []

    def release(self) -> None:
        """Cancel the channel and recycle its queued buffers."""

    @property
    def queue_length(self) -> int:
        return 0

    @property
    def buffers_in_use(self) -> int:
        """The number of data buffers for the task that wait in this channel or at its producer."""
        return 0

    @property
    def exclusive_buffers(self) -> int:
        """The number of exclusive buffers; 0 for a local channel."""
        return 0

    @property
    def free_exclusive_buffers(self) -> int:
        """The number of exclusive buffers that are ready for data."""
        return 0

    @property
    def free_floating_buffers(self) -> int:
        """The number of floating buffers that are ready for data."""
        return 0

    @property
    def unannounced_credit(self) -> int:
        """The credit that the next AddCredit grants; 0 for a local channel."""
        return 0

    @property
    def without_buffer_s(self) -> float:
        """The seconds in which the channel had no free buffer for data; 0 for a local channel."""
        return 0.0

    @property
    def reader_stops(self) -> int:
        """How often the channel stopped the reading of its connection; always 0 with credit and in a local channel."""
        return 0

    @property
    def queued_bytes(self) -> int:
        """The number of received bytes that the task has not polled yet.

        The number is 0 for a local channel, because the producer counts these bytes.
        """
        return 0

    @property
    def bytes_spilled(self) -> int:
        """The total of data bytes spilled to disk while a barrier blocked the channel. It is 0 with credit."""
        return 0


def bytes_of(polled: list[Buffer] | Event | None) -> int:
    """Return the data bytes in a result of `poll`."""
    return sum(buffer.size for buffer in polled) if isinstance(polled, list) else 0


class LocalInputChannel(InputChannel):
    """A channel that reads a subpartition of the same TaskManager."""

    def __init__(self, index: int, subpartition: Subpartition, notify: NotifyGate, notify_priority: NotifyGate) -> None:
        self.index = index
        self._subpartition = subpartition
        self._notify = notify
        self._notify_priority = notify_priority
        self._is_blocked = False

    def start(self) -> None:
        self._subpartition.attach(lambda: self._notify(self.index), lambda: self._notify_priority(self.index))

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        if self._is_blocked:
            return None, False
        polled, more = self._take(limit)
        self.bytes_polled += bytes_of(polled)
        return polled, more

    def _take(self, limit: int) -> tuple[list[Buffer] | Event | None, bool]:
        """Return the next buffers or the next event of the subpartition, and whether more follows."""
        polls = self._subpartition.poll(limit)
        if not polls:
            return None, False
        more = polls[-1].next_is_event is not None
        if polls[0].is_event:
            return decode_event(polls[0].buffer.view), more
        return all_decompressed([polled.buffer for polled in polls]), more

    def poll_priority(self) -> Event | None:
        return self._subpartition.poll_priority()

    def resume(self) -> None:
        self._subpartition.resume()

    def block(self) -> None:
        self._is_blocked = True

    def unblock(self) -> None:
        self._is_blocked = False
        self._notify(self.index)

    def acknowledge(self) -> None:
        self._subpartition.acknowledge()

    def announce_buffer_size(self, size: int) -> None:
        self._subpartition.buffer_size = size

    @property
    def queue_length(self) -> int:
        return self._subpartition.queue_length

    @property
    def buffers_in_use(self) -> int:
        return self._subpartition.backlog

    def release(self) -> None:
        self._subpartition.release()


class RemoteInputChannel(InputChannel):
    """A channel that receives the subpartition at `address` (edge, producer, subpartition) of another TaskManager.

    The network thread calls the `on_*` methods. The task thread calls `poll` and the methods below `poll`. Priority
    barriers and announcements wait in a queue of their own. `poll` returns a priority barrier before any data: the task
    must take its part of the checkpoint before it processes the data that the barrier has overtaken.
    """

    def __init__(
        self,
        index: int,
        address: tuple[int, int, int],
        *,
        buffers_of: BuffersOf,
        notify: NotifyGate,
        notify_priority: NotifyGate,
        connection: Connection,
    ) -> None:
        self.index = index
        self._address = address
        self._buffers = buffers_of(self._on_credit)
        self._recycle = self._buffers.recycle
        self._notify = notify
        self._notify_priority = notify_priority
        self._connection = connection
        self._receiver: int | None = None
        self._received: deque[Buffer | Event] = deque()
        self._priority: deque[Event] = deque()
        self._barriers_at: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # (checkpoint, bytes before it)
        self._prioritised = 0
        self._sequence = 0
        self._released = False
        self._error: HeadgateError | None = None
        self._is_blocked = False
        self._backlog = 0
        self.bytes_in = 0
        self.buffers_in = 0

    def _on_credit(self) -> None:
        if self._receiver is not None:
            self._connection.credit_available(self._receiver)

    # --- the network thread's side

    def request(self, receiver: int) -> PartitionRequest:
        self._receiver = receiver
        return PartitionRequest(*self._address, receiver, self._buffers.initial_credit)

    def take_segments(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        return self._buffers.take(count)

    def recycle(self, *segments: MemorySegment) -> None:
        self._recycle(*segments)

    def take_unannounced(self) -> int:
        return self._buffers.take_unannounced()

    def on_data(self, response: BufferResponse, segments: Sequence[MemorySegment]) -> None:
        self.bytes_in += response.size
        self.buffers_in += len(segments)
        buffer = Buffer(segments, 0, response.size, self._recycle, response.is_compressed)
        self._push(response.sequence, buffer, len(segments))

    def on_read(self, backlog: int) -> None:
        self._backlog = backlog
        self._notify(self.index)
        self._buffers.on_backlog(backlog)

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        if len(self._received) + len(self._priority) >= _MAX_WAITING <= self._events_waiting:
            raise ExchangeError(
                f"channel {self.index}: the producer sent too many events: {_MAX_WAITING} already wait for the task"
            )
        event = decode_event(body)
        if isinstance(event, CheckpointBarrier):
            self._on_barrier(event, response)
        if is_priority(event):
            self._check_sequence(response.sequence)
            self._priority.append(event)
            self._notify_priority(self.index)
        else:
            self._push(response.sequence, event)
            self._notify(self.index)
        if blocks(event):
            self._buffers.block()
        elif isinstance(event, EndOfPartition):  # no buffer follows
            self._buffers.release()
        else:
            self._buffers.on_backlog(response.backlog)

    @property
    def _events_waiting(self) -> int:
        return sum(not isinstance(item, Buffer) for item in tuple(self._received)) + len(self._priority)

    def _on_barrier(self, barrier: CheckpointBarrier, response: BufferResponse) -> None:
        if barrier.blocks and response.backlog:
            raise ExchangeError(
                f"channel {self.index}: the producer announced a backlog of {response.backlog} behind the barrier of "
                f"checkpoint {barrier.id}, but this barrier blocks the channel"
            )
        self._barriers_at.append((barrier.id, self.bytes_in))
        if barrier.is_announced:
            self._priority.append(Announcement(response.sequence, barrier))
            self._notify_priority(self.index)

    def on_backlog(self, backlog: int) -> None:
        self._backlog = backlog
        self._buffers.on_backlog(backlog)

    def _push(self, sequence: int, item: Buffer | Event, count: int = 1) -> None:
        self._received.append(item)
        if self._released:  # the task thread may have released the channel just now, before it could drop this item
            self._drop_received()
        self._check_sequence(sequence, count)

    def _check_sequence(self, sequence: int, count: int = 1) -> None:
        expected, self._sequence = self._sequence, (self._sequence + count) & 0xFFFFFFFF
        if sequence != expected and not self._released:
            raise ExchangeError(f"channel {self.index}: buffer {sequence} came where {expected} was expected")

    def _drop_received(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                item = self._received.popleft()
                if isinstance(item, Buffer):
                    item.recycle()

    def on_error(self, error: HeadgateError) -> None:
        """Fail the channel, because the connection or the producer failed. `poll` raises the error."""
        self._error = error
        self._notify(self.index)

    # --- the task thread's side

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        received = self._received
        buffers: list[Buffer] = []
        if self._is_blocked:
            if self._error is not None:
                raise self._error
            return None, False
        while received and limit > 0:
            item = received[0]
            if self._priority and self._is_overtaken:  # check after reading the item: a barrier may overtake it
                break
            if isinstance(item, Buffer):
                self.bytes_polled += item.size
                limit -= len(item.segments)
                buffers.append(item)
            elif buffers:
                break
            received.popleft()
            if not (isinstance(item, Buffer) or self._is_passed(item)):
                return item, bool(received) or self._error is not None
        if not buffers and self._priority and self._is_overtaken:
            return self._priority.popleft(), bool(received) or self._error is not None
        if not buffers and self._error is not None:
            raise self._error
        return all_decompressed(buffers) or None, bool(received) or self._error is not None

    @property
    def _is_overtaken(self) -> bool:
        return any(isinstance(event, CheckpointBarrier) for event in tuple(self._priority))

    def _is_passed(self, event: Event) -> bool:
        """Return whether `poll` skips an event. It skips the barrier that `prioritise` named and older barriers."""
        return isinstance(event, CheckpointBarrier) and event.id <= self._prioritised

    def poll_priority(self) -> Event | None:
        return self._priority.popleft() if self._priority else None

    def prioritise(self, checkpoint: int) -> None:
        self._prioritised = checkpoint

    def bytes_before(self, checkpoint: int) -> int:
        return dict(self._barriers_at).get(checkpoint, self.bytes_in)

    def peek(self, size: int) -> list[memoryview]:
        copies: list[memoryview] = []
        for item in tuple(self._received):
            if size <= 0:
                break
            if isinstance(item, Buffer):
                copies.append(memoryview(b"".join(item.views)))
                size -= item.size
        return copies

    def resume(self) -> None:
        self._send_message(ResumeConsumption)

    def block(self) -> None:
        self._is_blocked = True

    def unblock(self) -> None:
        self._is_blocked = False
        self._notify(self.index)

    def acknowledge(self) -> None:
        self._send_message(AckAllUserRecordsProcessed)

    def announce_buffer_size(self, size: int) -> None:
        if self._receiver is not None:
            self._connection.send(NewBufferSize(size, self._receiver))

    def _send_message(self, message: type[ResumeConsumption] | type[AckAllUserRecordsProcessed]) -> None:
        if self._receiver is not None:
            self._connection.send(message(self._receiver))

    def release(self) -> None:
        self._released = True
        self._drop_received()
        self._buffers.release()
        if self._receiver is not None:
            self._connection.cancel(self._receiver)

    @property
    def queue_length(self) -> int:
        if not self._received:
            return 0
        return sum(len(item.segments) if isinstance(item, Buffer) else 1 for item in tuple(self._received))

    @property
    def buffers_in_use(self) -> int:
        return self.queue_length + self._backlog

    @property
    def queued_bytes(self) -> int:
        if not self._received:
            return 0
        return sum(item.size for item in tuple(self._received) if isinstance(item, Buffer))

    @property
    def exclusive_buffers(self) -> int:
        return self._buffers.initial_credit

    @property
    def free_exclusive_buffers(self) -> int:
        return self._buffers.free_exclusive

    @property
    def free_floating_buffers(self) -> int:
        return self._buffers.free_floating

    @property
    def unannounced_credit(self) -> int:
        return self._buffers.unannounced

    def credit_announced(self) -> int:
        """Return the total credit announced so far, not counting the buffers that are being filled now."""
        return self.buffers_in + self._buffers.announced

    @property
    def without_buffer_s(self) -> float:
        return self._buffers.without_buffer_s

    @property
    def reader_stops(self) -> int:
        return self._buffers.reader_stops
