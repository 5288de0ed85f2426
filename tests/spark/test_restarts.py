"""Workers and executors of Spark that are killed during a job: the committed rows are those of a run without kills."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from headgate.runtime.master import attempt
from tests.exactly_once import attempts, committed, environment, expected
from tests.runtime.faults import build_gated, kill, open_gate
from tests.runtime.jobs import eventually, pid_of
from tests.spark.conftest import STANDALONE


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", STANDALONE], indirect=True)
def test_a_worker_and_an_executor_are_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attempt, "EXIT_WORD", 10.0)  # on a busy machine Spark says late what it knows
    env = environment(tmp_path, spark, slots_timeout="90 s", registration_timeout="90 s")
    job = build_gated(env, tmp_path).execute_async()
    eventually(lambda: 0 in attempts(tmp_path), 90)
    worker = pid_of(job, 0)
    kill(worker)
    eventually(lambda: 1 in attempts(tmp_path), 90)
    other = pid_of(job, 0)
    executor = psutil.Process(other).parent().parent()  # its parent is PySpark's daemon
    executor.kill()  # its workers live a moment longer, and could finish the job meanwhile
    eventually(lambda: job.restarts == 2, 90)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 2
    assert committed(tmp_path) == expected()
    assert f"(process {worker} on 127.0.0.1) was lost: its Python worker process died" in caplog.text
    assert re.search(rf"\(process {other} on 127\.0\.0\.1\) was lost: its Spark executor was lost", caplog.text)
