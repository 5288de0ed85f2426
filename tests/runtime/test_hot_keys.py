"""The hot keys of a subtask that gets most rows: named in the finding, and nowhere else."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.finding import Cause, Finding, Remedy
from headgate.observe.heavy_keys import HotKey
from headgate.plan.job_graph import build_job_graph
from headgate.records.hashing import default_max_parallelism, key_groups, key_hash, subtask_of_key_group
from headgate.runtime.control_messages import DeclineRequest, ReportKeys, SampleKeys
from headgate.runtime.master.hot_keys import PERIOD, SECONDS, HotKeys
from headgate.runtime.master.task_requests import TaskRequests
from headgate.runtime.taskmanager.key_sampler import KeySample
from tests.runtime.jobs import eventually
from tests.runtime.test_profiles import FakeAttempt

SUBTASKS = 4
SCHEMA = pa.schema({"city": pa.string(), "day": pa.int64()})

#: Makes the columns `city` and `day` of some rows.
Columns = Callable[[np.random.Generator, int], tuple[Sequence[str | None], Sequence[int]]]


def subtasks_of(*columns: pa.Array) -> list[int]:
    groups = default_max_parallelism(SUBTASKS)
    return list(subtask_of_key_group(key_groups(key_hash(columns), groups), SUBTASKS, groups))


def cities(subtask: int, count: int) -> list[str]:
    """Return names of cities that belong to one subtask."""
    names = [f"city-{number}" for number in range(count * 20)]
    return [name for name, at in zip(names, subtasks_of(pa.array(names)), strict=True) if at == subtask][:count]


def rows_of(columns: Columns) -> Callable[[int, int], pa.RecordBatch]:
    def rows(start: int, count: int) -> pa.RecordBatch:
        city, day = columns(np.random.default_rng(start), count)
        return pa.record_batch([pa.array(city, pa.string()), pa.array(day, pa.int64())], schema=SCHEMA)

    return rows


class Slow(hg.KeyedBatchFunction):
    """Waits 0.1 ms for each row."""

    def process(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> pa.RecordBatch:
        Event().wait(1e-4 * batch.num_rows)
        return batch


def started(columns: Columns, by: Sequence[str] = ("city",), processes: bool = False) -> hg.JobHandle:
    """Start a job in which one subtask of four gets most rows, more than it can process."""
    env = hg.StreamEnvironment(
        parallelism=SUBTASKS,
        config=hg.Config(network_memory="8 MiB"),
        deployment=hg.LocalDeployment(taskmanagers=2, processes=processes),
    )
    source = hg.sources.generate(rows_of(columns), schema=SCHEMA, rate=20_000, batch_rows=500)
    rows = env.from_source(source).set_parallelism(1)
    rows.key_by(*by).process(Slow(), schema=SCHEMA).name("slow").sink_to(hg.sinks.null())
    return env.execute_async()


def skew_of(job: hg.JobHandle) -> Finding | None:
    return next((each for each in job.diagnose() if each.cause.name == "data_skew"), None)


def with_keys(job: hg.JobHandle) -> Finding:
    """Return the job's finding of skew, when it names hot keys. Keys are sampled once a minute."""
    finding: Finding = eventually(lambda: (found := skew_of(job)) and found.hot_keys and found, 150)
    return finding


def zipf(random: np.random.Generator, count: int) -> tuple[Sequence[str], Sequence[int]]:
    """Half of all rows are for one city of subtask 2, a fifth for another one of it, and the rest for many others."""
    hot, second = cities(2, 2)
    others = np.array([f"city-{number}" for number in range(2000, 2400)])
    chosen = random.random(count)
    names = np.where(chosen < 0.5, hot, np.where(chosen < 0.7, second, random.choice(others, count)))
    return names.tolist(), [1] * count


