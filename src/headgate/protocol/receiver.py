"""The consumer's end of a data link: buffers in, requests and credit out; no I/O.

Channels that have new credit stand in a queue once each; when the connection can write, their credit is read and zeroed
and goes out as one AddCredit each (Flink: CreditBasedPartitionRequestClientHandler).
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

#: Messages that wait for the socket: four for each of the most channels that a connection has. More come only where
#: the producer does not read.
_MAX_UNSENT: Final = 1 << 18


class ReceivingChannel(Protocol):
    """What the receiver needs of a remote input channel."""

    def request(self, receiver: int) -> PartitionRequest: ...

    def take_segments(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        """Memory for a run of `count` segments, or for the first of them; None when the channel is released and the
        data are to be discarded; NO_MEMORY_YET when there is none now."""

    def recycle(self, *segments: MemorySegment) -> None:
        """Memory from `take_segments` that was not filled after all."""

    def on_data(self, response: BufferResponse, segments: Sequence[MemorySegment]) -> None:
        """A data buffer; `on_read` follows when all that was read together has been handed over."""

    def on_read(self, backlog: int) -> None:
        """Look at what came, and at the backlog that the last buffer announced."""

    def on_event(self, response: BufferResponse, body: bytes) -> None: ...

    def on_backlog(self, backlog: int) -> None:
        """So many data buffers wait, and there is no credit."""

    def on_error(self, error: ExchangeError) -> None: ...

    def take_unannounced(self) -> int: ...


class Receiver:
    """All remote channels of one connection. One thread only. `new_backoff` says when to ask again for a partition that
    is not there yet."""

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
        """Ask for a channel's subpartition. Returns the number by which this connection knows the channel."""
        receiver, self._next_receiver = self._next_receiver, self._next_receiver + 1
        self._channels[receiver] = channel
        self._outgoing.append(encode(channel.request(receiver)))
        return receiver

    def buffers(self) -> list[memoryview]:
        """Where the connection's next bytes go."""
        return self._decoder.buffers()

    @property
    def missing(self) -> int:
        """With fewer bytes than this no message can be completed."""
        return self._decoder.missing

    @property
    def is_stopped(self) -> bool:
        """A frame waits for memory: nothing is read until there is some."""
        return self._decoder.is_waiting

    def received(self, count: int) -> None:
        """`count` bytes came; `tell_channels` follows when all that is there has been read. Raises ExchangeError when
        the connection is of no more use."""
        self.bytes_received += count
        self._dispatch(self._decoder.received(count))

    def _dispatch(self, items: Iterator[Item]) -> None:
        """Hand over what was decoded."""
        backlogs = self._backlogs
        for item in items:
            if isinstance(item, ErrorResponse):
                self._on_error(item)
                continue
            if isinstance(item, BacklogAnnouncement):
                channel = self._channels.get(item.receiver)
                if channel is not None:
                    self._tell_backlog(item.receiver, channel)
                    channel.on_backlog(item.backlog)
                continue
            response, body = item
            if response.is_event:
                channel = self._channels.get(response.receiver)
                if channel is not None:
                    self._tell_backlog(response.receiver, channel)
                    channel.on_event(response, body)
            elif self._filling is not None:
                (channel, segments), self._filling = self._filling, None
                channel.on_data(response, segments)
                backlogs[response.receiver] = response.backlog

    def tell_channels(self) -> None:
        """Have the channels look at what came since the last time."""
        for receiver in list(self._backlogs):
            channel = self._channels.get(receiver)
            if channel is not None:
                self._tell_backlog(receiver, channel)
        self._backlogs.clear()

    def _tell_backlog(self, receiver: int, channel: ReceivingChannel) -> None:
        """Report what the data read so far announced, before anything newer: the newest report must be the last."""
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
            raise ExchangeError(f"the producer gave up the connection: {response.message}")
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
        """Requests that are to be made again: their receivers, and after how many seconds."""
        retries, self._retries = self._retries, []
        return retries

    def request_again(self, receiver: int) -> None:
        """The wait of a retry is over."""
        channel = self._channels.get(receiver)
        if channel is not None:
            self._outgoing.append(encode(channel.request(receiver)))

    def credit_available(self, receiver: int) -> None:
        """A channel has reported that it has unannounced credit (the posted notification)."""
        self._credited.append(receiver)

    def tell(self, message: OfChannel) -> None:
        """Send what a channel has to say, unless it has left. Raises ExchangeError when the producer reads nothing."""
        if message.receiver not in self._channels:
            return
        if len(self._outgoing) >= _MAX_UNSENT:
            raise ExchangeError(f"a producer does not read what it is sent: {_MAX_UNSENT} messages wait for it")
        self._outgoing.append(encode(message))

    def cancel(self, receiver: int) -> None:
        """Take leave of a channel; with the last one, of the connection."""
        if self._channels.pop(receiver, None) is None:
            return
        self._outgoing.append(encode(CancelPartitionRequest(receiver)))
        if not self._channels:
            self._outgoing.append(encode(CloseRequest()))

    def data_to_send(self) -> bytes:
        """Requests, words and credit that are due, as bytes to be written in order. To be asked for when the socket
        takes some: until then a channel's credit goes on gathering, and is one message."""
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
        """The connection is gone: return the channels that still wanted something of it."""
        self._decoder.close()
        if self._filling is not None:
            (channel, segments), self._filling = self._filling, None
            channel.recycle(*segments)
        channels = list(self._channels.values())
        self._channels.clear()
        return channels
