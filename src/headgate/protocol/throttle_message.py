"""The message of a data link that carries a throttle's signal, and its bytes.

Body: `kind u8 | content`. A task is `vertex u32 | subtask u32`. A `BackPressureStatus` has kind 1 and the content
`taskmanager u32 | number u32 | full u16 | tasks`; the first `full` tasks are the full ones. A `JStormStop` has kind 2
and the content `sender u32 | taskmanager u32 | task | stops u8`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias

from headgate.errors import ExchangeError
from headgate.throttle.mechanism import Task
from headgate.throttle.stage_signals import BackPressureStatus, JStormStop

#: The signals that go to the senders of a TaskManager, on the connections of their data.
StageSignal: TypeAlias = BackPressureStatus | JStormStop

_KIND: Final = struct.Struct(">B")
_STATUS: Final = struct.Struct(">BIIH")
_STOP: Final = struct.Struct(">BIIIIB")
_TASK: Final = struct.Struct(">II")
_STATUS_KIND, _STOP_KIND = 1, 2
#: The most tasks in one message. A longer status goes in several messages.
MOST_TASKS: Final = 4096
_NUMBER: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Throttle:
    """C->P: subtasks of the consumer's TaskManager stop their senders, or release them."""

    id: ClassVar[int] = 11
    signal: StageSignal

    def body(self) -> bytes:
        signal = self.signal
        if isinstance(signal, JStormStop):
            return _STOP.pack(_STOP_KIND, signal.sender, signal.taskmanager, *signal.task, signal.stops)
        head = _STATUS.pack(_STATUS_KIND, signal.taskmanager, signal.number & _NUMBER, len(signal.full))
        return head + b"".join(_TASK.pack(*task) for task in (*signal.full, *signal.free))

    @classmethod
    def parse(cls, body: bytes) -> Throttle:
        (kind,) = _KIND.unpack_from(body)
        if kind == _STOP_KIND:
            _, sender, taskmanager, vertex, subtask, stops = _STOP.unpack(body)
            return cls(JStormStop(sender, taskmanager, (vertex, subtask), stops=bool(_flag(stops))))
        if kind == _STATUS_KIND:
            return cls(_status(body))
        raise ExchangeError(f"stream corrupted: a throttle's signal of the unknown kind {kind}")


def _flag(value: int) -> int:
    if value > 1:
        raise ExchangeError(f"stream corrupted: a throttle's signal with the flag {value}")
    return value


def _status(body: bytes) -> BackPressureStatus:
    _, taskmanager, number, full = _STATUS.unpack_from(body)
    rest = body[_STATUS.size :]
    if len(rest) % _TASK.size or full > len(rest) // _TASK.size:
        raise ExchangeError(f"stream corrupted: a status of {full} full tasks in {len(body)} bytes")
    tasks: list[Task] = list(_TASK.iter_unpack(rest))
    return BackPressureStatus(taskmanager, number, full=tuple(tasks[:full]), free=tuple(tasks[full:]))


def in_messages(signal: StageSignal) -> Iterator[Throttle]:
    """Yield the messages that carry a signal: one, or several if it has more than `MOST_TASKS` tasks.

    The receiver handles each message as a signal of its own. Together they have the effect of the whole signal.
    """
    if isinstance(signal, JStormStop) or len(signal.full) + len(signal.free) <= MOST_TASKS:
        yield Throttle(signal)
        return
    for at in range(0, max(len(signal.full), len(signal.free)), MOST_TASKS // 2):
        part = slice(at, at + MOST_TASKS // 2)
        yield Throttle(replace(signal, full=signal.full[part], free=signal.free[part]))
