"""Which processes `headgate demo --kill` kills, and when."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.demo.kill import Killer

#: A shell that starts a process and prints its id: it stands for an executor, and the process for its Python worker.
EXECUTOR = "sh -c 'sleep 300 & echo $!; wait'; true"


@pytest.fixture
def workers() -> Iterator[list[tuple[int, subprocess.Popen[str]]]]:
    """Start two workers with their executors; yield the id of each worker and the process of its executor."""
    started = [
        subprocess.Popen(["sh", "-c", EXECUTOR], stdout=subprocess.PIPE, text=True, start_new_session=True)
        for _ in range(2)
    ]
    yield [(int(process.stdout.readline()), process) for process in started]
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_it_kills_a_worker_and_then_an_executor_each_after_a_checkpoint(workers: Any) -> None:
    (first, its_executor), (second, executor) = workers
    members = [SimpleNamespace(pid=first), SimpleNamespace(pid=second)]
    records: list[hg.CheckpointRecord] = []
    job: Any = SimpleNamespace(
        restarts=0, checkpoints=lambda: records, _master=SimpleNamespace(_attempt=SimpleNamespace(members=members))
    )
    lines: list[str] = []
    killer = Killer(job, lines.append)

    def look(status: str) -> int:
        job.status = lambda: status
        killer.strike_if_due()
        return len(lines)

    assert look("CREATED") == look("RUNNING") == 0, "there is no checkpoint"
    records.append(hg.CheckpointRecord(checkpoint=1, triggered_at=0.0, duration=0.1, failure="too late"))
    assert look("RUNNING") == 0, "there is no complete checkpoint"
    records.append(hg.CheckpointRecord(checkpoint=2, triggered_at=0.0, duration=0.1))
    assert look("RUNNING") == 1
    records.append(hg.CheckpointRecord(checkpoint=3, triggered_at=0.0, duration=0.1))
    assert look("RUNNING") == 1, "the job has not noticed the loss yet"
    job.restarts = 1
    assert look("RESTARTING") == 1
    assert its_executor.wait(60) == 0, "its worker has ended, but the executor was not killed"
    records.append(hg.CheckpointRecord(checkpoint=4, triggered_at=0.0, duration=0.1))
    assert look("RUNNING") == Killer.STRIKES == 2
    assert executor.wait(60) == -signal.SIGKILL
    job.restarts = 2
    records.append(hg.CheckpointRecord(checkpoint=5, triggered_at=0.0, duration=0.1))
    assert look("RUNNING") == 2
    assert lines == [
        f"Killing a Python worker, process {first}, after checkpoint 2 ...",
        f"Killing a Spark executor, process {executor.pid}, after checkpoint 4 ...",
    ]