@pytest.mark.turns(2)
@pytest.mark.parametrize("processes", [False, True])
def test_the_finding_names_two_hot_keys_and_no_file_has_them(processes: bool, tmp_path: Path) -> None:
    job = started(zipf, processes=processes)
    try:
        finding = with_keys(job)
        job.save_recording(tmp_path / "job.recording")
        job.save_page(tmp_path / "page.html")
    finally:
        job.cancel()
    hot, second = cities(2, 2)
    of_subtask = 0.7 + 0.3 / SUBTASKS  # about a quarter of the other cities are its own
    assert finding.subtasks == (2,)
    assert [key.key for key in finding.hot_keys] == [f"city='{hot}'", f"city='{second}'"]
    assert [key.share for key in finding.hot_keys] == pytest.approx([0.5 / of_subtask, 0.2 / of_subtask], abs=0.05)
    assert f"most for the keys city='{hot}'" in finding.sentence_with_keys
    assert "slow" in (recording := gzip.decompress((tmp_path / "job.recording").read_bytes()).decode())
    assert hot not in recording
    assert hot not in (tmp_path / "page.html").read_text()
    assert hot not in str(finding.as_json()) + finding.sentence


def test_even_keys_of_a_subtask_with_most_rows_are_not_named() -> None:
    names = np.array(cities(1, 40) + cities(0, 4) + cities(2, 4) + cities(3, 4))
    job = started(lambda random, count: (random.choice(names, count).tolist(), [1] * count))
    try:
        eventually(lambda: job._master.monitor._hot_keys._found, 150)
        sampled = job._master.monitor._hot_keys._found
        assert {place: keys for place, (keys, _) in sampled.items()} == {(1, 1): []}
        finding = eventually(partial(skew_of, job), 60)
        assert (finding.subtasks, finding.hot_keys) == ((1,), ())
    finally:
        job.cancel()


def test_a_null_in_a_key_of_two_columns_is_named() -> None:
    def columns(random: np.random.Generator, count: int) -> tuple[Sequence[str | None], Sequence[int]]:
        is_hot = random.random(count) < 0.8
        names = [None if each else f"city-{number}" for number, each in enumerate(is_hot)]
        return names, np.where(is_hot, 7, random.integers(0, 300, count)).tolist()

    job = started(columns, ("city", "day"))
    try:
        [key] = with_keys(job).hot_keys
    finally:
        job.cancel()
    assert (key.key, key.subtask) == ("city=null, day=7", *subtasks_of(pa.array([None], pa.string()), pa.array([7])))
    assert key.share == pytest.approx(0.8 / (0.8 + 0.2 / SUBTASKS), abs=0.05)


