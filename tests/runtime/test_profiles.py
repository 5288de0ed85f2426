"""Profiles on request: what the driver asks and is told, and profiles of running jobs."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.profile import Frame, Profile
from headgate.runtime.control_messages import DeclineRequest, ReportProfile, TakeProfile
from headgate.runtime.master import job as job_module
from headgate.runtime.master.member import Member
from headgate.runtime.master.profiles import Profiles
from headgate.runtime.master.task_requests import TaskRequests
from headgate.runtime.taskmanager import profiler
from headgate.runtime.taskmanager.sampler import PERIOD, Sampler
from tests.observe.made_metrics import line
from tests.runtime.jobs import NUMBERS, endless, environment, error_of, eventually, wait_until_running

TOPOLOGY = line("numbers -> parse", "sums -> sink", parallelism=3)
FRAME = Frame("/job/pipeline.py", 7, "parse", "user")


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


class FakeAttempt:
    """An attempt of two TaskManagers, of which nothing runs."""

    def __init__(self) -> None:
        self.members = [Member(0), Member(1)]
        self.links = [FakeLink(), FakeLink()]
        for member, link in zip(self.members, self.links, strict=True):
            member.link = link  # type: ignore[assignment]

    def post(self, event: Callable[[], None]) -> None:
        event()


class Asked:
    """Requests to a running attempt."""

    def __init__(self) -> None:
        self.attempt = FakeAttempt()
        self.requests = TaskRequests()
        self.profiles = Profiles(TOPOLOGY, lambda subtask: subtask % 2, self.requests)
        self.requests.begin(self.attempt)  # type: ignore[arg-type]

    def ask(self, operator: str = "parse", subtask: int = 1, seconds: float = 1.0) -> Future[Profile]:
        return self.profiles.ask(operator, subtask, seconds)

    def error(self, message: ReportProfile | DeclineRequest) -> str:
        """What the answer to a request fails with, if a TaskManager sends this."""
        answer = self.ask()
        self.requests.on_message(message)
        with pytest.raises(hg.ProfileError) as caught:
            answer.result(0)
        return str(caught.value)


def report(request: int = 1, **fields: Any) -> ReportProfile:
    usual: dict[str, Any] = {
        "seconds": 1.0,
        "looks": 90,
        "samples": 100,
        "cpu_s": 0.5,
        "run_delay_s": None,
        "frames": [FRAME],
        "stacks": [([0], 60, 30.0)],
        "left_out": 5,
    }
    return ReportProfile(request=request, **{**usual, **fields})


# --- the driver


def test_the_order_goes_to_the_taskmanager_of_the_subtask_and_its_report_is_the_answer() -> None:
    asked = Asked()
    answer = asked.ask("sums", 1, 2)
    assert asked.attempt.links[0].sent == []
    assert asked.attempt.links[1].sent == [TakeProfile(request=1, vertex=1, subtask=1, node=2, seconds=2.0)]
    asked.requests.on_message(report())
    profile = answer.result(0)
    assert (profile.operator, profile.subtask, profile.samples, profile.share) == ("sums", 1, 100, 0.65)
    assert [str(each.frame) for each in profile.hottest] == ["/job/pipeline.py:7 parse"]


def test_each_request_has_its_own_answer() -> None:
    asked = Asked()
    first, second = asked.ask("sums"), asked.ask("parse")
    asked.requests.on_message(report(2))
    assert second.result(0).operator == "parse"
    asked.requests.on_message(report(1))
    assert first.result(0).operator == "sums"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"operator": "pars"}, "job 'job' has no operator 'pars'; did you mean 'parse'?"),
        ({"operator": "x"}, "has no operator 'x'; it has 'numbers', 'parse', 'sums', 'sink'"),
        ({"subtask": 3}, "'parse' has no subtask 3; they are numbered from 0 to 2"),
        ({"subtask": -1}, "'parse' has no subtask -1"),
        ({"subtask": "1"}, "'parse' has no subtask '1'"),
        ({"subtask": True}, "'parse' has no subtask True"),
        ({"seconds": 0}, "seconds=0: a profile takes more than 0 and at most 60 seconds"),
        ({"seconds": 61}, "seconds=61"),
        ({"seconds": float("nan")}, "seconds=nan"),
        ({"seconds": "3"}, "seconds='3'"),
    ],
)
def test_what_cannot_be_profiled_is_named(arguments: dict[str, Any], says: str) -> None:
    asked = Asked()
    with pytest.raises(hg.ProfileError, match=re.escape(says)):
        asked.ask(**arguments)
    assert not any(link.sent for link in asked.attempt.links)


def test_of_many_names_an_error_lists_some() -> None:
    profiles = Profiles(line(*(f"operator {number}" for number in range(12))), lambda subtask: 0, TaskRequests())
    with pytest.raises(hg.ProfileError, match="'operator 7' and 4 more$"):
        profiles.operator("zzz")


def test_a_reason_is_shown_without_control_characters() -> None:
    error = Asked().error(DeclineRequest(request=1, reason="the task\x1b[31m has ended" + "x" * 1000))
    assert error.startswith("parse[1] could not be profiled: the task\\x1b[31m has ended")
    assert len(error) < 500


def test_texts_of_a_profile_are_shown_without_control_characters() -> None:
    asked = Asked()
    answer = asked.ask()
    asked.requests.on_message(report(frames=[Frame("/job/a\x1b.py", 1, "f\n" + "g" * 1000, "user")]))
    [hottest] = answer.result(0).hottest
    assert hottest.frame.file == "/job/a\\x1b.py"
    assert len(hottest.frame.function) == 400
    assert "\x1b" not in answer.result(0).folded()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"stacks": [([1], 60, 0.0)]}, "sent a stack with a frame that is not one of the 1"),
        ({"stacks": [([0], -60, 0.0)]}, "sent a stack of 1 frames, seen -60 times"),
        ({"samples": 50}, "sent 65 samples of an operator, and 50 of its task"),
        ({"left_out": -5}, "sent 55 samples of an operator"),
        ({"stacks": [([0] * 50_000, 1, 0.0)]}, "sent a profile of 50001 frames; at most 50000 are allowed"),
    ],
)
def test_a_damaged_profile_is_an_error_of_the_request_only(damage: dict[str, Any], says: str) -> None:
    assert says in Asked().error(report(**damage))


def test_answers_that_nobody_waits_for_are_ignored() -> None:
    asked = Asked()
    given_up = asked.ask()
    given_up.cancel()
    asked.requests.on_message(report(1))
    asked.requests.on_message(report(1))
    asked.requests.on_message(DeclineRequest(request=99, reason=""))
    assert given_up.cancelled()


def test_when_the_tasks_fail_all_requests_are_answered_and_new_ones_wait_for_the_next_attempt() -> None:
    asked = Asked()
    answers = [asked.ask(), asked.ask()]
    asked.requests.interrupted("its job failed")
    for answer in answers:
        with pytest.raises(hg.ProfileError, match=re.escape("parse[1] could not be profiled: its job failed")):
            answer.result(0)
    waiting, again = asked.ask(), FakeAttempt()
    asked.requests.begin(again)  # type: ignore[arg-type]
    assert [order.request for order in again.links[1].sent] == [3]
    asked.requests.on_message(report(3))
    assert waiting.result(0).samples == 100


def test_after_the_jobs_end_all_requests_are_answered() -> None:
    asked = Asked()
    sent = asked.ask()
    asked.requests.interrupted("its job failed")
    new = asked.ask()
    asked.requests.close("the job is FAILED")
    for answer, says in ((sent, "its job failed"), (new, "the job is FAILED"), (asked.ask(), "the job is FAILED")):
        with pytest.raises(hg.ProfileError, match=re.escape(f"parse[1] could not be profiled: {says}")):
            answer.result(0)


# --- running jobs


def computes(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def seventy() -> None:
    end = time.thread_time() + 0.035
    while time.thread_time() < end:
        pass


def twenty() -> None:
    end = time.thread_time() + 0.010
    while time.thread_time() < end:
        pass


def ten() -> None:
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass


def splits(batch: pa.RecordBatch) -> pa.RecordBatch:
    seventy()
    twenty()
    ten()
    return batch


def waits(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(0.05)
    return batch


@contextmanager
def running(processes: bool, *functions: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Iterator[hg.JobHandle]:
    """A job that calls the functions in one chain, until it is cancelled."""
    env = environment(processes, taskmanagers=1, parallelism=1)
    stream = endless(env)
    for function in functions:
        stream = stream.map_batches(function, schema=NUMBERS).name(function.__name__)
    stream.sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        yield job
    finally:
        job.cancel()


def functions_on_cpu(profiles: list[Profile]) -> dict[str, float]:
    """Return the share of the processor time by function of the user, with the function at the end of a stack."""
    on: dict[str, float] = defaultdict(float)
    for profile in profiles:
        for stack in profile.stacks:
            on[stack.frames[-1].function] += stack.on
    total = sum(on.values())
    return {name: each / total for name, each in on.items()}


@pytest.mark.turns(2)
@pytest.mark.alone
@pytest.mark.timeout(600)  # where a look takes 4 ms, 800 of them need five minutes
@pytest.mark.parametrize(
    ("processes", "looks", "within", "uses"),
    [
        (False, 250, 0.1, 0.02),
        (True, 250, 0.1, 0.02),
        *(pytest.param(each, 800, 0.05, 0.01, marks=pytest.mark.soak) for each in (False, True)),
    ],
)
def test_a_split_of_70_20_10_is_found(
    processes: bool, looks: int, within: float, uses: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same runs, the threads that take the profiles use less than a hundredth of a processor, and less than two
    hundredths on a slow machine: `make soak` checks the former."""
    costs: list[float] = []
    seconds: list[float] = []
    profiles: list[Profile] = []
    run = profiler.Profiler._run

    def measured(self: profiler.Profiler, order: TakeProfile, sampler: Sampler) -> None:
        run(self, order, sampler)
        costs.append(time.thread_time())  # of a thread that does nothing else
        seconds.append(sampler.seconds)

    monkeypatch.setattr(profiler.Profiler, "_run", measured)
    with running(processes, splits) as job:
        while sum(profile.looks for profile in profiles) < looks and len(profiles) < 80:
            profiles.append(job.profile("splits", seconds=5.0))
    found = functions_on_cpu(profiles)
    for name, share in (("seventy", 0.7), ("twenty", 0.2), ("ten", 0.1)):
        assert found[name] == pytest.approx(share, abs=within)
    if not processes:  # the costs in other processes stay there
        assert len(costs) >= len(profiles)  # the driver may have asked for one, too
        assert sum(costs) < uses * sum(seconds)
    frames = [profile.hottest[0].frame for profile in profiles]  # one profile has few looks on a slow machine
    hottest = Counter((Path(frame.file).name, frame.function, frame.kind) for frame in frames)
    assert hottest.most_common(1)[0][0] == ("test_profiles.py", "seventy", "user")


