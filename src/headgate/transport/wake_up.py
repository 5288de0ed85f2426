"""`WakeUp`: a descriptor that becomes readable when another thread has work for the thread that waits for it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

#: A write to an eventfd adds a number of 64 bits. A read takes the sum, or up to `_ALL` bytes of a pipe.
_ONE = (1).to_bytes(8, "little")
_ALL = 4096


class WakeUp:
    """An eventfd on Linux, at a third of the cost of a socket pair; a pipe on other systems.

    Any thread may call `set`. After `close`, `set` does nothing: the descriptor may be another file's by then.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._reads = self._writes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reads, self._writes = os.pipe()
            os.set_blocking(self._reads, False)
            os.set_blocking(self._writes, False)
        self._lock = threading.Lock()
        self._is_closed = False

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._reads

    def set(self) -> None:
        """Make the descriptor readable."""
        try:
            with self._lock:
                if not self._is_closed:
                    os.write(self._writes, _ONE)
        except BlockingIOError:  # a full pipe is readable
            pass

    def clear(self) -> None:
        """Make the descriptor unreadable. The waiting thread calls it, when the descriptor is readable."""
        with suppress(BlockingIOError):
            os.read(self._reads, _ALL)

    def close(self) -> None:
        """Close the descriptor. A second call changes nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for descriptor in {self._reads, self._writes}:
                    os.close(descriptor)
