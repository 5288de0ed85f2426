"""Whole jobs whose sources have a fixed rate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from tests.runtime.jobs import counted, endless, environment, eventually, keyed, numbers, wait_until_running

#: So slow that the second batch of a test never comes.
STANDS = hg.throttle.FixedRate(0.01, burst=0)


def source_task(job: hg.JobHandle) -> dict[str, Any]:
    task: dict[str, Any] = next(task for name, task in job.metrics()["tasks"].items() if name.startswith("generate"))
    return task


@pytest.mark.parametrize("processes", [False, True])
def test_a_source_reads_at_its_rate_and_its_task_is_throttled_meanwhile(processes: bool) -> None:
    """The first batch of 64 rows passes at once, and the last one needs no further wait. A task that wakes late has to
    wait for longer in all, and one that gets no processor spends a part of these two seconds on its work."""
    env = environment(processes, parallelism=1, throttle=hg.throttle.FixedRate(2000, burst=0))
    keyed(counted(env, 4000)).sink_to(hg.sinks.null())
    began = time.monotonic()
    result = env.execute()
    took = time.monotonic() - began
    assert took >= (4000 - 2 * 64) / 2000
    assert result.rows_in == 4000
    task = next(task for name, task in result.metrics["tasks"].items() if name.startswith("generate"))
    assert 1.0 < task["throttle_wait_s"] < took
    assert task["idle_s"] < task["throttle_wait_s"] / 2


def test_the_throttle_of_a_source_overrides_that_of_the_job() -> None:
    env = environment(parallelism=1, throttle=STANDS)
    slow = env.from_source(hg.sources.generate(numbers, rows=512, batch_rows=256)).name("slow")
    quick_source = hg.sources.generate(numbers, rows=512, batch_rows=256)
    quick = env.from_source(quick_source, throttle=hg.throttle.FixedRate(1e6)).name("quick")
    keyed(slow.union(quick)).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: job.metrics()["rows_in"] == 512 + 256)
    operators = job.metrics()["operators"]
    job.cancel()
    assert {name: operators[name]["rows_out"] for name in ("slow", "quick")} == {"slow": 256, "quick": 512}


def test_checkpoints_and_a_cancel_do_not_wait_for_the_throttle(tmp_path: Path) -> None:
    env = environment(parallelism=1, throttle=STANDS, checkpoint_dir=tmp_path, checkpoint_interval=0.1)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    eventually(lambda: len(job.checkpoints()) >= 3)
    assert eventually(lambda: source_task(job)["throttle_wait_s"]) > 0
    began = time.monotonic()
    job.cancel()
    assert job.status() == "CANCELLED"
    assert time.monotonic() - began < 60, "the second batch is due after seven hours"


def test_a_drained_job_does_not_wait_for_the_throttle() -> None:
    env = environment(parallelism=1, throttle=STANDS)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    job.stop(drain=True, timeout=30)
    assert job.wait(30).rows_in == 256


def test_what_is_no_throttle_is_refused() -> None:
    with pytest.raises(hg.ConfigError, match=r"option throttle: 1000 is no throttle; see hg.throttle"):
        hg.Config(throttle=1000)
    env = hg.StreamEnvironment()
    with pytest.raises(hg.PlanError, match=r"from_source: throttle must be one of hg.throttle, not 1000"):
        env.from_source(hg.sources.generate(numbers, rows=1), throttle=1000)  # type: ignore[arg-type]


@pytest.mark.parametrize("of_source", [False, True])
def test_adaptive_flush_reads_no_larger_batches_under_a_throttle(of_source: bool) -> None:
    """All 2,000 rows are due after 20 ms: without a throttle, a source with adaptive flush then reads them at once."""
    throttle, sizes = hg.throttle.FixedRate(10_000), []
    config = hg.Config(buffer_timeout="adaptive", throttle=None if of_source else throttle)
    env = hg.StreamEnvironment(config=config, deployment=hg.LocalDeployment(processes=False))
    source = hg.sources.generate(numbers, rows=2_000, rate=100_000)  # blocks of 100 rows
    rows = env.from_source(source, throttle=throttle if of_source else None)
    rows.sink_to(hg.sinks.for_each_batch(lambda batch, _: sizes.append(batch.num_rows)))
    env.execute()
    assert sizes == [100] * 20
