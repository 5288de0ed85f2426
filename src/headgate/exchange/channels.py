"""Input channels: one queue per producer subtask. The local one reads the subpartition directly, without copy or
credit; a remote one receives from the network, into buffers that its kind of flow control gives it.

A channel hands the task `(bytes of a data buffer, recycle)` or an event; the task copies the bytes out and recycles at
once, since that is what returns credit.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headgate.errors import ExchangeError, HeadgateError
from headgate.exchange.subpartition import PipelinedSubpartition
from headgate.memory.buffer import Buffer
from headgate.memory.segment import MemorySegment
from headgate.protocol.messages import BufferResponse, PartitionRequest
from headgate.records.events import Event, decode_event

#: Told, from any thread, when a channel without data has some again.
NotifyGate = Callable[[int], None]


class InputChannel:
    """What the gate needs of either kind."""

    index: int

    def start(self) -> None:
        """Begin to read, now that somebody listens."""

    def poll(self) -> tuple[Buffer | Event | None, bool]:
        """The next buffer or event, or None; and whether there is more. Raises what made the channel fail."""
        raise AssertionError("an input channel is local or remote")

    def release(self) -> None:
        """Take leave: also what is still queued is given back."""

    @property
    def queue_length(self) -> int:
        return 0

    @property
    def queued_bytes(self) -> int:
        """Received and not yet polled; what a local channel reads still belongs to its producer."""
        return 0


class LocalInputChannel(InputChannel):
    """A subpartition of the same TaskManager."""

    def __init__(self, index: int, subpartition: PipelinedSubpartition, notify: NotifyGate) -> None:
        self.index = index
        self._subpartition = subpartition
        self._notify = notify
        self.bytes_in = 0

    def start(self) -> None:
        self._subpartition.attach(lambda: self._notify(self.index))

    def poll(self) -> tuple[Buffer | Event | None, bool]:
        polls = self._subpartition.poll()
        if not polls:
            return None, False
        polled = polls[0]
        more = polled.next_is_event is not None
        self.bytes_in += polled.buffer.size
        if polled.is_event:
            return decode_event(polled.buffer.view), more
        return polled.buffer, more

    def release(self) -> None:
        self._subpartition.release()


class Connection(Protocol):
    """The consumer's end of a data link, as a channel sees it; both may be called from any thread."""

    def credit_available(self, receiver: int) -> None: ...

    def cancel(self, receiver: int) -> None: ...


class ChannelBuffers(Protocol):
    """The memory of one remote channel; see `BufferManager`, which is that of credit."""

    @property
    def initial_credit(self) -> int: ...

    def take(self) -> MemorySegment | None: ...

    def reserve(self, count: int) -> list[MemorySegment]: ...

    def claim(self) -> None: ...

    def unreserve(self, segment: MemorySegment) -> None: ...

    def recycle(self, segment: MemorySegment) -> None: ...

    def on_backlog(self, backlog: int) -> None: ...

    def take_unannounced(self) -> int: ...

    def release(self) -> None: ...


class RemoteInputChannel(InputChannel):
    """A subpartition of another TaskManager, at `address` (edge, producer, subpartition). `on_*` run on the network
    thread, `poll` on the task thread. `buffers_of` is given what to call when the connection is to look at the buffers
    again."""

    def __init__(
        self,
        index: int,
        address: tuple[int, int, int],
        buffers_of: Callable[[Callable[[], None]], ChannelBuffers],
        notify: NotifyGate,
        connection: Connection,
    ) -> None:
        self.index = index
        self._address = address
        self._buffers = buffers_of(self._on_credit)
        self._recycle = self._buffers.recycle
        self._notify = notify
        self._connection = connection
        self._receiver: int | None = None
        self._received: deque[Buffer | Event] = deque()
        self._sequence = 0
        self._released = False
        self._error: HeadgateError | None = None
        self.bytes_in = 0
        self.buffers_in = 0

    def _on_credit(self) -> None:
        if self._receiver is not None:
            self._connection.credit_available(self._receiver)

    # --- the network thread's side

    def request(self, receiver: int) -> PartitionRequest:
        self._receiver = receiver
        return PartitionRequest(*self._address, receiver, self._buffers.initial_credit)

    def take_segment(self) -> MemorySegment | None:
        return self._buffers.take()

    def reserve_segments(self, count: int) -> list[MemorySegment]:
        return self._buffers.reserve(count)

    def claim_segment(self) -> None:
        self._buffers.claim()

    def unreserve_segment(self, segment: MemorySegment) -> None:
        self._buffers.unreserve(segment)

    def recycle(self, segment: MemorySegment) -> None:
        self._buffers.recycle(segment)

    def take_unannounced(self) -> int:
        return self._buffers.take_unannounced()

    def on_segment(self, sequence: int, segment: MemorySegment, size: int) -> None:
        self.bytes_in += size
        self.buffers_in += 1
        self._push(sequence, Buffer(segment, 0, size, self._recycle))

    def on_read(self, backlog: int) -> None:
        self._notify(self.index)
        self._buffers.on_backlog(backlog)

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        self._push(response.sequence, decode_event(body))
        self._notify(self.index)

    def _push(self, sequence: int, item: Buffer | Event) -> None:
        expected, self._sequence = self._sequence, (self._sequence + 1) & 0xFFFFFFFF
        self._received.append(item)
        if self._released:  # perhaps since a moment ago: whoever sees it last gives the buffer back
            self._drop_received()
        elif sequence != expected:
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

    def poll(self) -> tuple[Buffer | Event | None, bool]:
        if self._received:
            item = self._received.popleft()
            return item, bool(self._received) or self._error is not None
        if self._error is not None:
            raise self._error
        return None, False

    def release(self) -> None:
        self._released = True
        self._drop_received()
        self._buffers.release()
        if self._receiver is not None:
            self._connection.cancel(self._receiver)

    @property
    def queue_length(self) -> int:
        return len(self._received)

    @property
    def queued_bytes(self) -> int:
        return sum(item.size for item in tuple(self._received) if isinstance(item, Buffer))
