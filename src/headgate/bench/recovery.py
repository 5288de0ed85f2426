"""The time from a kill to the first new row at the sink, for a TaskManager process, a Spark worker and an executor.

The job has a paced source, a keyed exchange, running maxima of 1,000 keys, and a checkpoint each second. A row is new
if no sink had it before the kill. Rows that the job replays from its checkpoint are not new. Spark runs as
`local-cluster` with two executors.
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
#: How many seconds a step of a round may take.
_TIMEOUT = 180.0
_POLL_INTERVAL = 0.005


def taskmanager_of(worker: int) -> int:
    """Return the process to kill: the TaskManager's own process."""
    return worker


@dataclass(frozen=True, slots=True)
class Kill:
    """A kind of kill: the victim, and the target for the seconds from the kill to the first new row.

    `process_of` takes the process id of a TaskManager and returns the process id to kill.
    """

    victim: str
    target: float
    process_of: Callable[[int], int] = taskmanager_of


ON_PROCESSES = (Kill("TaskManager, local processes", 2.0),)
ON_SPARK = (Kill("Python worker, Spark", 4.0), Kill("executor, Spark", 12.0, executor_of))


def figures(options: Options) -> dict[Kill, Figure]:
    """Measure each kind of kill, in several rounds of one job. Return the seconds of each kind."""
    rounds = 1 if options.quick else ROUNDS
    measured: dict[Kill, Figure] = {}
    for place, kills in ((_on_processes, ON_PROCESSES), (_on_spark, ON_SPARK)):
        with place() as environment:
            for kill in kills:
                options.say(f"checkpoint: {rounds} times {kill.victim}")
                measured[kill] = Figure(
                    f"recovery, {kill.victim}", "s", recoveries(environment, kill.process_of, rounds)
                )
    return measured


def recoveries(environment: Callable[..., hg.StreamEnvironment], process_of: Callable[[int], int],
               rounds: int) -> tuple[float, ...]:  # fmt: skip
    """Run the job, kill `rounds` times, and return the seconds from each kill to the first new row.

    Raises the job's error, and HeadgateError if a step takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder, checkpoint_dir = Path(name, "arrivals"), Path(name, "checkpoints")
        folder.mkdir()
        restart = hg.restart.fixed(rounds, delay=0)
        env = environment(checkpoint_dir=checkpoint_dir, checkpoint_interval=CHECKPOINT_INTERVAL, restart=restart)
        rows = env.from_source(hg.sources.generate(_rows, rate=RATE))
        rows.key_by("key").aggregate(number=hg.max("number")).sink_to(Arrivals(folder, "number"))
        job = env.execute_async("recovery")
        try:
            return tuple(_recovery(job, folder, attempt, process_of) for attempt in range(rounds))
        finally:
            job.cancel()


def _recovery(job: hg.JobHandle, folder: Path, attempt: int, process_of: Callable[[int], int]) -> float:
    _wait_for(job, lambda: any(arrivals(folder, attempt)), f"a row of attempt {attempt}")
    completed = _completed(job)
    _wait_for(job, lambda: _completed(job) > completed, f"a checkpoint after {completed}")
    worker = job._master._attempt.members[attempt % PARALLELISM].pid
    assert worker is not None  # rows have arrived, so the TaskManager has registered
    victim = process_of(worker)
    killed_at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    _wait_for(
        job, lambda: _first_new(folder, attempt + 1, killed_at) is not None, f"a new row of attempt {attempt + 1}"
    )
    first = _first_new(folder, attempt + 1, killed_at)
    assert first is not None
    return first - killed_at


def _completed(job: hg.JobHandle) -> int:
    return max((each.checkpoint for each in job.checkpoints() if each.failure is None), default=0)


def _first_new(folder: Path, attempt: int, killed_at: float) -> float | None:
    """Return when the attempt's sinks got the first row that no sink had before the kill; None if there is none yet."""
    before = max(number for came in arrivals(folder) for at, number in came if at <= killed_at)
    new = (at for came in arrivals(folder, attempt) for at, number in came if number > before)
    return min(new, default=None)


def _wait_for(job: hg.JobHandle, condition: Callable[[], bool], event: str) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not condition():
        if job.status() not in ("CREATED", "RUNNING", "RESTARTING"):
            job.wait()
        if time.monotonic() > deadline:
            raise HeadgateError(f"recovery: there was not {event} within {_TIMEOUT:g} s; the job is {job.status()}")
        time.sleep(_POLL_INTERVAL)


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
