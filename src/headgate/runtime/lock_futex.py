"""Tells from /proc whether a thread waits for Python's interpreter lock.

On Linux a thread waits for the lock in the system call `futex`, and the futex lies in the interpreter's own data. No
other wait of a Python thread has such an address: the semaphores of Python's locks lie in the heap or on a stack.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

_MAPS = Path("/proc/self/maps")
#: The start of the file `syscall` of a thread that waits for a futex, by the machine's name; on others, no such start.
_FUTEX: Final = {"x86_64": b"202 ", "aarch64": b"98 "}.get(platform.machine(), b"unknown")


def waits_for_the_lock(syscall: bytes, data: range) -> bool:
    """Return whether a thread waits for the interpreter lock.

    `syscall` is the content of the thread's file `syscall` in /proc: the number of the system call and its arguments,
    or the word "running". `data` is where the interpreter's data lie.

    >>> waits_for_the_lock(b"202 0x7f10 0x89 0x0", range(0x7F00, 0x7FFF)), waits_for_the_lock(b"running", range(9))
    (True, False)
    """
    fields = syscall.split(maxsplit=2)
    return len(fields) > 1 and int(fields[1], 16) in data


def waits_for_a_futex(syscall: bytes) -> bool:
    """Return whether a thread is known to wait for a futex: for a lock, or for a signal of another thread.

    `syscall` is the content of the thread's file `syscall` in /proc. Machines number their system calls differently; on
    a machine whose number is not known, the answer is False.
    """
    return syscall.startswith(_FUTEX)


@cache
def interpreter_data() -> range | None:
    """Return the addresses of the interpreter's own data in this process, or None if the system does not show them."""
    try:
        state = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        lines = _MAPS.read_text().splitlines()
    except (OSError, ValueError):  # another system, or an interpreter without this name
        return None
    return data_around(lines, state)


def data_around(maps: Iterable[str], address: int) -> range | None:
    """Return the data in which `address` lies. `maps` are the lines of /proc/self/maps. Data without a value at start
    (`.bss`) follow in a mapping that has no name.

    >>> data_around(["10-20 rw-p 0 fe:00 1 /lib/a", "20-30 rw-p 0 00:00 0", "30-40 rw-p 0 00:00 0 [heap]"], 0x18)
    range(16, 48)
    """
    found: range | None = None
    for line in maps:
        place, *others = line.split()
        begin, end = (int(each, 16) for each in place.split("-"))
        if found is not None:
            follows = begin == found.stop and len(others) == 4 and others[0].startswith("rw")
            return range(found.start, end) if follows else found
        if begin <= address < end:
            found = range(begin, end)
    return found
