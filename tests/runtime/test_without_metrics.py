"""`metrics=False`: nothing is measured or reported until the end, and the counts of the end are there."""

from __future__ import annotations

import pytest

import headgate as hg
from tests.runtime.jobs import counted, endless, environment, eventually

TIMES = ("busy_s", "idle_s", "soft_backpressured_s", "input_s", "output_s")


@pytest.mark.parametrize("measures", [True, False])
def test_a_job_measures_and_reports_only_with_metrics(processes: bool, measures: bool) -> None:
    env = environment(processes, metrics=measures)
    counted(env, 20_000).key_by("n").aggregate(rows=hg.count()).name("sums").sink_to(hg.sinks.null())
    result = env.execute()
    assert result.rows_in == 20_000
    operator = result.metrics["operators"]["sums"]
    assert operator["rows_in"] == 20_000
    assert operator["state_keys"] == 20_000
    assert (operator["busy_s"] > 0) == measures
    for task in result.metrics["tasks"].values():
        assert (sum(task[name] for name in TIMES) > 0) == measures
    assert result.metrics["edges"]["generate -> sums"]["bytes_out"] > 0


def test_a_running_job_without_metrics_reports_nothing_until_it_ends() -> None:
    env = environment(processes=False, metrics=False)
    seen: list[int] = []
    endless(env).sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.append(batch.num_rows)))
    job = env.execute_async()
    eventually(lambda: len(seen) > 5)
    assert job.metrics()["taskmanagers"] == 0
    assert job.diagnose() == []
    job.stop(drain=True)
    assert job.metrics()["taskmanagers"] == 2
    assert job.metrics()["rows_in"] == sum(seen)


def test_debloating_needs_what_is_measured() -> None:
    with pytest.raises(hg.ConfigError, match="debloat has no effect without metrics=True"):
        hg.Config(metrics=False, debloat=True)
