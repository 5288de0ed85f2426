"""Measure how late a paced timer wakes on this machine: the noise in every latency figure.

An idle machine does not show the delays that the host causes to a busy machine. So a timer also runs beside the load,
on each core and with real-time priority: only the host can delay it. On a quiet host with both cores busy, the timer's
99th percentile was 0.05 ms.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from hdrh.histogram import HdrHistogram

PERIOD = 0.001
#: The period of the timer beside a load. It is longer, because each wake-up takes processor time from the load.
PERIOD_BESIDE = 0.010
#: The longest lateness that a histogram holds, in microseconds. A histogram has three significant digits.
LONGEST = 60_000_000


def new_histogram() -> HdrHistogram:
    """Return an empty histogram of whole microseconds."""
    return HdrHistogram(1, LONGEST, 3)


def lateness(duration: float) -> HdrHistogram:
    """For `duration` seconds, wake every millisecond. Return how late the thread woke, in microseconds."""
    histogram = new_histogram()
    _record(histogram, range(round(duration / PERIOD)), PERIOD)
    return histogram


@contextmanager
def lateness_beside() -> Iterator[HdrHistogram]:
    """Measure the lateness of a process with real-time priority on each core while the block runs.

    The yielded histogram is filled when the block ends. It stays empty if the process may not use real-time priority,
    which on Linux needs CAP_SYS_NICE.
    """
    histogram = new_histogram()
    with ExitStack() as stack:
        timers = []
        for core in sorted(os.sched_getaffinity(0)) if hasattr(os, "SCHED_FIFO") else ():
            command = [sys.executable, "-P", "-m", "headgate.bench.idle_timer", str(core)]
            timer = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(timer.kill)
            assert timer.stdout is not None
            if timer.stdout.readline():
                timers.append(timer)
        yield histogram
        for timer in timers:
            timer.send_signal(signal.SIGTERM)
            histogram.decode_and_add(timer.communicate()[0])


def _record(histogram: HdrHistogram, ticks: Iterable[int], period: float) -> None:
    begin = time.perf_counter()
    for tick in ticks:
        due = begin + tick * period
        time.sleep(max(0.0, due - time.perf_counter()))
        histogram.record_value(min(round((time.perf_counter() - due) * 1e6), LONGEST))


def _record_on(core: int) -> None:
    """Record how late a paced timer wakes on one core, until SIGTERM or the end of the parent process.

    The function then writes the histogram to standard output.
    """
    ended = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return
    print(flush=True)
    parent, histogram = os.getppid(), new_histogram()
    ticks = itertools.takewhile(lambda tick: not ended and os.getppid() == parent, itertools.count())
    _record(histogram, ticks, PERIOD_BESIDE)
    sys.stdout.buffer.write(histogram.encode())


if __name__ == "__main__":
    _record_on(int(sys.argv[1]))
