"""Input channels: one queue per producer subtask. The local one reads the subpartition directly, without copy or
credit; a remote one receives from the network, into buffers that its kind of flow control gives it.

A channel hands the task some buffers or an event; the task copies the bytes out and recycles the buffers at once, since
that is what returns credit.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headgate.errors import ExchangeError, HeadgateError
from headgate.exchange.blocking import Subpartition
from headgate.exchange.compression import all_decompressed
from headgate.memory.buffer import Buffer
from headgate.memory.segment import MemorySegment
from headgate.protocol.decoders import NoMemoryYet
from headgate.protocol.messages import (
    AckAllUserRecordsProcessed,
    BufferResponse,
    NewBufferSize,
    OfChannel,
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

#: Events that wait for the task. Buffers are bounded by their memory, but events need no credit: more than this come
#: from no producer that waits for its consumer's word behind a barrier.
_MAX_WAITING: Final = 1 << 16

#: Of so many barriers a channel knows where they came. A checkpoint begins when the one before has ended, so those of
#: more than a few are of checkpoints that were given up.
_REMEMBERED: Final = 64

#: Told, from any thread, when a channel without data has some again.
NotifyGate = Callable[[int], None]


class InputChannel:
    """What the gate needs of either kind."""

    index: int
    #: Data bytes handed to the task.
    bytes_polled = 0

    def start(self) -> None:
        """Start to read, now that a listener is there."""

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        """The next buffers, of about `limit` segments, or the next event, or None; and whether there is more. Raises
        what made the channel fail."""
        raise AssertionError("an input channel is local or remote")

    def poll_priority(self) -> Event | None:
        """The next priority event, if there is one."""
        raise AssertionError("an input channel is local or remote")

    def resume(self) -> None:
        """Have the producer go on behind the aligned barrier that blocked this channel."""

    def prioritise(self, checkpoint: int) -> None:
        """An announced barrier has been acted upon: `poll` passes over it when it comes to it."""

    def acknowledge(self) -> None:
        """Tell the producer that all its records have been processed."""

    def announce_buffer_size(self, size: int) -> None:
        """Ask the producer for buffers of `size` bytes at most."""

    def bytes_before(self, checkpoint: int) -> int:
        """All data bytes that arrived before a checkpoint's barrier, or so far if that has not arrived."""
        return self.bytes_polled

    def peek(self, size: int) -> list[memoryview]:
        """A copy of the next `size` bytes that wait for the task, which still gets them."""
        return []

    def release(self) -> None:
        """Take leave: also what is still queued is given back."""

    @property
    def queue_length(self) -> int:
        return 0

    @property
    def buffers_in_use(self) -> int:
        """Data buffers on their way to the task, those included that still wait at the producer."""
        return 0

    @property
    def exclusive_buffers(self) -> int:
        """Buffers that belong to the channel alone; none to one that reads what its producer holds."""
        return 0

    @property
    def free_exclusive_buffers(self) -> int:
        """Of these, how many stand ready for data."""
        return 0

    @property
    def free_floating_buffers(self) -> int:
        """Buffers taken from the gate's pool that stand ready for data."""
        return 0

    @property
    def queued_bytes(self) -> int:
        """Received and not yet polled; what a local channel reads still belongs to its producer."""
        return 0

    @property
    def bytes_spilled(self) -> int:
        """Data bytes that went to disk while a barrier blocked the channel, in all; only without credit."""
        return 0


def bytes_of(polled: list[Buffer] | Event | None) -> int:
    """The data bytes in what `poll` returned."""
    return sum(buffer.size for buffer in polled) if isinstance(polled, list) else 0


class LocalInputChannel(InputChannel):
    """A subpartition of the same TaskManager."""

    def __init__(self, index: int, subpartition: Subpartition, notify: NotifyGate, notify_priority: NotifyGate) -> None:
        self.index = index
        self._subpartition = subpartition
        self._notify = notify
        self._notify_priority = notify_priority

    def start(self) -> None:
        self._subpartition.attach(lambda: self._notify(self.index), lambda: self._notify_priority(self.index))

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        polled, more = self._take(limit)
        self.bytes_polled += bytes_of(polled)
        return polled, more

    def _take(self, limit: int) -> tuple[list[Buffer] | Event | None, bool]:
        """What the subpartition has."""
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

    def acknowledge(self) -> None:
        self._subpartition.acknowledge()

    def announce_buffer_size(self, size: int) -> None:
        self._subpartition.buffer_size = size

    @property
    def buffers_in_use(self) -> int:
        return self._subpartition.backlog

    def release(self) -> None:
        self._subpartition.release()


