"""Reads files of /proc and /sys without releasing the interpreter lock.

Python releases the lock around each system call, about seven times per file. Where another thread computes, the reading
thread may wait for the lock each time, up to 5 ms. A report that reads 30 files then takes a second. The kernel makes
the content of these files in some microseconds, so it is better to keep the lock.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
from typing import Final

#: The most bytes that are read of a file.
_MOST: Final = 4096
#: A file stays open only if its descriptor is below this share of the process's limit. The others are for the data.
_SHARE: Final = 0.25
#: The C library, whose functions keep the lock. None on other systems than Linux.
_LIBRARY: Final = ctypes.PyDLL(None) if sys.platform == "linux" else None

if _LIBRARY is not None:
    _LIBRARY.open.argtypes = (ctypes.c_char_p, ctypes.c_int)
    _LIBRARY.pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
    _LIBRARY.pread.restype = ctypes.c_ssize_t
    _LIBRARY.close.argtypes = (ctypes.c_int,)


def read_kernel_file(path: str) -> bytes | None:
    """Return the first 4,096 bytes of a file of /proc or /sys, or None if it cannot be read.

    >>> read_kernel_file("/proc/none") is None
    True
    """
    file = KernelFile(path)
    content = file.read()
    file.close()
    return content


class KernelFile:
    """A file of /proc or /sys that stays open between reads, until `close`: to open it costs more than to read it.

    The first read opens the file. In a process with many open files, each read opens and closes it. Any thread may call
    the methods. `_lock` protects the descriptor: no thread closes it while another reads.
    """

    def __init__(self, path: str) -> None:
        self._path = os.fsencode(path)
        self._lock = threading.Lock()
        self._descriptor = -1
        self._stays_open = True
        self._is_closed = False
        self._content = ctypes.create_string_buffer(_MOST)

    def read(self) -> bytes | None:
        """Return the first 4,096 bytes. Return None if they cannot be read, and after `close`."""
        with self._lock:
            if _LIBRARY is None or self._is_closed:
                return None
            if self._descriptor < 0:
                self._descriptor = _LIBRARY.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                self._stays_open = self._descriptor < _SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            size = _LIBRARY.pread(self._descriptor, self._content, _MOST, 0)  # fails if the file is not open
            content = ctypes.string_at(self._content, size) if size >= 0 else None
            if not self._stays_open:
                self._close()
            return content

    def close(self) -> None:
        """Close the file for good."""
        with self._lock:
            self._is_closed = True
            self._close()

    def _close(self) -> None:
        if _LIBRARY is not None and self._descriptor >= 0:
            _LIBRARY.close(self._descriptor)
        self._descriptor = -1
