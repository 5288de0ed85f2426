"""Sample the thread of a task while it runs: on which lines it is, and whether it uses a processor.

A sampler must not see what the interpreter lock lets it see. A thread that wants the lock gets it when the other thread
lets go: when that thread waits or calls a library, or after the switch interval, 5 ms. Then nearly all samples would be
of waits and libraries. So the interval is short while a profile is taken. And samples have a schedule of their own: all
that fall into the time in which the lock was held count for the line that is seen next.
"""

from __future__ import annotations

import random
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import CodeType
from typing import Final, TypeAlias

from headgate.observe.profile import LEFT_OUT, Frame, Stack, kind_of, merged, without_headgate
from headgate.runtime.task import task_thread
from headgate.runtime.task.chain import ToOperator
from headgate.runtime.task.heads import SourceHead
from headgate.runtime.task.thread_clock import ThreadClock
from headgate.runtime.task.time_account import TimeAccount

#: Mean seconds between two samples.
PERIOD: Final = 0.010
#: Gaps differ from the mean by up to this share, so that samples do not keep step with periodic work.
_JITTER: Final = 0.5
#: The interpreter's switch interval while a profile is taken, in seconds.
_SWITCH: Final = 0.0002
#: Seconds of a second look at the thread's clock, if it ran for a part of the time since the last sample.
_LOOK: Final = 0.0005
#: The most frames of a stack. Of deeper ones the inner frames are kept.
MOST_FRAMES: Final = 64
#: The most characters of a file's path (its end is kept) and of a function's name.
_LONGEST: Final = 240

#: The functions that call an operator's code. Their callers belong to the task. A compiled one has no frames.
_CALLERS: Final = frozenset(
    function.__code__
    for function in (ToOperator._run, SourceHead._read, task_thread._run_turns)
    if hasattr(function, "__code__")
)
_HEADGATE: Final = str(Path(__file__).parents[2]) + "/"
_LIBRARIES: Final = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib"))

#: Lines from the innermost outwards. None stands for the outer frames of a deep stack.
_Lines: TypeAlias = tuple[tuple[CodeType, int] | None, ...]


class Sampler:
    """Samples one thread, while its task is in one bucket of its time. `run` does it; then the rest may be read."""

    def __init__(self, thread: ThreadClock, times: TimeAccount, bucket: int) -> None:
        self._thread = thread
        self._times = times
        self._bucket = bucket
        self._seen: dict[_Lines, tuple[int, float]] = {}
        #: The samples in which the thread used a processor, in the bucket or not.
        self._on = 0.0
        self.samples = 0
        self.seconds = 0.0
        self.cpu = 0.0
        self.run_delay: float | None = None

    def run(self, seconds: float, stopped: threading.Lock) -> None:
        """Sample for so many seconds, until `stopped` is released, or the thread ends."""
        delay, cpu = self._thread.run_delay(), self._thread.cpu()
        began = time.monotonic()
        with SHORT_TURNS:
            self._sample(began, seconds, stopped)
        self.seconds = time.monotonic() - began
        self.cpu = self._thread.cpu() - cpu
        after = self._thread.run_delay()
        self.run_delay = None if delay is None or after is None else after - delay

    def _sample(self, began: float, seconds: float, stopped: threading.Lock) -> None:
        at, cpu = began, self._thread.cpu()
        due = began + random.random() * PERIOD
        while due < began + seconds and not stopped.acquire(timeout=max(0.0, due - at)):
            before, at = at, time.monotonic()
            lines = self._lines()
            if self._thread.ident is None:
                return
            samples = 0
            while due <= at or not samples:
                due += PERIOD * random.uniform(1 - _JITTER, 1 + _JITTER)
                samples += 1
            self.samples += samples
            ran = self._thread.cpu() - cpu
            cpu += ran
            on = samples * self._uses(ran / (at - before), at, cpu)
            self._on += on
            if lines is not None:
                counted = self._seen.get(lines, (0, 0.0))
                self._seen[lines] = counted[0] + samples, counted[1] + on

    def _uses(self, share: float, at: float, cpu: float) -> float:
        """Return how much of a processor the thread uses now. `share` is how much it used since the last sample."""
        if 0.05 < share < 0.9:  # it ran and it waited: look again, for a shorter time
            time.sleep(_LOOK)
            share = (self._thread.cpu() - cpu) / (time.monotonic() - at)
        return min(1.0, share)

    def _lines(self) -> _Lines | None:
        """Return the lines on which the thread is, None outside of the bucket."""
        ident = self._thread.ident
        if ident is None or self._times.current != self._bucket:
            return None
        frame = sys._current_frames().get(ident)
        lines: list[tuple[CodeType, int] | None] = []
        while frame is not None and frame.f_code not in _CALLERS:
            if len(lines) < MOST_FRAMES:
                lines.append((frame.f_code, frame.f_lineno or 0))
            elif lines[-1] is not None:
                lines[-1] = None
            frame = frame.f_back
        return tuple(lines) if frame is not None and lines else None

    def stacks(self) -> list[Stack]:
        """Return the stacks, the most frequent first. One frame stands for Headgate's own above a user's function.

        The thread's clock says for how many samples it used a processor in all. The samples say where.
        """
        all_on = self.cpu / self.seconds * self.samples if self.seconds else 0.0
        scale = all_on / self._on if self._on else 1.0
        return merged(
            Stack(without_headgate([_frame(each) for each in reversed(lines)]), samples, min(samples, on * scale))
            for lines, (samples, on) in self._seen.items()
        )


def _frame(line: tuple[CodeType, int] | None) -> Frame:
    if line is None:
        return LEFT_OUT
    code, number = line
    file = code.co_filename
    return Frame(file[-_LONGEST:], number, code.co_qualname[:_LONGEST], kind_of(file, _HEADGATE, _LIBRARIES))


class _ShortTurns:
    """A context in which threads of this process hold the interpreter lock only for a short time if others want it.

    Several threads may be in it. `_lock` protects the count and the interval to return to.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(_SWITCH, self._usual))
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._usual)


#: One for the process: the interval is the interpreter's.
SHORT_TURNS: Final = _ShortTurns()
