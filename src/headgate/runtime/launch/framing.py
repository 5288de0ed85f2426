"""Frames and exit codes between a driver and its processes. A frame is a length, followed by this number of bytes.

This module imports almost nothing, so that the fork server's client loads fast.
"""

from __future__ import annotations

import os

_LENGTH = 8
#: The exit codes of a TaskManager's process. A user's function is unlikely to use the same codes. DONE: the TaskManager
#: ended, and the driver knows the reason.
DONE = 100
#: The TaskManager failed, and could not report this to the driver.
NOT_REPORTED = 101
#: The TaskManager lost its link to the driver, and nothing else failed.
CUT_OFF = 102


def framed(data: bytes) -> bytes:
    """Return the data as a frame."""
    return len(data).to_bytes(_LENGTH, "big") + data


def read(pipe: int) -> bytes | None:
    """Read a frame from a pipe. Returns the frame's data, or None if the pipe ends before the frame does."""
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
