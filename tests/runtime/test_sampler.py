"""Samples of a thread: they find where its time goes, and whether it uses a processor.

The threads measure themselves: what a profile finds is compared with what they did.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from headgate.observe.profile import LEFT_OUT, Stack
from headgate.runtime.task.chain import ToOperator
from headgate.runtime.task.thread_clock import ThreadClock
from headgate.runtime.task.time_account import TASK, TimeAccount
from headgate.runtime.taskmanager import sampler as sampler_module
from headgate.runtime.taskmanager.sampler import MOST_FRAMES, PERIOD, Sampler
from tests.runtime.jobs import eventually

SECONDS = 3.0
BIG = np.random.default_rng(1).random(20_000)


class Worked(threading.Thread):
    """A thread that calls a function again and again, as an operator of a chain. It notes its time, by function."""

    def __init__(self, function: Callable[[Worked], None]) -> None:
        super().__init__(daemon=True)
        self.clock = ThreadClock()
        self.times = TimeAccount(time.monotonic)
        self.bucket = self.times.add_bucket()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._open = "", 0.0
        self.stops = False
        self._function = function

    def run(self) -> None:
        self.clock.start()
        self.times.switch(self.bucket)
        while not self.stops:
            ToOperator._run(self, self._function, self)  # type: ignore[arg-type]
        self.clock.stop()

    # What ToOperator._run needs.

    _account = None

    def _switch(self, _bucket: int) -> int:
        return self.bucket

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._open = name, time.monotonic()
        yield
        now, (_, began) = time.monotonic(), self._open
        self._open = "", now
        self.spent[name] += now - began

    def seconds(self) -> dict[str, float]:
        """The seconds until now, by function."""
        name, began = self._open
        return {**self.spent, name: self.spent.get(name, 0.0) + time.monotonic() - began} if name else dict(self.spent)

    def sampler(self, bucket: int | None = None) -> Sampler:
        return Sampler(self.clock, self.times, self.bucket if bucket is None else bucket)


@contextmanager
def working(function: Callable[[Worked], None]) -> Iterator[Worked]:
    thread = Worked(function)
    thread.start()
    eventually(lambda: thread.clock.ident is not None and thread.times.current == thread.bucket)
    try:
        yield thread
    finally:
        thread.stops = True
        thread.join(30)


def shares(stacks: list[Stack], names: set[str]) -> dict[str, float]:
    """Return the share of the samples by the function that is on the stack."""
    found: dict[str, int] = defaultdict(int)
    for stack in stacks:
        for frame in stack.frames:
            name = frame.function.rpartition(".")[2]
            if name in names:
                found[name] += stack.samples
    total = sum(stack.samples for stack in stacks)
    return {name: samples / total for name, samples in found.items()}


def computes(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def sorts(seconds: float) -> None:
    """Compute in a library that holds no interpreter lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        np.sort(BIG)


def seventy(seconds: float) -> None:
    computes(seconds)


def twenty(seconds: float) -> None:
    computes(seconds)


def ten(seconds: float) -> None:
    computes(seconds)


def waits(seconds: float) -> None:
    threading.Event().wait(seconds)


def looks_at_each_tick(sampler: Sampler) -> None:
    """Run the sampler with about 100 looks a second, on a slow machine, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler_module, "SHARE", 1.0)
        sampler.run(SECONDS)


def agree(thread: Worked, within: float = 0.05) -> None:
    """Samples split the time as the thread's own clock does."""
    sampler = thread.sampler()
    before = thread.seconds()
    looks_at_each_tick(sampler)
    after = thread.seconds()
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    total = sum(spent.values())
    found = shares(sampler.stacks(), set(spent))
    for name, seconds in spent.items():
        assert found.get(name, 0.0) == pytest.approx(seconds / total, abs=within), (found, spent)


def parts(scale: float, *each: tuple[Callable[[float], None], float]) -> Callable[[Worked], None]:
    def work(thread: Worked) -> None:
        for function, seconds in each:
            with thread.part(function.__name__):
                function(seconds * scale)

    return work


@pytest.mark.turns(2)
@pytest.mark.alone
@pytest.mark.parametrize(
    "work",
    [
        parts(0.1, (seventy, 0.7), (twenty, 0.2), (ten, 0.1)),
        parts(0.1, (ten, 0.1), (waits, 0.5), (sorts, 0.4)),
        pytest.param(parts(0.1, (seventy, 0.7), (waits, 0.3)), marks=pytest.mark.soak),
    ],
    ids=["computes", "sorts", "waits"],
)
def test_a_split_is_found_within_five_points(work: Callable[[Worked], None]) -> None:
    with working(work) as thread:
        agree(thread)


