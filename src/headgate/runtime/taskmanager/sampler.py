"""Samples the thread of a running task: which lines the thread executes, and whether it uses a processor.

The interpreter lock distorts plain samples. The sampler's thread gets the lock only when the task's thread releases it:
in a wait, in a library, or after the switch interval (Python's default is 5 ms). Nearly all samples would show waits
and libraries. The sampler corrects this in two ways. It shortens the switch interval during a profile. And it counts
the ticks of a clock as samples: all ticks since the last look count for the line that the sampler sees now. A line
therefore counts for the whole time in which it holds the lock. Only the ticks of the sampler's own pauses do not.
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

#: The mean seconds between two ticks. Each tick is one sample.
PERIOD: Final = 0.010
#: The largest share of a processor that the sampler uses since its start. If a look at each tick takes more, it pauses
#: after this many looks. Where a look after 10 ms takes 0.5 ms, one after half a second takes 4 ms, since nothing that
#: it needs is in the processor's caches any more. So many looks after a pause cost little more than one.
SHARE: Final = 0.007
_BURST: Final = 8
#: The most seconds of a pause.
_LONGEST_PAUSE: Final = 2.5
#: The gaps between ticks differ from the mean by up to this share. Samples are then not in step with periodic work.
_JITTER: Final = 0.5
#: The interpreter's switch interval while a profile is taken, in seconds.
_SWITCH: Final = 0.0002
#: The sampler measures the thread's clock again for this many seconds if the thread ran only for a part of the time
#: since the last look.
_LOOK: Final = 0.0005
#: The most frames of a stack. Of a deeper stack the sampler keeps the inner frames.
MOST_FRAMES: Final = 64
#: The most characters of a file's path (its end is kept) and of a function's name.
_LONGEST: Final = 240

#: The `id` of the code of each function that calls an operator: comparing code objects themselves takes long. The outer
#: frames, from such a function on, belong to the task. A compiled function has no frames.
_CALLERS: Final = frozenset(
    id(function.__code__)
    for function in (ToOperator._run, SourceHead._read, task_thread._run_turns)
    if hasattr(function, "__code__")
)
_HEADGATE: Final = str(Path(__file__).parents[2]) + "/"
_LIBRARIES: Final = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib"))

#: The lines of a stack, from the innermost outwards. Each line is two numbers: the `id` of its code and its line
#: number. In a deep stack, _OUTER at the end replaces the outer frames.
_Lines: TypeAlias = tuple[int, ...]
_OUTER: Final = (0, 0)


class Sampler:
    """Samples one task thread for a profile. It records lines only while `times` is in the bucket `bucket`.

    `thread.cpu()` must not be None: systems without a clock for each thread cannot be sampled.

    `run` takes the samples. Afterwards `stacks` returns the result. `looks` is the number of looks, and `samples` the
    number of samples. `seconds` is the duration, `cpu` the thread's processor seconds, and `run_delay` the seconds in
    which no processor was free for the thread, or None if unknown. Another thread may call `stop`: `run` then returns
    before the next sample.
    """

    def __init__(self, thread: ThreadClock, times: TimeAccount, bucket: int) -> None:
        self._thread = thread
        self._times = times
        self._bucket = bucket
        self._seen: dict[_Lines, tuple[int, float]] = {}
        #: The code objects of the recorded lines, by `id`. The reference keeps each `id` valid.
        self._codes: dict[int, CodeType] = {}
        #: The number of samples without those of pauses, and the number of those in which the thread used a processor,
        #: in this bucket or another.
        self._counted = 0
        self._on = 0.0
        self._stopped = threading.Event()
        self.looks = 0
        self.samples = 0
        self.seconds = 0.0
        self.cpu = 0.0
        self.run_delay: float | None = None

    def stop(self) -> None:
        self._stopped.set()

    def run(self, seconds: float) -> None:
        """Take samples for `seconds` seconds. The method returns earlier after `stop`, or if the thread ends."""
        began, own = time.monotonic(), time.thread_time()
        delay, cpu = self._thread.run_delay(), self._cpu()
        with SHORT_TURNS:
            self._sample(began, began + seconds, own)
        self.seconds = time.monotonic() - began
        self.cpu = self._cpu() - cpu
        after = self._thread.run_delay()
        self.run_delay = None if delay is None or after is None else after - delay

    def _sample(self, began: float, end: float, own: float) -> None:
        """Take samples from `began` until `end`. `own` is the calling thread's processor time at `began`."""
        at, cpu = began, self._cpu()
        tick = began + random.random() * PERIOD
        while tick < end:
            time.sleep(max(0.0, tick - time.monotonic()))
            lines = self._lines()
            before, at = at, time.monotonic()
            if self._stopped.is_set() or self._thread.ident is None:
                return
            samples, tick = _ticks(tick, at)
            self.looks += 1
            self.samples += samples
            self._counted += samples
            ran = self._cpu() - cpu
            cpu += ran
            on = samples * self._uses(ran / (at - before), at, cpu)
            self._on += on
            if lines is not None:
                counted = self._seen.get(lines, (0, 0.0))
                self._seen[lines] = counted[0] + samples, counted[1] + on
            if self.looks % _BURST == 0:
                affordable = began + (time.thread_time() - own) / SHARE
                tick += self._pause(tick, min(affordable, end))
                at, cpu = time.monotonic(), self._cpu()

    def _pause(self, begin: float, end: float) -> float:
        """Pause until `end` if it is after `begin`, or until `stop`. Return the seconds of the pause.

        Its ticks are samples, which have the lines of the other samples.
        """
        seconds = min(max(0.0, end - begin), _LONGEST_PAUSE)
        if seconds:
            self._stopped.wait(begin + seconds - time.monotonic())
            self.samples += round(seconds / PERIOD)
        return seconds

    def _uses(self, share: float, at: float, cpu: float) -> float:
        """Return the share of a processor, 0 to 1, that the thread uses now.

        `share` is its share since the last look. `at` is the time of this look, and `cpu` the thread's processor time
        then, both in seconds.
        """
        if 0.05 < share < 0.9:  # the thread ran for a part of the time: measure a shorter time
            time.sleep(_LOOK)
            share = (self._cpu() - cpu) / (time.monotonic() - at)
        return min(1.0, share)

    def _cpu(self) -> float:
        cpu = self._thread.cpu()
        assert cpu is not None
        return cpu

    def _lines(self) -> _Lines | None:
        """Return the lines that the thread executes now, or None if its task is in another bucket."""
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
        """Return the stacks, the most frequent first. One frame replaces Headgate's frames that call a user function.

        The thread's clock gives the total number of samples in which the thread used a processor. The method shares out
        this total over the stacks. A stack cannot have used a processor in more samples than it has, so the sum over
        all stacks may be a little less than the total.
        """
        all_on = self.cpu / self.seconds * self.samples if self.seconds else 0.0
        scale = all_on / self._on if self._on else 1.0
        weight = self.samples / max(1, self._counted)
        return merged(
            Stack(without_headgate(self._frames(lines)), number := int(samples * weight), min(number, on * scale))
            for lines, (samples, on) in self._seen.items()
        )

    def _frames(self, lines: _Lines) -> list[Frame]:
        """Return the frames of a stack's lines, the outermost first."""
        return [
            _frame(self._codes[code], line) if code else LEFT_OUT
            for code, line in zip(lines[-2::-2], lines[::-2], strict=True)
        ]


def _ticks(tick: float, now: float) -> tuple[int, float]:
    """Return the number of ticks from `tick` until `now`, at least one, and the next tick."""
    number = 0
    while tick <= now or not number:
        tick += PERIOD * random.uniform(1 - _JITTER, 1 + _JITTER)
        number += 1
    return number, tick


def _frame(code: CodeType, line: int) -> Frame:
    file = code.co_filename
    return Frame(file[-_LONGEST:], line, code.co_qualname[:_LONGEST], kind_of(file, _HEADGATE, _LIBRARIES))


class _ShortTurns:
    """A context with a short switch interval: a thread that holds the interpreter lock soon releases it for another.

    Several threads may be in the context. `_lock` protects the number of these threads, and the interval that the last
    thread sets again.
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


#: The only object of the class, because the switch interval applies to the whole process.
SHORT_TURNS: Final = _ShortTurns()
