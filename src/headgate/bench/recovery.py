"""From a kill to the first new row at the sink: a TaskManager's process, a Python worker of Spark's, an executor.

A paced source, a keyed exchange and running maxima of 1,000 keys, a checkpoint each second. New is a row that no sink
had before the kill; what the job replays from its checkpoint is not. Spark is `local-cluster` of two executors.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.bench.arrivals import Arrivals, arrivals
from headgate.bench.case_options import Options
from headgate.bench.report import Figure
from headgate.errors import HeadgateError
from headgate.spark.processes import executor_of
from headgate.spark.session import build_session

MASTER = "local-cluster[2,1,1024]"
PARALLELISM = 2
RATE = 50_000.0
KEYS = 1_000
CHECKPOINT_INTERVAL = "1 s"
ROUNDS = 5
#: How long a round may take, seconds.
_PATIENCE = 180.0
_LOOK = 0.005


def itself(worker: int) -> int:
    """The process of a TaskManager, as that to kill."""
    return worker


@dataclass(frozen=True, slots=True)
class Kill:
    """Whom to kill, by a TaskManager's process, and the seconds it may take until the first new row."""

    victim: str
    target: float
    process_of: Callable[[int], int] = itself


ON_PROCESSES = (Kill("TaskManager, local processes", 2.0),)
ON_SPARK = (Kill("Python worker, Spark", 4.0), Kill("executor, Spark", 12.0, executor_of))


def figures(options: Options) -> dict[Kill, Figure]:
    """Seconds of each kill, several rounds in one job."""
    rounds = 1 if options.quick else ROUNDS
    found: dict[Kill, Figure] = {}
    for place, kills in ((_on_processes, ON_PROCESSES), (_on_spark, ON_SPARK)):
        with place() as environment:
            for kill in kills:
                options.say(f"checkpoint: {rounds} times {kill.victim}")
                found[kill] = Figure(f"recovery, {kill.victim}", "s", recoveries(environment, kill.process_of, rounds))
    return found


def recoveries(environment: Callable[..., hg.StreamEnvironment], process_of: Callable[[int], int],
               rounds: int) -> tuple[float, ...]:  # fmt: skip
    """Run the job and kill so often; seconds from each kill to the first new row. Raises HeadgateError."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder, kept = Path(name, "arrivals"), Path(name, "checkpoints")
        folder.mkdir()
        restart = hg.restart.fixed(rounds, delay=0)
        env = environment(checkpoint_dir=kept, checkpoint_interval=CHECKPOINT_INTERVAL, restart=restart)
        rows = env.from_source(hg.sources.generate(_rows, rate=RATE))
        rows.key_by("key").aggregate(number=hg.max("number")).sink_to(Arrivals(folder, "number"))
        job = env.execute_async("recovery")
        try:
            return tuple(_recovery(job, folder, attempt, process_of) for attempt in range(rounds))
        finally:
            job.cancel()


def _recovery(job: hg.JobHandle, folder: Path, attempt: int, process_of: Callable[[int], int]) -> float:
    _await(job, lambda: any(arrivals(folder, attempt)))
    completed = _completed(job)
    _await(job, lambda: _completed(job) > completed)
    worker = job._master._attempt.members[attempt % PARALLELISM].pid
    assert worker is not None  # it has registered
    victim = process_of(worker)
    killed_at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    _await(job, lambda: _first_new(folder, attempt + 1, killed_at) is not None)
    first = _first_new(folder, attempt + 1, killed_at)
    assert first is not None
    return first - killed_at


def _completed(job: hg.JobHandle) -> int:
    return max((each.checkpoint for each in job.checkpoints() if each.failure is None), default=0)


def _first_new(folder: Path, attempt: int, killed_at: float) -> float | None:
    """When the attempt's sinks got the first row that none had before the kill."""
    before = max(number for came in arrivals(folder) for at, number in came if at <= killed_at)
    new = (at for came in arrivals(folder, attempt) for at, number in came if number > before)
    return min(new, default=None)


def _await(job: hg.JobHandle, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if job.status() not in ("CREATED", "RUNNING", "RESTARTING"):
            job.wait()
        if time.monotonic() > deadline:
            raise HeadgateError(f"recovery: what was waited for did not come within {_PATIENCE:g} s")
        time.sleep(_LOOK)


def _rows(start: int, n: int) -> pa.RecordBatch:
    number = np.arange(start, start + n)
    return pa.RecordBatch.from_arrays([pa.array(number % KEYS), pa.array(number)], names=["key", "number"])


@contextmanager
def _on_processes() -> Iterator[Callable[..., hg.StreamEnvironment]]:
    deployment = hg.LocalDeployment(taskmanagers=PARALLELISM, processes=True)
    yield lambda **options: hg.StreamEnvironment(
        parallelism=PARALLELISM, config=hg.Config(**options), deployment=deployment
    )


@contextmanager
def _on_spark() -> Iterator[Callable[..., hg.StreamEnvironment]]:
    session = build_session(MASTER, "headgate bench")
    try:
        yield lambda **options: hg.StreamEnvironment(
            session, parallelism=PARALLELISM, config=hg.Config(slots_timeout="60 s", **options)
        )
    finally:
        session.stop()