# --- a sample alone


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def batch_of(**columns: Sequence[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_key_of_two_columns_has_both_in_its_text() -> None:
    sample = KeySample([["city", "day"]], Clock())
    sample.add(batch_of(city=["a", "a", "a", "b"], day=[1, 1, 1, 2], n=[1, 2, 3, 4]), 0)
    assert sample.hot_keys() == [("city='a', day=1", 0.75)]
    assert sample.rows == 4


def test_sampled_rows_stand_for_the_rows_that_were_left_out() -> None:
    clock = Clock()
    sample = KeySample([["k"]], clock)
    for moment, key, rows in [(0.0, 1, 100), (0.05, 2, 300), (0.2, 2, 100)]:  # the second batch comes too early
        clock.now = moment
        sample.add(batch_of(k=[key] * rows), 0)
    assert sample.hot_keys() == [("k=2", 0.8)]
    assert sample.rows == 500


def test_a_large_batch_is_sampled_and_its_share_is_right() -> None:
    sample = KeySample([["k"]], Clock())
    sample.add(batch_of(k=([7] * 6 + list(range(100, 104))) * 10_000), 0)
    [(key, share)] = sample.hot_keys()
    assert key == "k=7"
    assert share == pytest.approx(0.6, abs=0.08)
    assert sample.rows == 100_000


def test_a_sample_that_costs_much_is_taken_less_often() -> None:
    clock = Clock()
    key = batch_of(k=[1])

    class Costly(KeySample):
        def _sample(self, batch: pa.RecordBatch, keys: Sequence[str]) -> None:
            super()._sample(batch, keys)
            clock.now += 0.01

    sample = Costly([["k"]], clock)
    for moment in (0.0, 0.5, 1.9, 2.1):
        clock.now = moment
        sample.add(key, 0)
    assert (clock.now, sample.rows) == (2.11, 4)
    clock.now = 4.0
    sample.add(key, 0)
    assert (clock.now, sample.rows) == (4.0, 4)


def test_an_input_without_a_key_is_left_out() -> None:
    sample = KeySample([["k"], []], Clock())
    sample.add(batch_of(other=[1, 2]), 1)
    assert sample.rows == 0


def test_a_sample_that_fails_leaves_the_task_alone() -> None:
    sample = KeySample([["gone"]], Clock())
    sample.add(batch_of(k=[1]), 0)
    assert isinstance(sample.error, KeyError)
    sample.add(batch_of(k=[1]), 0)


# --- the driver

FINDING = Finding(
    place="'aggregate[1]'",
    vertex=1,
    operator="aggregate",
    subtasks=(1,),
    waits=("generate",),
    cause=Cause(name="data_skew", text="it gets most of the rows", evidence={}),
    remedy=Remedy(text="spread its hot keys"),
)


class Asked:
    def __init__(self) -> None:
        env = hg.StreamEnvironment(parallelism=2)
        source = env.from_source(hg.sources.generate(rows_of(zipf), schema=SCHEMA))
        sink = source.key_by("city").process(Slow(), schema=SCHEMA).sink_to(hg.sinks.null())
        graph = build_job_graph(env._jobs.graph.graph([sink._node_id]))
        self.attempt, self.requests = FakeAttempt(), TaskRequests()
        self.requests.begin(self.attempt)  # type: ignore[arg-type]
        self.keys = HotKeys(graph, lambda subtask: subtask, self.requests)


def test_the_subtask_of_a_finding_is_sampled_once_a_minute() -> None:
    asked = Asked()
    slow_function = replace(FINDING, cause=replace(FINDING.cause, name="slow_function"))
    asked.keys.look([slow_function], 1000.0)
    assert asked.attempt.links[1].sent == []
    for now in (1000.0, 1001.0, 1059.0):
        asked.keys.look([slow_function, FINDING], now)
    order = SampleKeys(request=1, vertex=1, subtask=1, keys=[["city"]], seconds=SECONDS)
    assert asked.attempt.links[1].sent == [order]
    asked.keys.look([FINDING], 1000.0 + PERIOD)
    assert asked.attempt.links[1].sent == [order, replace(order, request=2)]
    asked.keys.close()
    asked.keys.look([FINDING], 2000.0)
    assert len(asked.attempt.links[1].sent) == 2


def test_the_answer_explains_this_finding_for_two_minutes() -> None:
    asked = Asked()
    asked.keys.look([FINDING], 1000.0)
    asked.requests.on_message(ReportKeys(request=1, rows=10, shares=[("city='\x1b[31m'", 0.9)]))
    [explained] = asked.keys.explained([FINDING], 1003.0)
    assert explained.hot_keys == (HotKey("city='\\x1b[31m'", 0.9, 1),)
    elsewhere = replace(FINDING, subtasks=(0,))
    assert asked.keys.explained([elsewhere], 1003.0) == [elsewhere]
    assert asked.keys.explained([FINDING], 1121.0) == [FINDING]


@pytest.mark.parametrize(
    "message",
    [
        DeclineRequest(request=1, reason="its task took no rows"),
        ReportKeys(request=1, rows=1, shares=[("k=1", 1.5)]),
        ReportKeys(request=1, rows=1, shares=[("k=1", float("nan"))]),
        ReportKeys(request=1, rows=1, shares=[("k=1", 0.1)] * 11),
    ],
    ids=["declined", "too large", "not a number", "too many"],
)
def test_without_a_good_answer_the_findings_stay_as_they_are(message: ReportKeys | DeclineRequest) -> None:
    asked = Asked()
    asked.keys.look([FINDING], 1000.0)
    asked.requests.on_message(message)
    assert asked.keys.explained([FINDING], 1001.0) == [FINDING]