@pytest.mark.alone
def test_samples_do_not_keep_step_with_periodic_work() -> None:
    """The thread does the same thing every 10 ms, and so does a sampler without jitter."""
    began = time.monotonic()

    def periodic(thread: Worked) -> None:
        with thread.part("computes"):
            computes(0.004)
        with thread.part("waits"):
            waits(PERIOD - (time.monotonic() - began) % PERIOD)

    with working(periodic) as thread:
        agree(thread, within=0.15)


@pytest.mark.alone
@pytest.mark.parametrize("scale", [0.012, pytest.param(0.1, marks=pytest.mark.soak)])  # less and more than the gaps
def test_the_threads_clock_tells_work_from_waits(scale: float) -> None:
    with working(parts(scale, (computes, 0.5), (waits, 0.5))) as thread:
        sampler = thread.sampler()
        looks_at_each_tick(sampler)
    on: dict[str, float] = defaultdict(float)
    samples: dict[str, int] = defaultdict(int)
    for stack in sampler.stacks():
        names = {frame.function for frame in stack.frames}
        name = "waits" if "waits" in names else "computes"
        on[name] += stack.on
        samples[name] += stack.samples
    assert on["waits"] <= 0.25 * samples["waits"]
    assert on["computes"] >= 0.8 * (on["computes"] + on["waits"])
    used = sampler.cpu / sampler.seconds
    assert 0.8 * used <= sum(on.values()) / sampler.samples <= 1.01 * used


@pytest.mark.alone
def test_a_line_that_keeps_the_interpreter_lock_counts_for_the_time_that_it_keeps_it() -> None:
    """Nothing else runs meanwhile, and no sample can be taken."""
    million = list(range(4_000_000))

    def sums(_seconds: float) -> None:
        sum(million)

    with working(parts(0.02, (sums, 1.0), (waits, 1.0))) as thread:
        agree(thread)


@pytest.mark.alone
def test_it_takes_less_than_a_hundredth_of_a_processor() -> None:
    with working(parts(0.01, (computes, 0.5), (sorts, 0.3), (waits, 0.2))) as thread:
        sampler = thread.sampler()
        began = time.thread_time()
        sampler.run(2 * SECONDS)  # on a slow machine, the beginning and the end take some milliseconds
        took = time.thread_time() - began
    assert took / sampler.seconds < 0.01


@pytest.mark.alone
def test_the_ticks_of_a_pause_have_the_lines_of_all_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each burst it pauses for 2.5 seconds. The first look after a pause weighs no more than the others."""
    monkeypatch.setattr(sampler_module, "SHARE", 1e-6)
    with working(parts(0.1, (seventy, 0.7), (twenty, 0.3))) as thread:
        sampler = thread.sampler()
        sampler.run(2 * SECONDS)
    assert sampler.looks % 8 == 0
    assert sampler.looks < 0.2 * sampler.samples
    assert sampler.samples == pytest.approx(sampler.seconds / PERIOD, rel=0.1)
    seen = [stack.samples for stack in sampler.stacks()]
    assert sum(seen) == pytest.approx(sampler.samples, rel=0.1)
    assert len(seen) > 1


def test_only_the_operators_own_time_has_stacks() -> None:
    with working(parts(0.01, (computes, 1.0))) as thread:
        sampler = thread.sampler(bucket=TASK)
        sampler.run(1.0)
    assert sampler.samples == pytest.approx(sampler.seconds / PERIOD, rel=0.3)
    assert sampler.stacks() == []


def test_deep_stacks_keep_their_inner_frames() -> None:
    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        else:
            waits(0.05)

    with working(lambda _: deep(300)) as thread:
        sampler = thread.sampler()
        sampler.run(0.5)
    [stack, *_] = sampler.stacks()
    assert len(stack.frames) == MOST_FRAMES
    assert stack.frames[0] == LEFT_OUT
    assert any(frame.function == "waits" for frame in stack.frames)


def test_it_ends_when_it_is_stopped_and_when_the_thread_ends() -> None:
    with working(lambda _: waits(0.01)) as thread:
        sampler = thread.sampler()
        stopped = threading.Thread(target=sampler.run, args=(60.0,))
        stopped.start()
        eventually(lambda: sampler.samples > 3)
        sampler.stop()
        stopped.join(10)
        assert not stopped.is_alive()
        longer = thread.sampler()
        running = threading.Thread(target=longer.run, args=(60.0,))
        running.start()
        eventually(lambda: longer.samples > 3)
    running.join(10)
    assert not running.is_alive()
    assert longer.seconds < 60


def test_the_interpreter_has_its_usual_switch_interval_afterwards() -> None:
    usual = sys.getswitchinterval()
    with working(lambda _: waits(0.01)) as thread:
        first, second = thread.sampler(), thread.sampler()
        running = threading.Thread(target=first.run, args=(60.0,))
        running.start()
        eventually(lambda: first.samples)
        second.run(0.1)
        assert sys.getswitchinterval() < usual, "the first one still runs"
        first.stop()
        running.join()
    assert sys.getswitchinterval() == usual
