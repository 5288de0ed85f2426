"""`slow-sink`: a source at full speed and a sink of 1 MB/s.

No process may use more memory than at its start, plus its network memory, its budget of pending bytes, and 50 MB.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import psutil
import pyarrow as pa

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.keyed_rows import keyed_rows
from headgate.bench.report import CaseResult, Figure
from headgate.connectors.for_each_batch_sink import BatchInfo
from headgate.errors import HeadgateError
from headgate.exchange.pending import PENDING_BUDGET
from headgate.runtime.launch.forks import PROCESS_NAME

PARALLELISM = 2
SINK_BYTES_PER_S = 1_000_000
#: Bytes that a process may use beyond its start-up value, its pools and its pending budget.
ALLOWANCE = 50_000_000
BIG_ROW = 1_000_000
SAMPLE_EVERY = 0.25
START_UP_SECONDS = 3.0
MB = 1e6

BIG_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.binary())])


def big_rows(start: int, n: int) -> pa.RecordBatch:
    """Return rows `start` to `start + n`, of 1 MB each."""
    bodies = np.repeat(np.arange(start, start + n).astype(np.uint8), BIG_ROW)
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * BIG_ROW).buffers()[1]
    values = pa.Array.from_buffers(pa.binary(), n, [None, offsets, pa.py_buffer(bodies)])
    return pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + n)), values], schema=BIG_SCHEMA)


@dataclass(frozen=True, slots=True)
class Load:
    """A part of the case: the rows of the source, and the slow subtasks of the sink."""

    name: str
    slow: tuple[int, ...]
    rows: Callable[[int, int], pa.RecordBatch] = keyed_rows
    batch_rows: int = 8192


LOADS = (
    Load("one slow subtask", (0,)),
    Load("both slow", (0, 1)),
    Load("both slow, 1 MB rows", (0, 1), big_rows, 8),
)


def run(options: Options) -> CaseResult:
    """Run each load for its share of five minutes, and sample the memory all the time."""
    seconds = 6.0 if options.quick else 100.0
    figures, met = [], True
    for load in LOADS:
        options.say(f"slow-sink: {load.name}, {seconds:g} s")
        start = _observe(load, START_UP_SECONDS, rate=1.0)
        grown = _observe(load, seconds, rate=None)
        if not grown.remote_bytes:
            raise HeadgateError(f"slow-sink, {load.name}: no bytes crossed a socket, so the measurement does not count")
        bound = max(start.workers) + hg.Config().network_memory + PENDING_BUDGET + ALLOWANCE
        met = met and max(grown.workers) <= bound and max(grown.driver) <= start.driver[-1] + ALLOWANCE
        peaks = {
            "worker at start": max(start.workers),
            "worker": max(grown.workers),
            "worker's bound": bound,
            "driver": max(grown.driver),
            "crossed sockets": grown.remote_bytes,
        }
        figures += [Figure(f"{load.name}: {what}", "MB", (peak / MB,)) for what, peak in peaks.items()]
    target = "every process within start-up + pools + pending budget + 50 MB"
    return CaseResult(
        case="slow-sink", target=target, met=met, figures=tuple(figures), settings={"seconds": seconds * len(LOADS)}
    )


@dataclass(slots=True)
class _Memory:
    """Resident bytes over time: of the largest worker, and of this process, which is the driver."""

    workers: list[int] = field(default_factory=list)
    driver: list[int] = field(default_factory=list)
    remote_bytes: int = 0


def _observe(load: Load, seconds: float, rate: float | None) -> _Memory:
    """Run the job for `seconds` from its start, cancel it, and return its memory.

    `rate` is in rows/s; None means full speed. At 1 row/s the job is nearly idle, which shows its start-up memory.
    """
    environment = hg.StreamEnvironment(
        parallelism=PARALLELISM, deployment=hg.LocalDeployment(taskmanagers=PARALLELISM, processes=True)
    )
    source = hg.sources.generate(load.rows, rate=rate, batch_rows=load.batch_rows)
    keyed = environment.from_source(source).key_by("key")
    keyed.sink_to(hg.sinks.for_each_batch(partial(_write_slowly, load.slow)))
    memory, driver = _Memory(), psutil.Process()
    job = environment.execute_async("slow-sink")
    try:
        while job.status() == "CREATED":
            time.sleep(SAMPLE_EVERY)
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if job.status() not in ("CREATED", "RUNNING"):
                job.wait(0)
            sizes = [_resident(process) for process in taskmanagers(driver)]
            if len(sizes) >= PARALLELISM:
                memory.workers.append(max(sizes))
                memory.driver.append(_resident(driver))
            time.sleep(min(SAMPLE_EVERY, end - now))
        memory.remote_bytes = job.metrics()["remote_bytes"]
    finally:
        job.cancel()
    return memory


def taskmanagers(driver: psutil.Process) -> list[psutil.Process]:
    """Return the TaskManager processes of the driver, found by their name."""
    processes = []
    for process in driver.children(recursive=True):
        with suppress(psutil.Error):
            if process.name().startswith(PROCESS_NAME):
                processes.append(process)
    return processes


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _write_slowly(slow: tuple[int, ...], batch: pa.RecordBatch, info: BatchInfo) -> None:
    if info.subtask in slow:
        time.sleep(batch.nbytes / SINK_BYTES_PER_S)
