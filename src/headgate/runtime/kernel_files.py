"""Reads files of /proc and /sys without releasing the interpreter lock.

Python releases the lock around each system call, about seven times per file. Where another thread computes, the reading
thread may wait for the lock each time, up to 5 ms. A report that reads 30 files then takes a second. The kernel makes
the content of these files in some microseconds, so it is better to keep the lock.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

#: The most bytes that are read of a file.
_MOST: Final = 4096
#: The C library, whose functions keep the lock. None on other systems than Linux.
_LIBRARY: Final = ctypes.PyDLL(None) if sys.platform == "linux" else None

if _LIBRARY is not None:
    _LIBRARY.open.argtypes = (ctypes.c_char_p, ctypes.c_int)
    _LIBRARY.read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    _LIBRARY.read.restype = ctypes.c_ssize_t
    _LIBRARY.close.argtypes = (ctypes.c_int,)


def read_kernel_file(path: str) -> bytes | None:
    """Return the first 4,096 bytes of a file of /proc or /sys, or None if it cannot be read.

    >>> read_kernel_file("/proc/none") is None
    True
    """
    if _LIBRARY is None:
        return None
    handle = _LIBRARY.open(os.fsencode(path), os.O_RDONLY | os.O_CLOEXEC)
    if handle < 0:
        return None
    content = ctypes.create_string_buffer(_MOST)
    size = _LIBRARY.read(handle, content, _MOST)
    _LIBRARY.close(handle)
    return content.raw[:size] if size >= 0 else None