@pytest.mark.turns(2)
@pytest.mark.parametrize("processes", [False, True])
def test_a_profile_is_of_one_operator_of_a_chain(processes: bool) -> None:
    with running(processes, waits, splits) as job:
        # On a slow machine two seconds have a few bursts of looks, which may all miss an operator, or they end late.
        waiting = eventually(lambda: (one := job.profile("waits", seconds=2)).stacks and one.seconds < 2.5 and one)
        working = eventually(lambda: (one := job.profile("splits", 0, seconds=2)).stacks and one.seconds < 2.5 and one)
    for profile, others in ((waiting, ("splits", "seventy")), (working, ("waits",))):
        names = [frame.function for stack in profile.stacks for frame in stack.frames]
        assert not set(others) & set(names)
    assert waiting.hottest[0].frame.function == "waits"
    assert waiting.on < 0.3
    assert working.on > waiting.on
    assert waiting.stacks[0].frames[0].function == "(headgate)"
    assert waiting.share + working.share <= 1.4
    assert waiting.seconds == pytest.approx(2.0, abs=1.0)
    assert waiting.samples * PERIOD == pytest.approx(waiting.seconds, rel=0.3)
    assert 0 < waiting.looks <= waiting.samples


def test_a_profile_of_headgates_own_operator_shows_its_lines() -> None:
    env = environment(False, taskmanagers=1, parallelism=1)
    endless(env).key_by("n").aggregate(rows=hg.count()).name("counts").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        # On a slow machine a profile has little more than its first looks.
        stacks = [stack for _ in range(10) for stack in job.profile("counts", seconds=0.2).stacks]
    finally:
        job.cancel()
    assert stacks
    assert all(frame.function != "(headgate)" for stack in stacks for frame in stack.frames)
    inside = [any("headgate/operators" in frame.file for frame in stack.frames) for stack in stacks]
    samples = [stack.samples for stack in stacks]
    # The operator may begin or end while its stack is read.
    assert sum(compress(samples, inside)) >= 0.7 * sum(samples), stacks


