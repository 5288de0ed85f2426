"""The objects that record what passes the two ends of a channel while the channel is traced.

Each wraps another object, and passes all calls on to it. They exist only while a trace runs, so a channel without a
trace costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from headgate.errors import ExchangeError
from headgate.memory.segment import MemorySegment
from headgate.protocol.credit import HasBacklog
from headgate.protocol.decoders import NoMemoryYet
from headgate.protocol.messages import BufferResponse, PartitionRequest
from headgate.protocol.receiver import ReceivingChannel
from headgate.protocol.sender import Credit, PolledBuffer, SubpartitionView

#: At the producer: data were sent, or an AddCredit arrived ("credited"). At the consumer: data were received, an
#: AddCredit was sent ("granted"), or the task read buffers.
TraceKind: TypeAlias = Literal["sent", "credited", "received", "granted", "read"]
#: Records an event: the `kind`, `buffers`, `number` and `left` of a `TraceEvent`.
Note: TypeAlias = Callable[[TraceKind, int, int, int], None]


class TracedView:
    """The view of a subpartition. It records each data buffer that is polled."""

    def __init__(self, view: SubpartitionView, note: Note) -> None:
        self.traced = view
        self._note = note

    def poll(self, limit: int) -> list[PolledBuffer]:
        polled = self.traced.poll(limit)
        for each in polled:
            if not each.is_event:
                self._note("sent", max(1, len(each.buffer.segments)), each.sequence, each.backlog)
        return polled

    def is_available(self, has_credit: bool) -> bool:
        return self.traced.is_available(has_credit)

    @property
    def reported_backlog(self) -> int:
        return self.traced.reported_backlog

    def resume(self) -> None:
        self.traced.resume()

    def acknowledge(self) -> None:
        self.traced.acknowledge()

    @property
    def buffer_size(self) -> int | None:
        return self.traced.buffer_size

    @buffer_size.setter
    def buffer_size(self, size: int | None) -> None:
        self.traced.buffer_size = size

    @property
    def writer_rests(self) -> bool:
        return self.traced.writer_rests

    @property
    def credit(self) -> Credit | None:
        return self.traced.credit

    @credit.setter
    def credit(self, credit: Credit | None) -> None:
        self.traced.credit = credit

    def credit_changed(self, is_whole: bool) -> None:
        self.traced.credit_changed(is_whole)

    def release(self) -> None:
        self.traced.release()


class TracedCredit:
    """The credit of a channel at its producer. It records each AddCredit that arrives."""

    def __init__(self, credit: Credit, note: Note) -> None:
        self.traced = credit
        self._note = note

    def add(self, credit: int) -> None:
        self.traced.add(credit)
        self._note("credited", credit, self.traced.granted, self.traced.available)

    @property
    def available(self) -> int:
        return self.traced.available

    def spend(self, count: int) -> None:
        self.traced.spend(count)

    def on_resume(self) -> None:
        self.traced.on_resume()

    @property
    def granted(self) -> int:
        return self.traced.granted

    @property
    def waited_s(self) -> float:
        return self.traced.waited_s

    def note_backlog(self, view: HasBacklog) -> None:
        self.traced.note_backlog(view)

    def note_new_data(self, view: HasBacklog) -> None:
        self.traced.note_new_data(view)

    @property
    def is_whole(self) -> bool:
        return self.traced.is_whole

    @property
    def needs_announcement(self) -> bool:
        return self.traced.needs_announcement


class TracedReceivingChannel:
    """A remote channel at its consumer. It records each data buffer that is received and each AddCredit that is sent.

    `announced` returns the total credit announced so far, not counting the buffers that are being filled.
    """

    def __init__(self, channel: ReceivingChannel, announced: Callable[[], int], note: Note) -> None:
        self.traced = channel
        self._announced = announced
        self._note = note
        self._filling = 0

    def request(self, receiver: int) -> PartitionRequest:
        return self.traced.request(receiver)

    def take_segments(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        segments = self.traced.take_segments(count)
        self._filling = 0 if segments is None or isinstance(segments, NoMemoryYet) else len(segments)
        return segments

    def recycle(self, *segments: MemorySegment) -> None:
        self._filling = 0
        self.traced.recycle(*segments)

    def on_data(self, response: BufferResponse, segments: Sequence[MemorySegment]) -> None:
        self._filling = 0
        self._note("received", len(segments), response.sequence, response.backlog)  # before the task can read them
        self.traced.on_data(response, segments)

    def on_read(self, backlog: int) -> None:
        self.traced.on_read(backlog)

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        self.traced.on_event(response, body)

    def on_backlog(self, backlog: int) -> None:
        self.traced.on_backlog(backlog)

    def on_error(self, error: ExchangeError) -> None:
        self.traced.on_error(error)

    def take_unannounced(self) -> int:
        credit = self.traced.take_unannounced()
        if credit:
            self._note("granted", credit, self._announced() + self._filling, 0)
        return credit
