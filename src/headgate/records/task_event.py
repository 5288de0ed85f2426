"""Task events: what a consumer tells the subtasks that produce its input. They go against the data and beside them: in
order among themselves, but with no place between records.

Bytes: `kind u16 | data`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from headgate.errors import ExchangeError

_KIND: Final = struct.Struct(">H")
#: The most that an event may carry, bytes.
MAX_TASK_EVENT: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """`kind` (0 to 65535) says whom it is for, and they know how to read `data`. Raises ExchangeError for another kind
    or too much data."""

    kind: int
    data: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.kind <= 0xFFFF or len(self.data) > MAX_TASK_EVENT:
            raise ExchangeError(
                f"a task event of kind {self.kind} with {len(self.data)} bytes; it must be from 0 to 65535, with "
                f"{MAX_TASK_EVENT} bytes at most"
            )


def encode_task_event(event: TaskEvent) -> bytes:
    return _KIND.pack(event.kind) + event.data


def decode_task_event(body: bytes) -> TaskEvent:
    """The inverse of `encode_task_event`. Raises ExchangeError for one that is too long, struct.error for a piece."""
    (kind,) = _KIND.unpack_from(body)
    return TaskEvent(kind, body[_KIND.size :])
