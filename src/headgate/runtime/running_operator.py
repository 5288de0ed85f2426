"""Finds the operator for which a thread runs, from the thread's stack. The thread itself does nothing for this."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

#: Prefixes of the names of Headgate's threads that run a user's function. The operator and subtask follow.
_THREADS = ("headgate-fetcher-", "headgate-")
#: Classes that call operators and sources, each with an OperatorContext as `context`. During such a call, a frame of
#: one of their methods is on the thread's stack. The classes register themselves, because the driver uses this module
#: without importing them.
_CALLERS: list[type[Any]] = []


def calls_operators(kind: type) -> None:
    """Register a class whose objects have an OperatorContext as `context` and call that operator."""
    _CALLERS.append(kind)


def operator_of_thread(thread: threading.Thread) -> str | None:
    """Return `operator[subtask]` of the innermost operator call on a thread's stack, or None without such a call."""
    return _operator_of(sys._current_frames().get(thread.ident or 0))


def current_operator() -> str | None:
    """Return the `operator[subtask]` that the calling thread runs for, or None for a thread that the user started."""
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
