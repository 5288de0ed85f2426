"""What a driver and its processes say to each other by a pipe and an exit code: bytes with their length before them.
Imports nothing else: the fork server's client is there at once."""

from __future__ import annotations

import os

_LENGTH = 8
#: Exit codes of a TaskManager, which no function of the user's is likely to leave with: the driver knows how it ended;
DONE = 100
#: it ended badly and could not tell the driver how;
NOBODY_TOLD = 101
#: it lost its link to the driver, and nothing else.
CUT_OFF = 102


def framed(data: bytes) -> bytes:
    """As `read` takes it."""
    return len(data).to_bytes(_LENGTH, "big") + data


def read(pipe: int) -> bytes | None:
    """What was framed; None if the pipe ends before."""
    if (length := _exactly(pipe, _LENGTH)) is None:
        return None
    return _exactly(pipe, int.from_bytes(length, "big"))


def _exactly(pipe: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        if not (part := os.read(pipe, min(size - len(data), 1 << 20))):
            return None
        data += part
    return bytes(data)
