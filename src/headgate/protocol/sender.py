"""The producer's end of a data link: which buffer goes next. Bytes of requests in, headers and buffers out; no I/O.

Readers with data and credit stand in one queue; each turn sends some buffers of the first, in one frame as far as they
are full, and puts it back at the end (in Flink's PartitionRequestQueue a turn is one buffer), so no channel can starve
another on the shared connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Protocol

from headgate.errors import ExchangeError, PartitionNotFound
from headgate.memory.buffer import Buffer, Piece
from headgate.protocol.credit import SenderCredit
from headgate.protocol.decoders import RequestDecoder
from headgate.protocol.messages import (
    COMPRESSED_BUFFER,
    DATA_BUFFER,
    EVENT_BUFFER,
    MAX_RUN,
    TURN,
    AckAllUserRecordsProcessed,
    AddCredit,
    BacklogAnnouncement,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    ToProducer,
    encode,
    encode_buffer_response,
)

_MAX_CHANNELS: Final = 1 << 16
#: Answers that wait for the socket. A consumer has one question open for each channel at most; more come from one that
#: goes on asking and does not read.
_MAX_ANSWERS: Final = 1 << 16


class PolledBuffer:
    """One buffer out of a subpartition, its backlog that behind it. `sequence` is the number of its first segment.
    `next_is_event` is None when nothing can be polled behind it."""

    __slots__ = ("backlog", "buffer", "is_event", "next_is_event", "sequence")

    def __init__(self, buffer: Buffer, is_event: bool, backlog: int, sequence: int, next_is_event: bool | None) -> None:
        self.buffer = buffer
        self.is_event = is_event
        self.backlog = backlog
        self.sequence = sequence
        self.next_is_event = next_is_event


class SubpartitionView(Protocol):
    """The reading end of a subpartition."""

    def poll(self, limit: int) -> list[PolledBuffer]:
        """The next buffers, of `limit` segments at most: data, or a single event. Empty when there are none."""

    def is_available(self, has_credit: bool) -> bool:
        """Whether `poll` would return something that may be sent: without credit only an event may."""

    @property
    def reported_backlog(self) -> int:
        """Data buffers that could be sent now, had the consumer room for them."""

    def resume(self) -> None:
        """Go on behind an aligned barrier. Raises ExchangeError if none blocks."""

    def acknowledge(self) -> None:
        """The consumer has processed all records."""

    #: The most that the consumer wants in one buffer, bytes; None for as much as fits.
    buffer_size: int | None

    def credit_changed(self, is_whole: bool) -> None:
        """Whether the consumer has consumed all that it was sent, see `Credit.is_whole`."""

    def release(self) -> None: ...


class Credit(Protocol):
    """How many more data buffers may be sent to one channel."""

    @property
    def available(self) -> int: ...

    def add(self, credit: int) -> None:
        """The consumer grants more. Raises ExchangeError when it cannot."""

    def spend(self, count: int) -> None:
        """So many are being sent."""

    def on_resume(self) -> None:
        """The consumer goes on behind a barrier."""

    @property
    def is_whole(self) -> bool:
        """The consumer has consumed all that it was sent, as far as credit tells: its exclusive buffers are free."""

    @property
    def needs_announcement(self) -> bool:
        """The consumer grants none until a backlog is announced, and no buffer can announce it."""


class _Reader:
    __slots__ = ("credit", "queued", "receiver", "view")

    def __init__(self, receiver: int, view: SubpartitionView, credit: Credit) -> None:
        self.receiver = receiver
        self.view = view
        self.credit = credit
        self.queued = False


#: Opens the reading end of what a request asks for; the `notify` it is given is to be called when data become
#: available, from any thread. Raises ExchangeError when there is no such subpartition, PartitionNotFound when there may
#: be one later.
OpenView = Callable[[PartitionRequest, Callable[[], None]], SubpartitionView]


class Sender:
    """All readers of one connection, on one thread. The `notify` callable that `open_view` is given may be called by
    any thread; it calls `on_data` there. `credit_of` makes a channel's credit from what its request brings."""

    def __init__(
        self, open_view: OpenView, on_data: Callable[[int], None], credit_of: Callable[[int], Credit] = SenderCredit
    ) -> None:
        self._open_view = open_view
        self._on_data = on_data
        self._credit_of = credit_of
        self._decoder = RequestDecoder()
        self._readers: dict[int, _Reader] = {}
        self._ready: deque[_Reader] = deque()
        self._control: deque[bytes] = deque()
        self.closed = False
        self.bytes_sent = 0

    def receive(self, data: bytes) -> None:
        """Bytes from the consumer. Raises ExchangeError when they are not what a consumer may say."""
        for message in self._decoder.feed(data):
            self._handle(message)

    def _handle(self, message: ToProducer) -> None:
        match message:
            case AddCredit(credit, receiver):
                reader = self._readers.get(receiver)
                if reader is not None:  # a cancelled channel's last credit may still be on its way
                    was_whole = reader.credit.is_whole
                    reader.credit.add(credit)
                    if reader.credit.is_whole and not was_whole:
                        reader.view.credit_changed(True)
                    self._enqueue(reader)
            case PartitionRequest():
                self._open(message)
            case ResumeConsumption(receiver):
                self._resume(receiver)
            case AckAllUserRecordsProcessed(receiver):
                if receiver in self._readers:
                    self._readers[receiver].view.acknowledge()
            case NewBufferSize(size, receiver):
                if receiver in self._readers:
                    self._readers[receiver].view.buffer_size = size
            case CancelPartitionRequest(receiver):
                self._cancel(receiver)
            case CloseRequest():
                self.closed = True

    def _open(self, request: PartitionRequest) -> None:
        if request.receiver in self._readers or len(self._readers) >= _MAX_CHANNELS:
            raise ExchangeError(f"a second request for channel {request.receiver}, or too many channels")
        receiver, credit = request.receiver, self._credit_of(request.credit)
        try:
            view = self._open_view(request, lambda: self._on_data(receiver))
        except ExchangeError as error:
            not_found = isinstance(error, PartitionNotFound)
            if len(self._control) >= _MAX_ANSWERS:
                raise ExchangeError(f"a consumer has not read {_MAX_ANSWERS} answers and goes on asking") from error
            self._control.append(encode(ErrorResponse(error.message, receiver, not_found)))
            return
        self.closed = False
        self._readers[receiver] = reader = _Reader(receiver, view, credit)
        self._enqueue(reader)

    def _resume(self, receiver: int) -> None:
        reader = self._readers.get(receiver)
        if reader is None:
            return
        reader.credit.on_resume()
        reader.view.resume()
        self._enqueue(reader)

    def _cancel(self, receiver: int) -> None:
        reader = self._readers.pop(receiver, None)
        if reader is not None:
            reader.view.release()

    def data_available(self, receiver: int) -> None:
        """A subpartition has reported that it has data (the posted notification)."""
        reader = self._readers.get(receiver)
        if reader is not None:
            self._enqueue(reader)

    def _enqueue(self, reader: _Reader) -> None:
        if not reader.queued and reader.view.is_available(reader.credit.available > 0):
            reader.queued = True
            self._ready.append(reader)
        elif reader.credit.needs_announcement and (backlog := reader.view.reported_backlog):
            self._control.append(encode(BacklogAnnouncement(backlog, reader.receiver)))

    def next_frames(self, room: int = MAX_RUN) -> tuple[list[Piece], list[Buffer]]:
        """About `room` segments in frames, as pieces to be written in order, and the buffers to recycle when they are
        written. The turn that takes up the room is not cut short."""
        pieces: list[Piece] = list(self._control)
        self._control.clear()
        buffers: list[Buffer] = []
        ready = self._ready
        while ready and room > 0:
            reader = ready.popleft()
            reader.queued = False
            if self._readers.get(reader.receiver) is not reader:
                continue
            # A reader that is alone has all the turns that its credit pays for.
            turn = TURN if ready else max(TURN, min(MAX_RUN, room))
            polls = reader.view.poll(max(1, min(turn, reader.credit.available)))
            was_whole = reader.credit.is_whole
            room -= self._frame(reader, polls, pieces)
            if was_whole and not reader.credit.is_whole:
                reader.view.credit_changed(False)
            buffers += [polled.buffer for polled in polls]
            if polls and self._may_go_on(reader, polls[-1]):
                reader.queued = True
                ready.append(reader)
        return pieces, buffers

    def _frame(self, reader: _Reader, polls: list[PolledBuffer], pieces: list[Piece]) -> int:
        """A frame for each buffer, but one for full ones and what follows them. Returns the segments sent."""
        sent = 0
        while polls:
            run = polls[: _run_length(polls)]
            polls = polls[len(run) :]
            first, last = run[0], run[-1]
            count = sum(len(polled.buffer.segments) for polled in run)
            size = sum(polled.buffer.size for polled in run)
            kind = EVENT_BUFFER
            if not first.is_event:
                reader.credit.spend(count)
                kind = COMPRESSED_BUFFER if first.buffer.is_compressed else DATA_BUFFER
            pieces.append(encode_buffer_response(reader.receiver, first.sequence, last.backlog, kind, size))
            if size:
                for polled in run:
                    pieces += polled.buffer.pieces
            sent += count
            self.bytes_sent += size
        return sent

    @staticmethod
    def _may_go_on(reader: _Reader, last: PolledBuffer) -> bool:
        """Whether what is behind the last buffer may be sent: an event always, data on credit."""
        return last.next_is_event is True or (last.next_is_event is False and reader.credit.available > 0)

    @property
    def has_output(self) -> bool:
        return bool(self._ready or self._control)

    def release(self) -> None:
        """The connection is gone: let go of all subpartitions."""
        readers, self._readers = self._readers, {}
        self._ready.clear()
        for reader in readers.values():
            reader.view.release()


def _run_length(polls: list[PolledBuffer]) -> int:
    """How many of the first can go in one frame: in a run of segments all but the last are full, and none is empty."""
    for at, (polled, following) in enumerate(pairwise(polls)):
        alone = following.is_event or following.buffer.is_compressed or not following.buffer.size
        if alone or not polled.buffer.is_whole:
            return at + 1
    return len(polls)
