"""What users' functions print in a TaskManager process reaches the driver, line by line, with the subtask's name.

`sys.stdout` and `sys.stderr` are replaced while the TaskManager runs. Whole lines go over the control link and the
driver prints them as `name[subtask] | line`. `logging` needs nothing more: its handlers, and its handler of last
resort, write to `sys.stderr`. A thread TaskManager shares the user's own streams, so there prints simply appear.
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

#: Lines a second that one subtask may print, and how many at once; more are counted and dropped.
LINES_PER_SECOND: Final = 200

Send = Callable[[Printed], None]


class Console:
    """The lines of one TaskManager on their way to the driver. Any thread may print."""

    def __init__(self, taskmanager: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._taskmanager = taskmanager
        self._clock = clock
        self._send: Send | None = None
        self._lock = threading.RLock()  # a destructor may print while we hold it
        self._partial: dict[tuple[str, Stream], str] = {}
        self._limits: dict[tuple[str, Stream], RateLimit] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the place of the process's streams; afterwards they are back, for whatever a reused worker does next."""
        before = sys.stdout, sys.stderr
        sys.stdout = ConsoleStream("stdout", before[0], self)
        sys.stderr = ConsoleStream("stderr", before[1], self)
        try:
            yield
        finally:
            self.disconnect()
            sys.stdout, sys.stderr = before

    def connect(self, send: Send) -> None:
        """There is a way to the driver now. Until then, and after `disconnect`, lines go where they went before."""
        self._send = send

    def disconnect(self) -> None:
        self.flush()
        self._send = None

    def write(self, stream: Stream, text: str) -> bool:
        """Take text as it was printed; returns False when there is no way to the driver."""
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
        """Send what is not yet a whole line, and how many lines were dropped: nothing more will come, perhaps."""
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
    """A bucket that holds one second's lines."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at: float | None = None
        self._dropped = 0

    def take(self, lines: int, now: float) -> int:
        """How many of so many lines may go now."""
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        self._left = min(float(self._per_second), self._left + passed * self._per_second)
        allowed = min(lines, int(self._left))
        self._left -= allowed
        return allowed

    def count_dropped(self, lines: int) -> None:
        self._dropped += lines

    def take_dropped(self) -> list[str]:
        """A line that says how many were dropped since the last one; none if none were."""
        count, self._dropped = self._dropped, 0
        return [f"... {count} lines dropped: more than {self._per_second} in a second"] if count else []


class ConsoleStream(io.TextIOBase):
    """Stands for `sys.stdout` or `sys.stderr`. Once the job is over it passes everything on to what stands there then:
    a logging handler that was made with it may outlive the job in a reused worker."""

    def __init__(self, name: Stream, before: TextIO, console: Console) -> None:
        self._name = name
        self._before = before
        self._console = console

    def write(self, text: str) -> int:
        if not self._console.write(self._name, text):
            self._behind().write(text)
        return len(text)

    def flush(self) -> None:
        """A line goes when it is whole; only the end sends part of one."""
        self._behind().flush()

    def _behind(self) -> TextIO:
        current: TextIO = getattr(sys, self._name)
        return self._before if id(current) == id(self) else current

    def fileno(self) -> int:
        """Of the stream replaced: what child processes print is not ours to see."""
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
