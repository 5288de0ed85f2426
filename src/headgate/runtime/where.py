"""Where a thread is right now, without any cost to it while it runs well."""

from __future__ import annotations

import sys
import threading

from headgate.runtime.chain import ToOperator
from headgate.runtime.task import SourceHead


def operator_of_thread(thread: threading.Thread) -> str | None:
    """`operator[subtask]` of the innermost operator call on a thread's stack; None when it is in none."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, (ToOperator, SourceHead)):
            return f"{owner.context.operator}[{owner.context.subtask}]"
        frame = frame.f_back
    return None
