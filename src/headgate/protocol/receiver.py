"""The consumer's end of a data link: it accepts buffers, and sends requests and credit. The caller does all I/O.

Each channel with new credit is in a queue once. When the connection can write, the receiver takes all credit of each
such channel and sends the credit as one AddCredit (Flink: CreditBasedPartitionRequestClientHandler).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from headgate.errors import ExchangeError, PartitionNotFound
from headgate.memory.segment import MemorySegment
from headgate.protocol.backoff import Backoff
from headgate.protocol.decoders import NO_MEMORY_YET, Item, NoMemoryYet, ResponseDecoder
from headgate.protocol.messages import (
    AddCredit,
    BacklogAnnouncement,
    BufferResponse,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    OfChannel,
    PartitionRequest,
    encode,
)
from headgate.protocol.throttle_message import StageSignal, in_messages

#: The most messages that may wait for the socket: four for each channel of the largest connection. More messages
#: accumulate only when the producer does not read.
_MAX_UNSENT: Final = 1 << 18


class ReceivingChannel(Protocol):
    """The methods of a remote input channel that the receiver calls."""

    def request(self, receiver: int) -> PartitionRequest: ...

    def take_segments(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        """Return memory for a run of `count` segments, or only for its first segments.

        None means that the channel is released: discard the data. NO_MEMORY_YET means that no memory is free now.
        """

    def recycle(self, *segments: MemorySegment) -> None:
        """Take back segments from `take_segments` that were not filled."""

    def on_data(self, response: BufferResponse, segments: Sequence[MemorySegment]) -> None:
        """Accept a data buffer. `on_read` follows when all buffers of one read have been passed on."""

    def on_read(self, backlog: int) -> None:
        """Notify the task of the buffers that were read, and act on the backlog of the last buffer."""

    def on_event(self, response: BufferResponse, body: bytes) -> None: ...

    def on_backlog(self, backlog: int) -> None:
        """Act on the announcement that `backlog` data buffers wait without credit."""

    def on_error(self, error: ExchangeError) -> None: ...

    def take_unannounced(self) -> int: ...


class Receiver:
    """The remote channels of one connection. Only one thread may use this object.

    `new_backoff` makes the waits between repeated requests for a partition that does not exist yet.
    """

    def __init__(self, segment_size: int, new_backoff: Callable[[], Backoff] = Backoff) -> None:
        self._channels: dict[int, ReceivingChannel] = {}
        self._next_receiver = 0
        self._decoder = ResponseDecoder(self, segment_size)
        self._filling: tuple[ReceivingChannel, Sequence[MemorySegment]] | None = None
        self._backlogs: dict[int, int] = {}
        self._outgoing: list[bytes] = []
        self._credited: deque[int] = deque()
        self._new_backoff = new_backoff
        self._backoffs: dict[int, Backoff] = {}
        self._retries: list[tuple[int, float]] = []
        self.bytes_received = 0

    def request(self, channel: ReceivingChannel) -> int:
        """Request a channel's subpartition. Returns the channel's number on this connection."""
        receiver, self._next_receiver = self._next_receiver, self._next_receiver + 1
        self._channels[receiver] = channel
        self._outgoing.append(encode(channel.request(receiver)))
        return receiver

    def replace(self, channel: ReceivingChannel, by: ReceivingChannel) -> bool:
        """Replace a channel by its wrapper, or a wrapper by its channel. Returns whether `channel` is open here."""
        number = next((number for number, each in self._channels.items() if each is channel), None)
        if number is None:
            return False
        self._channels[number] = by
        return True

    def buffers(self) -> list[memoryview]:
        """Return the places for the connection's next bytes."""
        return self._decoder.buffers()

    @property
    def missing(self) -> int:
        """The number of bytes that must arrive before the next message can be complete."""
        return self._decoder.missing

    @property
    def is_stopped(self) -> bool:
        """Whether a frame waits for memory. The caller does not read until the frame has memory."""
        return self._decoder.is_waiting

    def received(self, count: int) -> None:
        """Decode the next `count` bytes, which the caller has read into `buffers()`, and pass them to their channels.

        After the last available byte, call `notify_channels`. Raises ExchangeError when the connection is unusable and
        must be closed.
        """
        self.bytes_received += count
        self._dispatch(self._decoder.received(count))

    def _dispatch(self, items: Iterator[Item]) -> None:
        """Pass decoded messages on to their channels."""
        backlogs = self._backlogs
        for item in items:
            if isinstance(item, ErrorResponse):
                self._on_error(item)
                continue
            if isinstance(item, BacklogAnnouncement):
                channel = self._channels.get(item.receiver)
                if channel is not None:
                    self._pass_backlog(item.receiver, channel)
                    channel.on_backlog(item.backlog)
                continue
            response, body = item
            if response.is_event:
                channel = self._channels.get(response.receiver)
                if channel is not None:
                    self._pass_backlog(response.receiver, channel)
                    channel.on_event(response, body)
            elif self._filling is not None:
                (channel, segments), self._filling = self._filling, None
                channel.on_data(response, segments)
                backlogs[response.receiver] = response.backlog

    def notify_channels(self) -> None:
        """Call `on_read` of each channel that has received data since the previous call."""
        for receiver in list(self._backlogs):
            channel = self._channels.get(receiver)
            if channel is not None:
                self._pass_backlog(receiver, channel)
        self._backlogs.clear()

    def _pass_backlog(self, receiver: int, channel: ReceivingChannel) -> None:
        """Pass on the backlog of the last data buffer, before any newer backlog overwrites it."""
        if receiver in self._backlogs:
            channel.on_read(self._backlogs.pop(receiver))

    # --- the decoder's Memory

    def allocate(self, response: BufferResponse, count: int) -> list[memoryview] | NoMemoryYet | None:
        channel = self._channels.get(response.receiver)
        if channel is None:
            return None
        segments = channel.take_segments(count)
        if segments is None or segments is NO_MEMORY_YET:
            return segments
        self._filling = channel, segments
        return [segment.view for segment in segments]

    # --- errors, credit, leave

    def _on_error(self, response: ErrorResponse) -> None:
        if response.receiver is None:
            raise ExchangeError(f"the producer closed the connection: {response.message}")
        channel = self._channels.get(response.receiver)
        if channel is None:
            return
        wait = self._wait_before_retry(response.receiver) if response.not_found else None
        if wait is not None:
            self._retries.append((response.receiver, wait))
        else:
            error = PartitionNotFound if response.not_found else ExchangeError
            channel.on_error(error(response.message))

    def _wait_before_retry(self, receiver: int) -> float | None:
        if receiver not in self._backoffs:
            self._backoffs[receiver] = self._new_backoff()
        return self._backoffs[receiver].next()

    def take_retries(self) -> list[tuple[int, float]]:
        """Return the channels whose requests must be repeated: their numbers, and the seconds to wait before that."""
        retries, self._retries = self._retries, []
        return retries

    def request_again(self, receiver: int) -> None:
        """Repeat a channel's request. The caller has waited as long as `take_retries` said."""
        channel = self._channels.get(receiver)
        if channel is not None:
            self._outgoing.append(encode(channel.request(receiver)))

    def credit_available(self, receiver: int) -> None:
        """Queue a channel that has unannounced credit. Call it on the thread of this connection."""
        self._credited.append(receiver)

    def send(self, message: OfChannel) -> None:
        """Send a channel's message, unless the channel is cancelled.

        Raises ExchangeError when too many messages wait because the producer does not read.
        """
        if message.receiver not in self._channels:
            return
        if len(self._outgoing) >= _MAX_UNSENT:
            raise ExchangeError(
                f"the producer of channel {message.receiver} does not read: {len(self._outgoing)} messages wait for it"
            )
        self._outgoing.append(encode(message))

    def signal(self, signal: StageSignal) -> None:
        """Send a throttle's signal to the producers."""
        self._outgoing += map(encode, in_messages(signal))

    def cancel(self, receiver: int) -> None:
        """Cancel a channel. If it was the last one, ask the producer to close the connection."""
        if self._channels.pop(receiver, None) is None:
            return
        self._outgoing.append(encode(CancelPartitionRequest(receiver)))
        if not self._channels:
            self._outgoing.append(encode(CloseRequest()))

    def data_to_send(self) -> bytes:
        """Return the requests, messages and credit to write now.

        Call it when the socket can write: until then a channel's credit accumulates into one message.
        """
        while self._credited:
            receiver = self._credited.popleft()
            channel = self._channels.get(receiver)
            credit = channel.take_unannounced() if channel is not None else 0
            if credit:
                self._outgoing.append(encode(AddCredit(credit, receiver)))
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def fail(self) -> list[ReceivingChannel]:
        """Give up the connection and return the channels that were not cancelled. The caller gives them the error."""
        self._decoder.close()
        if self._filling is not None:
            (channel, segments), self._filling = self._filling, None
            channel.recycle(*segments)
        channels = list(self._channels.values())
        self._channels.clear()
        return channels
