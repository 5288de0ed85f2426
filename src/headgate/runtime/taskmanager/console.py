"""Sends to the driver, with the subtask's name, the lines that users' functions print in a TaskManager process.

The TaskManager replaces `sys.stdout` and `sys.stderr` while it runs. Whole lines go over the control link, and the
driver prints them as `name[subtask] | line`. This works for `logging` too, because its handlers write to `sys.stderr`.
Functions in a TaskManager that is a thread print to the user's own streams.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from headgate.runtime.control_messages import Printed, Stream
from headgate.runtime.printed_lines import LINE_LENGTH
from headgate.runtime.running_operator import current_operator

#: The most lines per second that one subtask may print, and the most lines at once. Further lines are dropped.
LINES_PER_SECOND: Final = 200

Send = Callable[[Printed], None]


class Console:
    """Sends to the driver the lines that functions of one TaskManager print.

    Any thread may print. `_lock` protects the partial lines and the limits.
    """

    def __init__(self, taskmanager: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._taskmanager = taskmanager
        self._clock = clock
        self._send: Send | None = None
        self._lock = threading.RLock()  # reentrant: a destructor may print while this thread holds it
        self._partial: dict[tuple[str, Stream], str] = {}
        self._limits: dict[tuple[str, Stream], RateLimit] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the process's streams within the context.

        Afterwards the old streams are back, because another job may reuse the process.
        """
        before = sys.stdout, sys.stderr
        sys.stdout = ConsoleStream("stdout", before[0], self)
        sys.stderr = ConsoleStream("stderr", before[1], self)
        try:
            yield
        finally:
            self.disconnect()
            sys.stdout, sys.stderr = before

    def connect(self, send: Send) -> None:
        """Send lines by `send` from now on. Before this call and after `disconnect`, the old streams get the lines."""
        self._send = send

    def disconnect(self) -> None:
        self.flush()
        self._send = None

    def write(self, stream: Stream, text: str) -> bool:
        """Take printed text. Returns False if there is no link to the driver: the caller must then print the text."""
        with self._lock:
            if self._send is None:
                return False
            source = current_operator() or self._taskmanager, stream
            *lines, rest = (self._partial.pop(source, "") + text).split("\n")
            if rest:
                self._partial[source] = rest[:LINE_LENGTH]
            if lines:
                self._deliver(source, lines)
            return True

    def flush(self) -> None:
        """Send incomplete lines, and the number of dropped lines. Call this when no more text may come."""
        with self._lock:
            partial, self._partial = self._partial, {}
            for source, text in partial.items():
                self._deliver(source, [text])
            for source, limit in self._limits.items():
                self._send_lines(source, limit.take_dropped())

    def _deliver(self, source: tuple[str, Stream], lines: list[str]) -> None:
        limit = self._limits.setdefault(source, RateLimit(LINES_PER_SECOND))
        allowed = limit.take(len(lines), self._clock())
        self._send_lines(source, [*(limit.take_dropped() if allowed else []), *map(_shortened, lines[:allowed])])
        limit.count_dropped(len(lines) - allowed)

    def _send_lines(self, source: tuple[str, Stream], lines: Sequence[str]) -> None:
        if lines and self._send is not None:
            self._send(Printed(task=source[0], stream=source[1], lines=list(lines)))


class RateLimit:
    """A token bucket for the lines of one subtask. It holds at most the tokens of one second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._tokens = float(per_second)
        self._at: float | None = None
        self._dropped = 0

    def take(self, lines: int, now: float) -> int:
        """Return how many of `lines` lines may be sent now."""
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        self._tokens = min(float(self._per_second), self._tokens + passed * self._per_second)
        allowed = min(lines, int(self._tokens))
        self._tokens -= allowed
        return allowed

    def count_dropped(self, lines: int) -> None:
        self._dropped += lines

    def take_dropped(self) -> list[str]:
        """Return a line that says how many lines were dropped since the last call. The list is empty if none were."""
        count, self._dropped = self._dropped, 0
        return [f"... {count} lines dropped: more than {self._per_second} in a second"] if count else []


class ConsoleStream(io.TextIOBase):
    """The stream that replaces `sys.stdout` or `sys.stderr` while a TaskManager process runs a job.

    After the job, the stream writes to the process's current stream. A logging handler that holds this stream may
    outlive the job, because another job may reuse the process.
    """

    def __init__(self, name: Stream, before: TextIO, console: Console) -> None:
        self._name = name
        self._before = before
        self._console = console

    def write(self, text: str) -> int:
        if not self._console.write(self._name, text):
            self._behind().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the underlying stream. Incomplete lines stay in the console until the end of the job."""
        self._behind().flush()

    def _behind(self) -> TextIO:
        current: TextIO = getattr(sys, self._name)
        return self._before if id(current) == id(self) else current

    def fileno(self) -> int:
        """Return the descriptor of the replaced stream. Child processes print to this descriptor, not to the
        console."""
        return self._before.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._before.encoding

    @property
    def buffer(self) -> Any:
        return self._before.buffer


def _shortened(line: str) -> str:
    if len(line) <= LINE_LENGTH:
        return line
    return f"{line[:LINE_LENGTH]} ... ({len(line) - LINE_LENGTH} more characters)"