def test_the_busiest_subtask_is_profiled_if_none_is_named() -> None:
    def uneven(batch: pa.RecordBatch) -> pa.RecordBatch:
        if threading.current_thread().name.endswith("[1]"):
            threading.Event().wait(0.02)
        return batch

    env = environment(False, taskmanagers=1, parallelism=3)
    endless(env, rate=50_000).map_batches(uneven, schema=NUMBERS).name("uneven").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        eventually(job.backpressure)
        eventually(lambda: job.profile("uneven", seconds=0.2).subtask == 1)  # the first second may be one of the start
    finally:
        job.cancel()


@pytest.mark.parametrize("processes", [False, True])
def test_an_ended_task_has_no_profile(processes: bool) -> None:
    env = environment(processes, taskmanagers=1, parallelism=1)
    short = env.from_source(hg.sources.iterable([[{"n": 1}]], schema=NUMBERS))
    short.map_batches(lambda batch: batch, schema=NUMBERS).name("short").sink_to(hg.sinks.null())
    endless(env).sink_to(hg.sinks.null())
    job = env.execute_async()

    def has_ended() -> bool:
        return any("short" in name and task["closed_s"] for name, task in job.metrics().get("tasks", {}).items())

    try:
        wait_until_running(job)
        eventually(has_ended)
        with pytest.raises(hg.ProfileError, match=r"^short\[0\] could not be profiled: the task has ended$"):
            job.profile("short")
    finally:
        job.cancel()


