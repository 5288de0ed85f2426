"""What tells a process from the others of its machine."""

from __future__ import annotations

import os
from functools import cache


def process_identity() -> dict[str, int | None]:
    """Return `pid`, the number of this process, and `pid_namespace`, the number of the namespace in which it counts.

    Each container may count its processes from 1. The namespace is None if the system does not provide it.
    """
    pid = os.getpid()
    return {"pid": pid, "pid_namespace": _namespace(pid)}


@cache
def _namespace(_pid: int) -> int | None:
    """Return the namespace of this process. A process that is forked has another number, so it looks for its own."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None
