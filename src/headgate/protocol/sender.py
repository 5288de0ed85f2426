"""The producer's end of a data link: it accepts requests, and selects the buffers to send. The caller does all I/O.

Readers with data and credit wait in one queue. A turn sends some buffers of the first reader, and puts this reader back
at the end. No channel can therefore starve another channel of the connection. The full buffers of a turn are sent in
one frame. (In Flink's PartitionRequestQueue a turn is one buffer.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Protocol

from headgate.errors import ExchangeError, PartitionNotFound
from headgate.memory.buffer import Buffer, Piece
from headgate.protocol.credit import HasBacklog, SenderCredit
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
from headgate.protocol.throttle_message import StageSignal, Throttle

_MAX_CHANNELS: Final = 1 << 16
#: The most answers that may wait for the socket. A correct consumer has at most one open request per channel. More
#: answers accumulate only when a consumer keeps requesting and does not read.
_MAX_ANSWERS: Final = 1 << 16


class PolledBuffer:
    """One buffer that was polled from a subpartition.

    `backlog` counts the data buffers behind it. `sequence` is the number of its first segment. `next_is_event` is True
    if an event follows, False if data follow, and None if nothing more can be polled now.
    """

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
        """Return the next data buffers, of at most `limit` segments together, or a single event, or an empty list."""

    def is_available(self, has_credit: bool) -> bool:
        """Return whether `poll` has an item that may be sent. Without credit, only an event may be sent."""

    @property
    def writer_rests(self) -> bool:
        """Whether the task that has just notified the sender is to send the data itself."""

    @property
    def reported_backlog(self) -> int:
        """The number of data buffers that could be sent now, if the consumer had credit for them."""

    def resume(self) -> None:
        """Resume after an aligned barrier. Raises ExchangeError if no barrier blocks the subpartition."""

    def acknowledge(self) -> None:
        """Record that the consumer has processed all records."""

    #: The most bytes that the consumer wants in one buffer; None for a full segment.
    buffer_size: int | None
    #: The credit of the remote consumer. The sender sets it, and metrics read it.
    credit: Credit | None

    def credit_changed(self, is_whole: bool) -> None:
        """Record whether the consumer has consumed all buffers sent to it; see `Credit.is_whole`."""

    def release(self) -> None: ...


class Credit(Protocol):
    """The number of data buffers that may still be sent to one channel."""

    @property
    def available(self) -> int: ...

    def add(self, credit: int) -> None:
        """Add credit that the consumer grants. Raises ExchangeError for an impossible amount."""

    def spend(self, count: int) -> None:
        """Subtract the credit of `count` data buffers that are being sent."""

    def on_resume(self) -> None:
        """Adapt the credit when the consumer resumes after a barrier."""

    @property
    def granted(self) -> int:
        """The total of the credit that the consumer has granted."""

    @property
    def waited_s(self) -> float:
        """The seconds in which data waited for credit."""

    def note_backlog(self, view: HasBacklog) -> None:
        """Start or end the measured wait for credit. Call it when the data or the credit may have changed."""

    def note_new_data(self, view: HasBacklog) -> None:
        """Start the measured wait for credit if the credit is 0. Call it when data have been added."""

    @property
    def is_whole(self) -> bool:
        """Whether the consumer seems to have consumed all buffers sent: its exclusive buffers are free again."""

    @property
    def needs_announcement(self) -> bool:
        """Whether the channel needs a BacklogAnnouncement: it has no credit and no exclusive buffers."""


class _Reader:
    """One channel of the connection: its view, its credit and whether it is in the queue."""

    __slots__ = ("credit", "queued", "receiver", "view")

    def __init__(self, receiver: int, view: SubpartitionView, credit: Credit) -> None:
        self.receiver = receiver
        self.view = view
        self.credit = credit
        self.queued = False


#: A function that opens the view of the requested subpartition. The view calls the second argument, on any thread, when
#: data become available. The function raises ExchangeError when the subpartition does not exist, and PartitionNotFound
#: when it may exist later.
OpenView = Callable[[PartitionRequest, Callable[[], None]], SubpartitionView]


#: A function that returns wrappers of a channel's view and credit.
Wrap = Callable[[SubpartitionView, Credit], tuple[SubpartitionView, Credit]]


class Sender:
    """The readers of one connection. Only one thread at a time may use this object.

    A view may notify on any thread. `on_data` then runs on that thread, with the channel's number. `credit_of` makes a
    channel's credit from the initial credit in its request.
    """

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
        #: Called with a throttle's signal of the consumer. A job without such a throttle accepts none.
        self.on_signal: Callable[[StageSignal], None] = _refuse

    def receive(self, data: bytes) -> None:
        """Handle bytes from the consumer. Raises ExchangeError for bytes that no consumer sends."""
        for message in self._decoder.feed(data):
            self._handle(message)

    def _handle(self, message: ToProducer) -> None:
        match message:
            case AddCredit(credit, receiver):
                reader = self._readers.get(receiver)
                if reader is not None:  # a cancelled channel's last credit may still arrive
                    was_whole = reader.credit.is_whole
                    reader.credit.add(credit)
                    if reader.credit.is_whole and not was_whole:
                        reader.view.credit_changed(True)
                    self._enqueue(reader)
                    reader.credit.note_backlog(reader.view)
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
            case Throttle(signal):
                self.on_signal(signal)

    def _open(self, request: PartitionRequest) -> None:
        if request.receiver in self._readers or len(self._readers) >= _MAX_CHANNELS:
            raise ExchangeError(
                f"a second request for channel {request.receiver}, or too many channels: "
                f"{len(self._readers)} of {_MAX_CHANNELS} are open"
            )
        receiver, credit = request.receiver, self._credit_of(request.credit)
        try:
            view = self._open_view(request, lambda: self._on_data(receiver))
        except ExchangeError as error:
            not_found = isinstance(error, PartitionNotFound)
            if len(self._control) >= _MAX_ANSWERS:
                raise ExchangeError(
                    f"the consumer has not read {_MAX_ANSWERS} answers, but also requests channel {receiver}"
                ) from error
            self._control.append(encode(ErrorResponse(error.message, receiver, not_found)))
            return
        self.closed = False
        view.credit = credit
        self._readers[receiver] = reader = _Reader(receiver, view, credit)
        self._enqueue(reader)
        credit.note_backlog(view)

    def _resume(self, receiver: int) -> None:
        reader = self._readers.get(receiver)
        if reader is None:
            return
        reader.credit.on_resume()
        reader.view.resume()
        self._enqueue(reader)
        reader.credit.note_backlog(reader.view)

    def _cancel(self, receiver: int) -> None:
        reader = self._readers.pop(receiver, None)
        if reader is not None:
            reader.view.release()
            reader.credit.note_backlog(reader.view)

    def wrap(self, view: SubpartitionView, wrapped: Wrap) -> bool:
        """Replace a channel's view and credit by the wrappers that `wrapped` returns for them.

        Returns whether the channel is open here.
        """
        reader = next((each for each in self._readers.values() if each.view is view), None)
        if reader is None:
            return False
        reader.view, reader.credit = wrapped(reader.view, reader.credit)
        return True

    def writer_rests(self, receiver: int) -> bool:
        """Return whether the task that has just notified this channel is to send the data itself.

        Any thread may call it.
        """
        reader = self._readers.get(receiver)
        return reader is not None and reader.view.writer_rests

    def data_available(self, receiver: int) -> None:
        """Queue a reader that has data. Call it on the thread of this connection."""
        reader = self._readers.get(receiver)
        if reader is not None:
            self._enqueue(reader)
            reader.credit.note_new_data(reader.view)

    def _enqueue(self, reader: _Reader) -> None:
        if not reader.queued and reader.view.is_available(reader.credit.available > 0):
            reader.queued = True
            self._ready.append(reader)
        elif reader.credit.needs_announcement and (backlog := reader.view.reported_backlog):
            self._control.append(encode(BacklogAnnouncement(backlog, reader.receiver)))

    def next_frames(self, room: int = MAX_RUN) -> tuple[list[Piece], list[Buffer]]:
        """Return frames of about `room` segments, as pieces to write in order, and the buffers to recycle afterwards.

        The last turn may exceed `room`, because every turn is complete.
        """
        pieces: list[Piece] = list(self._control)
        self._control.clear()
        buffers: list[Buffer] = []
        ready = self._ready
        while ready and room > 0:
            reader = ready.popleft()
            reader.queued = False
            if self._readers.get(reader.receiver) is not reader:
                continue
            # The only reader gets a turn as long as its credit and the room allow.
            turn = TURN if ready else max(TURN, min(MAX_RUN, room))
            polls = reader.view.poll(max(1, min(turn, reader.credit.available)))
            was_whole = reader.credit.is_whole
            room -= self._frame(reader, polls, pieces)
            if was_whole and not reader.credit.is_whole:
                reader.view.credit_changed(False)
            reader.credit.note_backlog(reader.view)
            buffers += [polled.buffer for polled in polls]
            if polls and self._may_continue(reader, polls[-1]):
                reader.queued = True
                ready.append(reader)
        return pieces, buffers

    def _frame(self, reader: _Reader, polls: list[PolledBuffer], pieces: list[Piece]) -> int:
        """Append one frame for each run of full buffers, and one for each other buffer. Returns the segments sent."""
        sent = 0
        while polls:
            run = polls[: _run_length(polls)]
            polls = polls[len(run) :]
            first, last = run[0], run[-1]
            count = size = 0
            for polled in run:
                count += len(polled.buffer.segments)
                size += polled.buffer.size
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
    def _may_continue(reader: _Reader, last: PolledBuffer) -> bool:
        """Return whether the item after `last` may be sent. An event may always be sent, data only with credit."""
        return last.next_is_event is True or (last.next_is_event is False and reader.credit.available > 0)

    @property
    def has_output(self) -> bool:
        return bool(self._ready or self._control)

    def release(self) -> None:
        """Release all subpartitions after the connection has ended."""
        readers, self._readers = self._readers, {}
        self._ready.clear()
        for reader in readers.values():
            reader.view.release()
            reader.credit.note_backlog(reader.view)


def _refuse(signal: StageSignal) -> None:
    raise ExchangeError(
        f"the consumer sent a throttle's signal ({type(signal).__name__}) to a job without its throttle"
    )


def _run_length(polls: list[PolledBuffer]) -> int:
    """Return how many of the first buffers go into one frame. All of them but the last are full, and none is empty."""
    for at, (polled, following) in enumerate(pairwise(polls)):
        alone = following.is_event or following.buffer.is_compressed or not following.buffer.size
        if alone or not polled.buffer.is_whole:
            return at + 1
    return len(polls)