class Connection(Protocol):
    """The consumer's end of a data link, as a channel sees it; all may be called from any thread."""

    def credit_available(self, receiver: int) -> None:
        """The channel has new credit; or without credit, the buffer that a frame of its waited for."""

    def tell(self, message: OfChannel) -> None: ...

    def cancel(self, receiver: int) -> None: ...


class ChannelBuffers(Protocol):
    """The memory of one remote channel; see `BufferManager`, which is that of credit."""

    @property
    def initial_credit(self) -> int: ...

    @property
    def free_exclusive(self) -> int: ...

    @property
    def free_floating(self) -> int: ...

    def take(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None: ...

    def recycle(self, *segments: MemorySegment) -> None: ...

    def on_backlog(self, backlog: int) -> None: ...

    def block(self) -> None: ...

    def take_unannounced(self) -> int: ...

    def release(self) -> None: ...


#: Makes a channel's buffers; is given what to call when the connection is to look at them again.
BuffersOf = Callable[[Callable[[], None]], ChannelBuffers]


class RemoteInputChannel(InputChannel):
    """A subpartition of another TaskManager, at `address` (edge, producer, subpartition). `on_*` run on the network
    thread, `poll` and what follows on the task thread.

    Barriers that overtake, and announcements of those that may yet, wait in a queue of their own. `poll` gives the task
    such a barrier before any data: what it has overtaken stands behind it, and must not be worked on before the task
    has taken its part of the checkpoint.
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
        self._barriers_at: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # and the bytes that came before them
        self._prioritised = 0
        self._sequence = 0
        self._released = False
        self._error: HeadgateError | None = None
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
            raise ExchangeError(f"a producer sent events without end: {_MAX_WAITING} wait for the task")
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
        elif isinstance(event, EndOfPartition):  # nothing more comes
            self._buffers.release()
        else:
            self._buffers.on_backlog(response.backlog)

    @property
    def _events_waiting(self) -> int:
        return sum(not isinstance(item, Buffer) for item in tuple(self._received)) + len(self._priority)

    def _on_barrier(self, barrier: CheckpointBarrier, response: BufferResponse) -> None:
        if barrier.blocks and response.backlog:
            raise ExchangeError(f"a backlog of {response.backlog} came with the barrier that blocks its channel")
        self._barriers_at.append((barrier.id, self.bytes_in))
        if barrier.is_announced:
            self._priority.append(Announcement(response.sequence, barrier))
            self._notify_priority(self.index)

    def on_backlog(self, backlog: int) -> None:
        self._backlog = backlog
        self._buffers.on_backlog(backlog)

    def _push(self, sequence: int, item: Buffer | Event, count: int = 1) -> None:
        self._received.append(item)
        if self._released:  # perhaps since a moment ago: the thread that sees it last gives the buffer back
            self._drop_received()
        self._check_sequence(sequence, count)

    def _check_sequence(self, sequence: int, count: int = 1) -> None:
        expected, self._sequence = self._sequence, (self._sequence + count) & 0xFFFFFFFF
        if sequence != expected and not self._released:
            raise ExchangeError(f"buffer {sequence} came where {expected} was expected")

    def _drop_received(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                item = self._received.popleft()
                if isinstance(item, Buffer):
                    item.recycle()

    def on_error(self, error: HeadgateError) -> None:
        """The connection or the producer failed."""
        self._error = error
        self._notify(self.index)

    # --- the task thread's side

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        received = self._received
        buffers: list[Buffer] = []
        while received and limit > 0:
            item = received[0]
            if self._priority and self._is_overtaken:  # after a look at the item, or that may stand behind the barrier
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
        """An announced barrier that has been acted upon; one before it has been too, or it had not been sent."""
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
        self._tell(ResumeConsumption)

    def acknowledge(self) -> None:
        self._tell(AckAllUserRecordsProcessed)

    def announce_buffer_size(self, size: int) -> None:
        if self._receiver is not None:
            self._connection.tell(NewBufferSize(size, self._receiver))

    def _tell(self, message: type[ResumeConsumption] | type[AckAllUserRecordsProcessed]) -> None:
        if self._receiver is not None:
            self._connection.tell(message(self._receiver))

    def release(self) -> None:
        self._released = True
        self._drop_received()
        self._buffers.release()
        if self._receiver is not None:
            self._connection.cancel(self._receiver)

    @property
    def queue_length(self) -> int:
        return sum(len(item.segments) if isinstance(item, Buffer) else 1 for item in tuple(self._received))

    @property
    def buffers_in_use(self) -> int:
        return self.queue_length + self._backlog

    @property
    def queued_bytes(self) -> int:
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
