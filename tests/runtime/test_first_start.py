"""What fails before a job has run for the first time: a loss counts as at any other time, and what would only repeat
ends the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from tests.exactly_once import build, committed, environment, expected, rows
from tests.runtime.faults import Pull, holds, kill, let_go, taken_by

PATIENCE = 120.0
AT_ONCE = hg.restart.fixed(9, delay=0)


class OpensSlowly(hg.KeyedProcessFunction):
    """Each subtask pulls a lever before it is open."""

    def __init__(self, pull: Pull) -> None:
        self.pull = pull

    def open(self, ctx: hg.ProcessContext) -> None:
        self.pull()

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Iterator[pa.RecordBatch]:
        yield batch


def opening(folder: Path, pull: Pull, deployment: hg.LocalDeployment) -> hg.JobHandle:
    env = environment(folder, deployment, restart=AT_ONCE)
    source = rows()
    stream = env.from_source(source).key_by("key").process(OpensSlowly(pull), schema=source.schema)
    stream.select("value").sink_to(hg.sinks.parquet(folder / "out"))
    return env.execute_async()


class KillsAtLaunch(hg.LocalDeployment):
    """A process of each of the first attempts, before it has told anything."""

    def __init__(self, attempts: int) -> None:
        super().__init__(2, processes=True)
        self.attempts = attempts

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        gang: Any = super().launch(spec, count, on_exit)
        if self.attempts > 0:
            self.attempts -= 1
            gang._forks[0].kill()
        return gang  # type: ignore[no-any-return]


def test_killed_while_it_opens_its_operators(tmp_path: Path) -> None:
    lever = tmp_path / "lever"
    lever.touch()
    job = opening(tmp_path, holds(lever), hg.LocalDeployment(2, processes=True))
    victim = taken_by(lever)
    assert job.status() == "CREATED"
    let_go(lever)
    kill(victim)
    result = job.wait(PATIENCE)
    assert result.restarts == 1
    assert result.rows_out == result.rows_in


LIMITED = {"fixed": hg.restart.fixed(3, delay=0), "failure rate": hg.restart.failure_rate(3, "1 h", delay=0)}


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("restart", "attempts"),
    [(AT_ONCE, 1), (LIMITED["fixed"], 3), pytest.param(LIMITED["failure rate"], 3, marks=pytest.mark.soak)],
    ids=["once", *LIMITED],
)
def test_killed_before_it_has_registered(tmp_path: Path, restart: Any, attempts: int) -> None:
    job = build(environment(tmp_path, KillsAtLaunch(attempts), restart=restart), tmp_path).execute_async()
    assert job.wait(PATIENCE).restarts == attempts
    assert committed(tmp_path) == expected()


@pytest.mark.parametrize(
    "restart", [LIMITED["failure rate"], pytest.param(LIMITED["fixed"], marks=pytest.mark.soak)], ids=[*LIMITED][::-1]
)
def test_none_ever_registers_and_the_strategy_has_a_limit(tmp_path: Path, restart: Any) -> None:
    job = build(environment(tmp_path, KillsAtLaunch(1000), restart=restart), tmp_path).execute_async()
    with pytest.raises(hg.TaskManagerLost, match="TaskManager 0 .*killed by SIGKILL"):
        job.wait(PATIENCE)
    assert job.restarts == 3


def test_none_ever_registers(tmp_path: Path) -> None:
    """A strategy without a limit does not try for ever."""
    deployment = KillsAtLaunch(1000)
    restart = hg.restart.exponential(initial="1 ms", max="10 ms")
    job = build(environment(tmp_path, deployment, restart=restart), tmp_path).execute_async()
    with pytest.raises(hg.TaskManagerLost, match="TaskManager 0 .*killed by SIGKILL"):
        job.wait(PATIENCE)
    assert (job.restarts, deployment.attempts) == (2, 997)


def fails(count: Callable[[], object]) -> Pull:
    def fail() -> None:
        count()
        raise ValueError("no model is there")

    return fail


def test_a_function_that_cannot_be_opened_is_not_tried_again(tmp_path: Path) -> None:
    calls: list[int] = []
    job = opening(tmp_path, fails(lambda: calls.append(1)), hg.LocalDeployment(1, processes=False))
    with pytest.raises(hg.UserFunctionError, match="no model is there"):
        job.wait(PATIENCE)
    assert job.restarts == 0
    assert len(calls) <= 2, "once in each subtask"


def test_without_a_strategy_the_job_ends(tmp_path: Path) -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=KillsAtLaunch(1))
    job = build(env, tmp_path).execute_async()
    with pytest.raises(hg.TaskManagerLost, match="SIGKILL"):
        job.wait(PATIENCE)
    assert job.restarts == 0