def test_a_task_that_ends_meanwhile_has_a_shorter_profile() -> None:
    release = threading.Event()

    def held(batch: pa.RecordBatch) -> pa.RecordBatch:
        release.wait(60)
        threading.Event().wait(1.0)  # for some samples
        return batch

    env = environment(False, taskmanagers=1, parallelism=1)
    short = env.from_source(hg.sources.iterable([[{"n": 1}]], schema=NUMBERS))
    short.map_batches(held, schema=NUMBERS).name("held").sink_to(hg.sinks.null())
    endless(env).sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        answer = job._master.profiles.ask("held", 0, 60.0)
        eventually(_is_sampled)
        release.set()
        profile = answer.result(30)
        assert profile.seconds < 60
        assert profile.hottest[0].frame.function.endswith("held")
    finally:
        release.set()
        job.cancel()


def _is_sampled() -> bool:
    return any(thread.name.startswith("headgate-profile-") for thread in threading.enumerate())


@pytest.mark.parametrize("processes", [False, True])
def test_a_restart_meanwhile_ends_the_wait(processes: bool, tmp_path: Path) -> None:
    fail = tmp_path / "fail"

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if fail.exists():
            fail.unlink()
            raise ValueError("once")
        return batch

    options = {"checkpoint_dir": str(tmp_path / "checkpoints"), "restart": hg.restart.fixed(1, delay=0)}
    env = environment(processes, taskmanagers=1, parallelism=1, **options)
    endless(env).map_batches(fails, schema=NUMBERS).sink_to(hg.sinks.null())
    endless(env).map_batches(waits, schema=NUMBERS).name("waits").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        answer = job._master.profiles.ask("waits", 0, 60.0)
        fail.touch()
        with pytest.raises(hg.ProfileError, match="could not be profiled: its job failed meanwhile .*once"):
            answer.result(30)
        assert job.profile("waits", seconds=0.2).samples
        assert job.restarts == 1
    finally:
        job.cancel()
    with pytest.raises(hg.ProfileError, match="is CANCELLED"):
        job.profile("waits")


def test_a_profile_of_a_job_that_is_starting_begins_when_it_runs() -> None:
    env = environment(False, taskmanagers=1, parallelism=1)
    endless(env).map_batches(waits, schema=NUMBERS).name("waits").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        assert job.profile("waits", seconds=0.2).samples
    finally:
        job.cancel()


def test_a_profile_that_does_not_come_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_ANSWER", 0.1)
    with running(False, waits) as job:
        monkeypatch.setattr(profiler.Profiler, "take", lambda *_: None)
        with pytest.raises(TimeoutError, match=r"^waits\[0\] has no profile after 0.2 s; the job is RUNNING$"):
            job.profile("waits", seconds=0.1)


def test_a_finished_job_has_no_profile() -> None:
    env = environment(False, taskmanagers=1, parallelism=1)
    env.from_source(hg.sources.iterable([[{"n": 1}]], schema=NUMBERS)).name("short").sink_to(hg.sinks.null())
    job = env.execute_async()
    job.wait(60)
    with pytest.raises(hg.ProfileError, match="could not be profiled: job .* is FINISHED"):
        job.profile("short", 0)


def test_too_many_profiles_at_once_are_declined() -> None:
    with running(False, waits) as job:
        answers = [job._master.profiles.ask("waits", 0, 60.0) for _ in range(profiler.MOST)]
        with pytest.raises(hg.ProfileError, match="already taking 4 profiles"):
            job.profile("waits", seconds=0.1)
    for answer in answers:
        with suppress(hg.ProfileError):  # it ended with the job
            assert answer.result(0).seconds < 60


def test_a_job_that_fails_for_its_own_reason_says_that_reason() -> None:
    """And not one of a profile that was being taken."""
    release = threading.Event()

    def fails(_batch: pa.RecordBatch) -> pa.RecordBatch:
        release.wait(30)
        raise ValueError("my own")

    env = environment(False, taskmanagers=1, parallelism=1)
    endless(env).map_batches(fails, schema=NUMBERS).name("fails").sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    job._master.profiles.ask("fails", 0, 60.0)
    eventually(_is_sampled)
    release.set()
    assert "my own" in str(error_of(job))
