"""Real jobs with a slow place: the diagnosis names the place, the reason and a remedy. Functions wait by an event, so
other work on the machine does not change the answer."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.finding import Finding, Severity
from headgate.observe.recording import read_recording
from headgate.runtime.master.job import JobHandle
from tests.runtime.jobs import NUMBERS, environment, eventually

STALL = 0.1


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(STALL)
    return batch


def slow_per_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(0.001 * batch.num_rows)
    return batch


def fast(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def slow_sink(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
    threading.Event().wait(STALL)


def numbers(env: hg.StreamEnvironment, rate: float | None = None) -> hg.DataStream:
    source = hg.sources.generate(
        lambda start, count: pa.record_batch({"n": pa.array(range(start, start + count))}),
        rate=rate,
        schema=NUMBERS,
        batch_rows=100,
    )
    return env.from_source(source).name("numbers")


def found(job: JobHandle, is_it: Callable[[Finding], bool]) -> Finding:
    """Return the first finding of a running job that `is_it` accepts."""
    seen: list[Finding] = []

    def look() -> bool:
        seen[:] = job.diagnose()[:1]
        return bool(seen) and is_it(seen[0])

    eventually(look, 60)
    return seen[0]


def is_of(finding: Finding, operator: str, cause: str) -> bool:
    """Whether it is of this operator and has this cause. On a slow machine the first seconds of a job may show another
    one."""
    return finding.operator == operator and finding.cause.name == cause


@pytest.mark.parametrize("processes", [False, True])
def test_a_slow_function_behind_an_exchange(processes: bool) -> None:
    env = environment(processes, parallelism=2, network_memory="4 MiB")
    slowed = numbers(env).rebalance().map_batches(slow, schema=NUMBERS).name("warehouse")
    slowed.sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        finding = found(
            job,
            lambda each: is_of(each, "warehouse", "waiting_function") and len(each.subtasks) == 2 and bool(each.waits),
        )
    finally:
        job.cancel()
    assert finding.waits == ("numbers",)
    assert finding.subtasks == (0, 1)
    assert finding.severity is not Severity.STUCK
    assert finding.remedy.gain is not None
    assert "'numbers' waits for 'warehouse'" in finding.sentence


def test_a_slow_function_in_the_chain_of_a_source() -> None:
    env = environment(True, parallelism=1)
    slowed = numbers(env).map_batches(slow, schema=NUMBERS).name("warehouse")
    slowed.rebalance().map_batches(fast, schema=NUMBERS).name("ids").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        finding = found(job, lambda each: each.operator == "warehouse")
    finally:
        job.cancel()
    assert finding.waits == ("ids",)


def endless_items(waits: float) -> Callable[[int, int], Iterator[pa.RecordBatch]]:
    def items(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        while True:
            threading.Event().wait(waits)
            yield pa.record_batch({"n": [1, 2, 3]})

    return items


def test_a_slow_iterator_of_a_bounded_source() -> None:
    """Its thread makes the task wait. The task has no input then, but it is not idle: there are more rows."""
    env = environment(True, parallelism=1)
    source = hg.sources.iterable(endless_items(STALL), schema=NUMBERS, bounded=True)
    rows = env.from_source(source).name("items").rebalance().map_batches(fast, schema=NUMBERS).name("ids")
    rows.sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        finding = found(job, lambda each: is_of(each, "items", "slow_source"))
    finally:
        job.cancel()
    assert finding.waits == ("ids",)


def test_an_endless_source_that_waits_for_rows_is_idle() -> None:
    env = environment(True, parallelism=1)
    source = hg.sources.iterable(endless_items(STALL), schema=NUMBERS, bounded=False)
    env.from_source(source).rebalance().map_batches(fast, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        eventually(lambda: bool(job.backpressure()), 60)
        findings = job.diagnose()
    finally:
        job.cancel()
    assert findings == []


def test_a_fixed_rate_that_is_in_the_way() -> None:
    env = environment(True, parallelism=1, throttle=hg.throttle.FixedRate(1000))
    numbers(env, rate=3000).rebalance().map_batches(fast, schema=NUMBERS).name("ids").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        finding = found(job, lambda each: each.cause.name == "throttle")
    finally:
        job.cancel()
    assert finding.operator == "numbers"
    assert finding.waits == ("ids",)
    assert "its throttle FixedRate(rows_per_s=1000" in finding.sentence


def slow_answers(keys: pa.RecordBatch) -> pa.Table:
    threading.Event().wait(STALL)
    return pa.table({**dict(zip(keys.schema.names, keys.columns, strict=True)), "answer": keys.column(0)})


def test_a_slow_lookup_has_its_share_of_waiting() -> None:
    env = environment(False, parallelism=1, network_memory="4 MiB")
    rows = numbers(env).rebalance()
    asked = rows.lookup(slow_answers, on=NUMBERS.names[0], schema=pa.schema({"answer": pa.int64()}), cache_rows=0)
    asked.name("customers").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        finding = found(job, lambda each: each.operator == "customers" and "lookup_wait" in each.cause.evidence)
    finally:
        job.cancel()
    assert finding.cause.name == "slow_lookup"
    assert "it waits for the lookup's answers for" in finding.sentence


def test_a_slow_sink_at_the_end_of_a_chain() -> None:
    env = environment(True, parallelism=1, network_memory="4 MiB")
    rows = numbers(env).rebalance().map_batches(fast, schema=NUMBERS)
    rows.sink_to(hg.sinks.for_each_batch(slow_sink)).name("store")
    job = env.execute_async()
    try:
        found(job, lambda each: is_of(each, "store", "slow_sink"))
    finally:
        job.cancel()


def test_a_paced_job_that_falls_behind_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    env = environment(True, parallelism=1, network_memory="4 MiB")
    numbers(env, rate=3000).rebalance().map_batches(slow_per_row, schema=NUMBERS).name("warehouse").sink_to(
        hg.sinks.null()
    )
    job = env.execute_async("paced")
    try:
        found(job, lambda each: each.operator == "warehouse" and each.severity is Severity.BEHIND)
        eventually(lambda: "job 'paced' is behind: " in caplog.text, 30)
    finally:
        job.cancel()
    assert caplog.text.count("is behind") == 1


def test_a_paced_job_that_keeps_up_is_not_blamed(tmp_path: Path) -> None:
    env = environment(True, parallelism=2)
    numbers(env, rate=1000).rebalance().map_batches(fast, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        eventually(lambda: [vertex["level"] for vertex in job.backpressure()] == ["OK"] * 2, 60)
        eventually(lambda: job.diagnose() == [], 60)  # what it has to catch up with after a slow start is soon done
        job.save_recording(tmp_path / "job.gz")
    finally:
        job.cancel()
    recording = read_recording(tmp_path / "job.gz")
    assert len(recording.snapshots) >= 3
    assert "network_memory" not in recording.facts["options"]
    assert recording.facts["versions"]["headgate"]


def test_a_job_that_fails_names_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    begins = tmp_path / "fails"

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if begins.exists():
            raise ValueError("no more")
        return batch

    env = environment(True, parallelism=1)
    numbers(env, rate=1000).map_batches(fails, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: len(job._master.monitor._latest()) >= 2, 60)
    begins.touch()
    with pytest.raises(hg.HeadgateError, match="no more") as raised:
        job.wait(60)
    assert "\nValueError: no more\n(its last minutes" in raised.value.message
    [path] = re.findall(r"\(its last minutes are in (\S+), which", raised.value.message)
    assert len(read_recording(path).snapshots) >= 2
