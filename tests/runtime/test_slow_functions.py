"""Profiles that follow from a diagnosis: of a function only, at most once a minute."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace

import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.finding import Cause, Finding, Remedy
from headgate.observe.profile import Frame, Profile, Stack
from headgate.runtime.master.slow_functions import CAUSES, SECONDS, SlowFunctions
from tests.runtime.jobs import NUMBERS, endless, environment, eventually, wait_until_running

FINDING = Finding(
    place="'parse[1]'",
    vertex=1,
    operator="parse",
    subtasks=(1, 2),
    waits=("numbers",),
    cause=Cause(name="slow_function", text="its function takes 0.3 s a batch", evidence={}),
    remedy=Remedy(text="make it faster"),
)
SKEW = replace(FINDING, cause=Cause(name="data_skew", text="it gets most of the rows", evidence={}))
FRAME = Frame("/job/pipeline.py", 7, "parse", "user")


def profile(operator: str = "parse", subtask: int = 1) -> Profile:
    return Profile(
        operator=operator,
        subtask=subtask,
        ended_at=1002.0,
        seconds=2.0,
        looks=100,
        samples=200,
        cpu_s=1.0,
        run_delay_s=None,
        stacks=(Stack((FRAME,), 100, 50.0),),
    )


class Asked:
    def __init__(self) -> None:
        self.asked: list[tuple[str, int, float]] = []
        self.answer: Future[Profile] = Future()
        self.functions = SlowFunctions(self.ask)

    def ask(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        self.asked.append((operator, subtask, seconds))
        self.answer = Future()
        return self.answer


def test_a_function_is_profiled_and_a_finding_about_it_gets_its_lines() -> None:
    asked = Asked()
    asked.functions.look([SKEW, FINDING], 1000.0)
    assert asked.asked == [("parse", 1, SECONDS)]
    assert asked.functions.explained([FINDING], 1001.0) == [FINDING]
    asked.answer.set_result(profile())
    skew, explained = asked.functions.explained([SKEW, FINDING], 1003.0)
    assert skew == SKEW
    assert explained.sentence == (
        "'numbers' waits for 'parse[1]': its function takes 0.3 s a batch, 100% of it in parse (pipeline.py:7); "
        "make it faster"
    )
    assert explained.as_json()["hottest"] == [
        {"file": "/job/pipeline.py", "line": 7, "function": "parse", "share": 1.0, "on": 0.5}
    ]


def test_there_is_at_most_one_profile_a_minute() -> None:
    asked = Asked()
    for now in (1000.0, 1001.0, 1059.0, 1061.0):
        asked.functions.look([FINDING], now)
    assert len(asked.asked) == 2


def test_other_causes_are_not_profiled() -> None:
    asked = Asked()
    asked.functions.look([SKEW, replace(FINDING, operator=None)], 1000.0)
    assert asked.asked == []


@pytest.mark.parametrize(
    ("answer", "now"), [(profile("sums"), 1003.0), (profile(subtask=3), 1003.0), (profile(), 1200)]
)
def test_a_profile_of_something_else_or_of_long_ago_explains_nothing(answer: Profile, now: float) -> None:
    asked = Asked()
    asked.functions.look([FINDING], 1000.0)
    asked.answer.set_result(answer)
    assert asked.functions.explained([FINDING], now) == [FINDING]


def test_without_an_answer_the_findings_stay_as_they_are() -> None:
    asked = Asked()
    asked.functions.look([FINDING], 1000.0)
    asked.answer.set_exception(hg.ProfileError("the task has ended"))
    assert asked.functions.explained([FINDING], 1003.0) == [FINDING]


def test_the_causes_are_those_of_functions() -> None:
    assert CAUSES == {"slow_function", "waiting_function", "slow_source", "slow_sink", "slow_lookup"}


@pytest.mark.parametrize("processes", [False, True])
def test_the_diagnosis_of_a_job_names_the_slow_line(processes: bool) -> None:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        threading.Event().wait(0.05)
        return batch

    env = environment(processes, taskmanagers=1, parallelism=1)
    slowed = endless(env).rebalance().map_batches(slow, schema=NUMBERS).name("slow")
    slowed.sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        # The first profile may be of another function, or miss this one. The next one is taken a minute later.
        finding = eventually(
            lambda: next((each for each in job.diagnose() if each.hottest and each.operator == "slow"), None), 150
        )
    finally:
        job.cancel()
    assert finding.hottest[0].frame.function.endswith("slow")
    assert "of it in " in finding.sentence
