"""Events: what ends or divides the elements before it on its channel. Each travels in a buffer of its own, holds no
segment and needs no credit.

Bytes: `tag i32 | body`, tags of Flink's EventSerializer. Ids are whole numbers from 1 on; times are microseconds.
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
    """Base of all events."""

    __slots__ = ()


class Alignment(enum.IntEnum):
    """How a barrier passes what is before it."""

    ALIGNED = 0  #: In order; its channel is blocked until all channels have delivered it.
    TIMEOUT = 1  #: In order, and announced; turns unaligned when that takes longer than its timeout.
    UNALIGNED = 2  #: Overtakes what is queued; what it overtakes belongs to the checkpoint.
    COUNTED = 3  #: In order, and blocks nobody: what follows it may be in the checkpoint, too, and then counts twice.


@dataclass(frozen=True, slots=True)
class CheckpointBarrier(Event):
    """Divides what belongs to checkpoint `id` from what does not. `timestamp` is when it was injected, microseconds
    since the epoch; `timeout` (microseconds from then on) counts for Alignment.TIMEOUT alone. Of a probe nobody keeps
    anything: it is sent to see how it comes through."""

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
        """The producer sends nothing behind it until the consumer asks it to go on."""
        return self.alignment in (Alignment.ALIGNED, Alignment.TIMEOUT)

    @property
    def is_announced(self) -> bool:
        return self.alignment is Alignment.TIMEOUT

    def as_priority(self) -> CheckpointBarrier:
        """The same barrier, from now on overtaking."""
        return replace(self, alignment=Alignment.UNALIGNED)


@dataclass(frozen=True, slots=True)
class CancelMarker(Event):
    """In the place of barrier `id`, which will not come."""

    id: int


@dataclass(frozen=True, slots=True)
class Announcement(Event):
    """A barrier has arrived, and stands in the queue behind other data; `sequence` is its number on its channel."""

    sequence: int
    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class EndOfData(Event):
    """No record follows. With `drain` the end is final, and event time has ended with it."""

    drain: bool = True


@dataclass(frozen=True, slots=True)
class EndOfPartition(Event):
    """Nothing at all follows."""


def is_priority(event: Event) -> bool:
    """Whether an event overtakes what is queued."""
    return isinstance(event, Announcement) or (isinstance(event, CheckpointBarrier) and event.is_priority)


def blocks(event: Event) -> bool:
    """Whether the producer sends nothing behind an event until it is asked to go on."""
    return isinstance(event, CheckpointBarrier) and event.blocks


def encode_event(event: Event) -> bytes:
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
    raise TypeError(f"{event!r} is no event that travels")


def decode_event(body: bytes | memoryview) -> Event:
    """The inverse of `encode_event`. Raises ExchangeError for what no writer sends."""
    try:
        event = _decode(body)
    except (struct.error, ValueError):
        event = None
    if event is None:
        raise ExchangeError(f"stream corrupted: unknown event {bytes(body[:16])!r}")
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
