"""Jobs that fail on their way and start again from a checkpoint: what is committed is as if nothing had happened."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.api.job_builder import RESUME
from headgate.operators.windows.window import WindowAggregate
from headgate.runtime.taskmanager import state_upload
from headgate.state import checkpoint_storage
from headgate.state.checkpoint_metadata import Finished, StateFile
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.exactly_once import KEYS, ROWS, build, committed, environment, expected, fails_once, rows
from tests.runtime.faults import behind_gate, build_gated, gated, open_gate
from tests.runtime.jobs import NUMBERS, eventually, numbers, wait_until_running

ROOT = Path(__file__).parents[2]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("processes", "flow_control"), [(False, "credit"), (True, "tcp")])
def test_a_function_that_raises_once(tmp_path: Path, processes: bool, flow_control: str) -> None:
    env = environment(tmp_path, hg.LocalDeployment(2, processes), flow_control=flow_control)
    result = build(env, tmp_path, fails_once(tmp_path), source=rows(rate=12_000.0)).execute()
    assert result.restarts == 1
    assert committed(tmp_path) == expected()
    assert (result.rows_in, result.rows_out) == (ROWS, len(expected()))


def test_without_a_failure_all_is_committed_and_the_last_checkpoints_stay(tmp_path: Path) -> None:
    result = build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute()
    assert result.restarts == 0
    assert committed(tmp_path) == expected()
    assert 1 <= len(list(tmp_path.glob("checkpoints/*/chk-*/_metadata"))) <= 3


def test_a_job_that_is_cancelled_leaves_the_rows_of_its_last_checkpoint(tmp_path: Path) -> None:
    job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: any((tmp_path / "out").glob("part-*")))
    job.cancel()
    seen = committed(tmp_path)
    assert seen
    assert set(seen) < set(expected())
    assert not list((tmp_path / "out").glob("_*"))


@pytest.mark.parametrize(
    "strategy", [hg.restart.fixed(2, delay=0), hg.restart.failure_rate(2, interval="1 h", delay="10 ms")]
)
def test_the_strategy_decides_how_often(tmp_path: Path, strategy: Any) -> None:
    def fails(_batch: object) -> None:
        raise ValueError("always")

    env = environment(tmp_path, hg.LocalDeployment(1, processes=False), restart=strategy)
    job = build(env, tmp_path, fails).execute_async()
    with pytest.raises(hg.UserFunctionError, match="always"):
        job.wait(60)
    assert job._master.restarts == 2
    assert not (tmp_path / "out").exists()


class Crowded(hg.LocalDeployment):
    """Has too few slots at these times of asking, 0 for the first."""

    def __init__(self, *short: int) -> None:
        super().__init__(1)
        self._short, self._asked = short, itertools.count()

    def reserve(self, *_: Any) -> AbstractContextManager[None]:
        if next(self._asked) in self._short:
            raise hg.NotEnoughSlots("the job needs 1 slot, and there is none")
        return nullcontext()


def test_restarts_that_find_too_few_slots_are_counted_for_themselves(tmp_path: Path) -> None:
    def fails_twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(failures := list(tmp_path.glob("failed-*"))) < 2:
            (tmp_path / f"failed-{len(failures)}").touch()
            raise ValueError("twice")
        return batch

    def run(*short: int) -> hg.JobHandle:
        env = environment(tmp_path, Crowded(*short), 1, restart=hg.restart.fixed(2, delay=0))
        return build(env, tmp_path, fails_twice, source=rows(rate=None)).execute_async()

    assert run(1, 2, 4, 5).wait(60).restarts == 2
    assert committed(tmp_path) == expected()
    for file in tmp_path.glob("failed-*"):
        file.unlink()
    shutil.rmtree(tmp_path / "out")
    job = run(1, 2, 3)
    with pytest.raises(hg.NotEnoughSlots, match="there is none"):
        job.wait(60)
    assert job.restarts == 0


@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_program_goes_on_with_another_parallelism(tmp_path: Path, parallelism: int) -> None:
    first = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: any((tmp_path / "out").glob("part-*")))
    first.cancel()
    open_gate(tmp_path)
    seen = committed(tmp_path)
    second = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False), parallelism), tmp_path)
    result = second.execute(resume="latest")
    assert set(seen) < set(expected())
    assert committed(tmp_path) == expected()
    assert result.rows_in == ROWS
    assert (
        build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path)
        .execute(resume="latest")
        .rows_in
        == ROWS
    )
    assert committed(tmp_path) == expected()  # that job had finished: nothing is left to do


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_checkpoint_of_which_some_tasks_had_finished(tmp_path: Path, unaligned: bool) -> None:
    """The job restarts from such a checkpoint. Then another job resumes from such a checkpoint, with more subtasks."""
    lever = tmp_path / "lever"

    def fails() -> None:
        if lever.exists():
            lever.unlink(missing_ok=True)
            raise hg.SourceError("once")

    def job(parallelism: int) -> hg.StreamEnvironment:
        env = environment(tmp_path, hg.LocalDeployment(2, processes=False), parallelism, unaligned=unaligned)
        short = env.from_source(rows(rate=None)).uid("short")
        short.sink_to(hg.sinks.parquet(tmp_path / "short")).uid("copies")
        every = short.union(env.from_source(gated(tmp_path, fails)).uid("long"))
        totals = every.key_by("key").aggregate(final=True, total=hg.sum("value"), rows=hg.count()).uid("totals")
        totals.sink_to(hg.sinks.parquet(tmp_path / "out")).uid("files")
        return env

    def is_partly_finished(attempt: int) -> bool:
        storage = CheckpointStorage(tmp_path / "checkpoints", "job")
        metadata = next((storage.load(checkpoint) for checkpoint in storage.completed()), None)
        if metadata is None or metadata.attempt != attempt:
            return False
        return {type(task) for vertex in metadata.vertices for task in vertex.tasks} == {Finished, StateFile}

    first = job(2).execute_async()
    eventually(lambda: is_partly_finished(0), 60)
    lever.touch()
    eventually(lambda: is_partly_finished(1), 60)
    first.cancel()
    assert first.restarts == 1
    open_gate(tmp_path)
    assert job(3).execute(resume="latest").rows_in == 2 * ROWS
    keys = range(KEYS)
    totals = [{"key": key, "total": 2 * sum(range(key, ROWS, KEYS)), "rows": 2 * ROWS // KEYS} for key in keys]
    assert ds.dataset(tmp_path / "out").to_table().sort_by("key").to_pylist() == totals
    assert sorted(ds.dataset(tmp_path / "short").to_table()["value"].to_pylist()) == list(range(ROWS))


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(hg.CheckpointError, match="has no checkpoint in"):
        build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute(resume="latest")
    assert not (tmp_path / "out").exists()


def test_a_job_that_goes_on_if_there_is_something(tmp_path: Path) -> None:
    def run(resume: str | None) -> int:
        env = environment(tmp_path, hg.LocalDeployment(1, processes=False), 1)
        env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.parquet(tmp_path / "out"))
        return env.execute(resume=resume).rows_in

    assert run("latest-if-any") == 1
    assert run("latest-if-any") == 1
    assert ds.dataset(tmp_path / "out").count_rows() == 1, "the second time there was nothing left to do"
    with pytest.raises(hg.SinkError, match=r'not empty.* \(job \'job\' has checkpoints in .*: resume="latest" resumes'):
        run(None)


def test_a_source_that_cannot_resume_is_warned_of_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fleeting = hg.sources.iterable(lambda subtask, subtasks: [[{"n": 1}]], NUMBERS, replayable=False)
    passing, lasting = (hg.sources.iterable([[{"n": 1}]], NUMBERS) for _ in range(2))
    passing.resumable = False
    env = environment(tmp_path, hg.LocalDeployment(1, processes=False), 1)
    for name, source in {"fleeting": fleeting, "passing": passing, "lasting": lasting}.items():
        env.from_source(source).name(name).sink_to(hg.sinks.null())
    env.execute()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("headgate")]
    assert len(said) == 2
    assert "fleeting is read from its beginning when the job restarts: rows in flight are lost" in said[0]
    assert "passing continues when the job restarts by itself, but no other job can resume from its check" in said[1]


def test_a_job_that_never_ran_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise hg.HeadgateError("not here")

    monkeypatch.setattr(WindowAggregate, "open", broken)
    job = build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    with pytest.raises(hg.HeadgateError, match="not here"):
        job.wait(60)
    assert job.restarts == 0


def test_counters_stay_while_a_job_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens, lever = WindowAggregate.open, tmp_path / "lever"
    entered, goes_on = threading.Event(), threading.Event()

    def opens_late(*arguments: Any) -> None:
        if lever.exists():
            entered.set()
            goes_on.wait(60)
        opens(*arguments)

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if lever.exists() and not entered.is_set():
            raise ValueError("once")
        return batch

    monkeypatch.setattr(WindowAggregate, "open", opens_late)
    env = environment(tmp_path, hg.LocalDeployment(1, processes=False), 1, restart=hg.restart.fixed(1, delay=0))
    job = build(env, tmp_path, fails, source=rows(rate=1000.0, batch_rows=100)).execute_async()
    wait_until_running(job, 100)
    before = job.metrics()["rows_in"]
    lever.touch()
    assert entered.wait(60)
    restarts, meanwhile = job.restarts, job.metrics()["rows_in"]
    goes_on.set()
    assert (restarts, meanwhile >= before) == (1, True), "the next attempt has nothing to tell yet"
    eventually(lambda: job.status() == "RUNNING" and job.metrics()["rows_in"] > meanwhile, 60)
    job.cancel()


def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute()
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False))
    env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.parquet(tmp_path / "other"))
    with pytest.raises(hg.CheckpointError, match="which this job does not have"):
        env.execute(resume="latest")
    assert not (tmp_path / "other").exists()


def test_a_script_goes_on_by_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "import pathlib, headgate as hg\n"
        "from tests.exactly_once import build, environment\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "print(build(environment(folder, hg.LocalDeployment(2, processes=False)), folder).execute().rows_in)\n"
    )
    job = build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: any((tmp_path / "out").glob("part-*")))
    job.cancel()
    command = [sys.executable, "-m", "headgate.cli", "run", "--from", "latest", str(script), str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{ROWS}\n"), done.stderr
    assert committed(tmp_path) == expected()


def test_an_operator_without_state_may_come_and_go(tmp_path: Path) -> None:
    def jobs(names: list[str]) -> hg.JobHandle:
        env = environment(tmp_path, hg.LocalDeployment(1, processes=False), 1)
        source = behind_gate(hg.sources.generate(numbers, rows=20_000, rate=20_000), tmp_path, before=7_000)
        stream = env.from_source(source).uid("numbers")
        for name in names:
            stream = stream.filter("n >= 0").name(name)
        stream.key_by("n").aggregate(final=True, times=hg.count()).uid("counts").sink_to(
            hg.sinks.parquet(tmp_path / "counts")
        ).uid("files")
        return env.execute_async(resume="latest" if names == ["other", "more"] else None)

    first = jobs(["one"])
    eventually(lambda: len(first.checkpoints()) > 1)
    first.cancel()
    open_gate(tmp_path)
    assert jobs(["other", "more"]).wait(60).rows_in == 20_000
    assert sum(ds.dataset(tmp_path / "counts").to_table()["times"].to_pylist()) == 20_000


def test_operators_may_be_chained_otherwise(tmp_path: Path) -> None:
    """What a sink has counted is found in the task that it was part of."""

    def job(*, chained: bool, resume: str | None) -> hg.JobHandle:
        env = environment(tmp_path, hg.LocalDeployment(2, processes=False), 2)
        source = behind_gate(hg.sources.generate(numbers, rows=20_000, rate=20_000), tmp_path, before=7_000)
        stream = env.from_source(source)
        sink = stream.filter("n >= 0").sink_to(hg.sinks.parquet(tmp_path / "out"))
        if not chained:
            sink.disable_chaining()
        return env.execute_async(resume=resume)

    first = job(chained=True, resume=None)
    eventually(lambda: any((tmp_path / "out").glob("part-*")))
    first.cancel()
    open_gate(tmp_path)
    result = job(chained=False, resume="latest").wait(60)
    assert (result.rows_in, result.rows_out) == (20_000, 20_000)
    assert sorted(ds.dataset(tmp_path / "out").to_table()["n"].to_pylist()) == list(range(20_000))


@pytest.mark.parametrize(("tolerable", "restarts"), [(0, 1), (1, 0)])
def test_a_disk_that_is_full_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerable: int, restarts: int
) -> None:
    write, full = checkpoint_storage.write_part, [True]

    def write_part(folder: str, *arguments: Any) -> Any:
        if int(folder.rpartition("chk-")[2]) >= 3 and full:
            full.pop()
            raise hg.CheckpointError("no space left")
        return write(folder, *arguments)

    monkeypatch.setattr(state_upload, "write_part", write_part)
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False), tolerable_failed_checkpoints=tolerable)
    assert build(env, tmp_path).execute().restarts == restarts
    assert not full
    assert committed(tmp_path) == expected()


def test_what_the_command_names_comes_before_what_the_script_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESUME, str(tmp_path / "nowhere"))
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False))
    with pytest.raises(hg.CheckpointError, match="nowhere: is not a completed checkpoint"):
        build(env, tmp_path).execute(resume="latest-if-any")
