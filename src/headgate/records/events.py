"""Events: barriers, announcements and ends of a channel. Each event is a buffer of its own, without segment or credit.

Bytes: `tag i32 | body`, with the tags of Flink's EventSerializer. Checkpoint ids start at 1; times are microseconds.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from typing import Final

from headgate.errors import ExchangeError

_TAG: Final = struct.Struct(">i")
_BARRIER: Final = struct.Struct(">iqqBBq")  # tag, id, timestamp, is_probe, alignment, timeout
_CANCEL: Final = struct.Struct(">iq")  # tag, id
_ANNOUNCEMENT: Final = struct.Struct(">iI")  # tag, sequence; the announced event follows
_END_OF_DATA: Final = struct.Struct(">iB")  # tag, drain


class Event:
    """The base class of all events."""

    __slots__ = ()


class Alignment(enum.IntEnum):
    """How a barrier moves through a channel: in order with the data before it, or past this data."""

    ALIGNED = 0  #: In order. It blocks its channel until all channels have delivered it.
    TIMEOUT = 1  #: In order, and announced. It becomes unaligned when alignment takes longer than its timeout.
    UNALIGNED = 2  #: It overtakes queued data, and the checkpoint contains the data that it overtakes.
    COUNTED = 3  #: In order, without blocking. The checkpoint may contain later rows. After a restart they count twice.


@dataclass(frozen=True, slots=True)
class CheckpointBarrier(Event):
    """The barrier of checkpoint `id`: rows before it belong to the checkpoint, rows after it do not.

    `timestamp` is the time when the driver began the checkpoint, in microseconds since the epoch. `timeout`, in
    microseconds after `timestamp`, applies to Alignment.TIMEOUT only. A probe measures how long a barrier takes; no
    task stores state for a probe.
    """

    id: int
    timestamp: int
    alignment: Alignment = Alignment.ALIGNED
    timeout: int = 0
    is_probe: bool = False

    @property
    def is_priority(self) -> bool:
        return self.alignment is Alignment.UNALIGNED

    @property
    def blocks(self) -> bool:
        """Whether the producer sends nothing after the barrier until the consumer asks the producer to resume."""
        return self.alignment in (Alignment.ALIGNED, Alignment.TIMEOUT)

    @property
    def is_announced(self) -> bool:
        return self.alignment is Alignment.TIMEOUT

    def as_priority(self) -> CheckpointBarrier:
        """Return the same barrier as an unaligned one, which overtakes."""
        return replace(self, alignment=Alignment.UNALIGNED)


@dataclass(frozen=True, slots=True)
class CancelMarker(Event):
    """The event that replaces the barrier of checkpoint `id`, because this checkpoint is cancelled."""

    id: int


@dataclass(frozen=True, slots=True)
class Announcement(Event):
    """The notice that a barrier has arrived and waits behind other data.

    `sequence` is the barrier's number on its channel.
    """

    sequence: int
    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class EndOfData(Event):
    """The end of the records. With `drain` the end is final, and event time ends too."""

    drain: bool = True


@dataclass(frozen=True, slots=True)
class EndOfPartition(Event):
    """The end of a subpartition: no buffer follows."""


def is_priority(event: Event) -> bool:
    """Return whether an event overtakes queued data."""
    return isinstance(event, Announcement) or (isinstance(event, CheckpointBarrier) and event.is_priority)


def blocks(event: Event) -> bool:
    """Return whether the producer sends nothing after an event until the consumer asks the producer to resume."""
    return isinstance(event, CheckpointBarrier) and event.blocks


def encode_event(event: Event) -> bytes:
    """Return the bytes of an event. Raises TypeError for another object."""
    match event:
        case EndOfPartition():
            return _TAG.pack(0)
        case CheckpointBarrier(id, timestamp, alignment, timeout, is_probe):
            return _BARRIER.pack(1, id, timestamp, is_probe, alignment, timeout)
        case CancelMarker(id):
            return _CANCEL.pack(4, id)
        case Announcement(sequence, barrier):
            return _ANNOUNCEMENT.pack(6, sequence) + encode_event(barrier)
        case EndOfData(drain):
            return _END_OF_DATA.pack(8, drain)
    raise TypeError(f"{event!r} is not an event that can be sent")


def decode_event(body: bytes | memoryview) -> Event:
    """Return the event in `body`, the inverse of `encode_event`. Raises ExchangeError for corrupt bytes."""
    try:
        event = _decode(body)
    except (struct.error, ValueError):
        event = None
    if event is None:
        raise ExchangeError(f"stream corrupted: unknown event of {len(body)} bytes, {bytes(body[:16])!r}")
    return event


def _decode(body: bytes | memoryview) -> Event | None:
    (tag,) = _TAG.unpack_from(body)
    match tag:
        case 0 if len(body) == _TAG.size:
            return EndOfPartition()
        case 1:
            return _barrier(body)
        case 4:
            _, id = _CANCEL.unpack(body)
            return CancelMarker(id) if id > 0 else None
        case 6:
            _, sequence = _ANNOUNCEMENT.unpack_from(body)
            barrier = _barrier(body[_ANNOUNCEMENT.size :])
            return Announcement(sequence, barrier) if barrier is not None and barrier.is_announced else None
        case 8:
            _, drain = _END_OF_DATA.unpack(body)
            return EndOfData(bool(drain)) if drain <= 1 else None
    return None


def _barrier(body: bytes | memoryview) -> CheckpointBarrier | None:
    tag, id, timestamp, is_probe, alignment, timeout = _BARRIER.unpack(body)
    if tag != 1 or id <= 0 or timeout < 0 or is_probe > 1:
        return None
    return CheckpointBarrier(id, timestamp, Alignment(alignment), timeout, bool(is_probe))
