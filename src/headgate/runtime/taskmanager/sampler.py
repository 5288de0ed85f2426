"""Sample the thread of a task while it runs: on which lines it is, and whether it uses a processor.

A sampler must not see what the interpreter lock lets it see. A thread that wants the lock gets it when the other thread
lets go: when that thread waits or calls a library, or after the switch interval, 5 ms. Then nearly all samples would be
of waits and libraries. So the interval is short while a profile is taken. And samples go by the ticks of a clock: all
ticks since the last look count for what is seen now. So a line that holds the lock counts for as long as it does.
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

#: Mean seconds between two ticks. Each tick is one sample.
PERIOD: Final = 0.010
#: The sampler looks at each tick, or less often, so that it takes no more than this share of a processor.
SHARE: Final = 0.007
_MOST_TICKS: Final = 5
#: Processor seconds that a look takes, before that is measured. A new measure counts with this weight.
_USUAL_COST: Final = 0.00005
_WEIGHT: Final = 0.1
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

#: The code of the functions that call an operator, by `id`, since the hash of a code object takes long. Their callers
#: belong to the task. A compiled one has no frames.
_CALLERS: Final = frozenset(
    id(function.__code__)
    for function in (ToOperator._run, SourceHead._read, task_thread._run_turns)
    if hasattr(function, "__code__")
)
_HEADGATE: Final = str(Path(__file__).parents[2]) + "/"
_LIBRARIES: Final = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib"))

#: Lines from the innermost outwards, each as the `id` of its code and its number. The last one is _OUTER in place of
#: the outer frames of a deep stack.
_Lines: TypeAlias = tuple[int, ...]
_OUTER: Final = (0, 0)


class Sampler:
    """Samples one thread, while its task is in one bucket of its time. `run` does it; then the rest may be read.

    It needs the thread's processor time, which not all systems give: `ThreadClock.cpu` must not be None.

    Another thread may call `stop`: `run` then returns before the next sample.
    """

    def __init__(self, thread: ThreadClock, times: TimeAccount, bucket: int) -> None:
        self._thread = thread
        self._times = times
        self._bucket = bucket
        self._seen: dict[_Lines, tuple[int, float]] = {}
        #: Keeps the code of the lines that were seen, by `id`.
        self._codes: dict[int, CodeType] = {}
        #: The samples in which the thread used a processor, in the bucket or not.
        self._on = 0.0
        self._stopped = False
        self.looks = 0
        self.samples = 0
        self.seconds = 0.0
        self.cpu = 0.0
        self.run_delay: float | None = None

    def stop(self) -> None:
        self._stopped = True

    def run(self, seconds: float) -> None:
        """Sample for so many seconds, until it is stopped, or the thread ends."""
        delay, cpu = self._thread.run_delay(), self._cpu()
        began = time.monotonic()
        with SHORT_TURNS:
            self._sample(began, began + seconds)
        self.seconds = time.monotonic() - began
        self.cpu = self._cpu() - cpu
        after = self._thread.run_delay()
        self.run_delay = None if delay is None or after is None else after - delay

    def _sample(self, began: float, end: float) -> None:
        own, cost = time.thread_time(), _USUAL_COST
        at, cpu = began, self._cpu()
        due = tick = began + random.random() * PERIOD
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            lines = self._lines()
            before, at = at, time.monotonic()
            if self._stopped or self._thread.ident is None:
                return
            samples = 0
            while tick <= at or not samples:
                tick += PERIOD * random.uniform(1 - _JITTER, 1 + _JITTER)
                samples += 1
            self.looks += 1
            self.samples += samples
            ran = self._cpu() - cpu
            cpu += ran
            on = samples * self._uses(ran / (at - before), at, cpu)
            self._on += on
            if lines is not None:
                counted = self._seen.get(lines, (0, 0.0))
                self._seen[lines] = counted[0] + samples, counted[1] + on
            own, before_this = time.thread_time(), own
            cost += _WEIGHT * (own - before_this - cost)
            due = tick + PERIOD * min(int(cost / SHARE / PERIOD), _MOST_TICKS)

    def _uses(self, share: float, at: float, cpu: float) -> float:
        """Return how much of a processor the thread uses now. `share` is how much it used since the last sample."""
        if 0.05 < share < 0.9:  # it ran and it waited: look again, for a shorter time
            time.sleep(_LOOK)
            share = (self._cpu() - cpu) / (time.monotonic() - at)
        return min(1.0, share)

    def _cpu(self) -> float:
        cpu = self._thread.cpu()
        assert cpu is not None
        return cpu

    def _lines(self) -> _Lines | None:
        """Return the lines on which the thread is, None outside of the bucket."""
        ident = self._thread.ident
        if ident is None or self._times.current != self._bucket:
            return None
        frame = sys._current_frames().get(ident)
        lines: list[int] = []
        codes = self._codes
        while frame is not None:
            code = frame.f_code
            number = id(code)
            if number in _CALLERS:
                return tuple(lines) or None
            if len(lines) < 2 * MOST_FRAMES:
                codes[number] = code
                lines += (number, frame.f_lineno or 0)
            else:
                lines[-2:] = _OUTER
            frame = frame.f_back
        return None

    def stacks(self) -> list[Stack]:
        """Return the stacks, the most frequent first. One frame stands for Headgate's own above a user's function.

        The thread's clock says for how many samples it used a processor in all. The samples say where. A stack cannot
        have used one for more samples than it has, so the sum may be a little less.
        """
        all_on = self.cpu / self.seconds * self.samples if self.seconds else 0.0
        scale = all_on / self._on if self._on else 1.0
        return merged(
            Stack(without_headgate(self._frames(lines)), samples, min(samples, on * scale))
            for lines, (samples, on) in self._seen.items()
        )

    def _frames(self, lines: _Lines) -> list[Frame]:
        """Return the frames of lines, the outermost first."""
        return [
            _frame(self._codes[code], line) if code else LEFT_OUT
            for code, line in zip(lines[-2::-2], lines[::-2], strict=True)
        ]


def _frame(code: CodeType, line: int) -> Frame:
    file = code.co_filename
    return Frame(file[-_LONGEST:], line, code.co_qualname[:_LONGEST], kind_of(file, _HEADGATE, _LIBRARIES))


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
