"""Where a thread is right now, without any cost to it while it runs well."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

#: Threads of ours that run a user's function are named after its place.
_THREADS = ("headgate-fetcher-", "headgate-")
#: Classes that call operators and sources, each with an OperatorContext as `context`: while one does, a frame of its
#: methods is on the thread's stack. They name themselves, for the driver, which asks too, does not load them.
_CALLERS: list[type[Any]] = []


def calls_operators(kind: type) -> None:
    """Objects of this class have an OperatorContext, and call what it is for."""
    _CALLERS.append(kind)


def operator_of_thread(thread: threading.Thread) -> str | None:
    """`operator[subtask]` of the innermost operator call on a thread's stack; None when it is in none."""
    return _operator_of(sys._current_frames().get(thread.ident or 0))


def current_operator() -> str | None:
    """`operator[subtask]` that the calling thread works for; None for threads that the user started."""
    operator = _operator_of(sys._getframe(1))
    if operator is not None:
        return operator
    name = threading.current_thread().name
    return next((name.removeprefix(prefix) for prefix in _THREADS if name.startswith(prefix)), None)


def _operator_of(frame: FrameType | None) -> str | None:
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        if any(isinstance(owner, kind) for kind in _CALLERS):
            return f"{owner.context.operator}[{owner.context.subtask}]"
        frame = frame.f_back
    return None
