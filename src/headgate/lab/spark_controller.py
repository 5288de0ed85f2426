"""`spark-streaming`: does `SparkPid` do what Spark Streaming's own controller does under the same load?

Both get more rows than they can process, at the same cost per row. In the middle of the run the cost halves. Spark
Streaming runs in a program of its own, with its socket receiver, and with all its defaults but the first rate.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import Figure
from headgate.errors import HeadgateError
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.mechanisms.observed import MechanismRun, check_readers, counted, overhead
from headgate.lab.mechanisms.processor_times import ProcessorTimes
from headgate.lab.mechanisms.verdicts import figures as figures_of
from headgate.lab.originals.compared import compared
from headgate.lab.originals.controlled_load import ControlledBatch, ControlledLoad
from headgate.lab.originals.line_server import line_server

FULL = ControlledLoad(rate=5000, cost=0.001, interval=1.0, batches=60, initial_rate=500)
QUICK = ControlledLoad(rate=5000, cost=0.001, interval=1.0, batches=40, initial_rate=500)
ROUNDS, QUICK_ROUNDS = 3, 1
#: The share of each half whose batches count as settled: the last ones.
_SETTLED: Final = 0.5
#: The rows that the source reads at once. Spark's receiver asks its rate limiter for each single row.
_READ: Final = 10
_MEMORY: Final = "256 MiB"
ORIGINAL, OURS = "Spark Streaming", "SparkPid"
SCHEMA: Final = pa.schema([("n", pa.int64())])


def run(options: Options) -> Experiment:
    """Run both in turn, round by round."""
    load = QUICK if options.quick else FULL
    runs: dict[str, list[list[ControlledBatch]]] = {ORIGINAL: [], OURS: []}
    costs: list[MechanismRun] = []
    for number in range(QUICK_ROUNDS if options.quick else ROUNDS):
        options.say(f"spark-streaming: round {number + 1}, {ORIGINAL}")
        runs[ORIGINAL].append(original(load))
        options.say(f"spark-streaming: round {number + 1}, {OURS}")
        batches, cost = ours(load)
        runs[OURS].append(batches)
        costs.append(cost)
    return report(runs, load, costs)


def original(load: ControlledLoad) -> list[ControlledBatch]:
    """Return the batches of Spark Streaming. Raises HeadgateError if its program fails."""
    program = [sys.executable, "-P", "-m", "headgate.lab.originals.spark_streaming"]
    with line_server(load.rate) as port, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*program, load.to_text(), str(port)], capture_output=True, text=True, cwd=folder, check=False
        )
    if done.returncode:
        raise HeadgateError(f"the program of Spark Streaming ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return _enough(ORIGINAL, [ControlledBatch(**json.loads(line)) for line in done.stdout.splitlines()], load)


def ours(load: ControlledLoad) -> tuple[list[ControlledBatch], MechanismRun]:
    """Return the batches of a job with `SparkPid`, and the job's counters.

    Raises HeadgateError if the job fails, or if the run is void.
    """
    throttle = hg.throttle.SparkPid(batch_interval=load.interval, initial_rate=load.initial_rate, storage="memory")
    config = hg.Config(flow_control="unbounded", buffer_timeout=0, network_memory=_MEMORY, throttle=throttle)
    environment = hg.StreamEnvironment(parallelism=1, config=config)
    source = hg.sources.generate(_numbers, rate=load.rate, schema=SCHEMA, batch_rows=_READ)
    began = time.time()

    def process(batch: pa.RecordBatch) -> pa.RecordBatch:
        load.work(batch.num_rows, began)
        return batch

    environment.from_source(source).rebalance().map_batches(process, schema=SCHEMA).sink_to(hg.sinks.null())
    times = ProcessorTimes()
    job = environment.execute_async("spark-streaming")
    seen: dict[int, ControlledBatch] = {}
    starts = time.monotonic()
    deadline = starts + load.longest
    try:
        while len(seen) < load.batches and time.monotonic() < deadline and job.status() in ("CREATED", "RUNNING"):
            time.sleep(load.interval)
            seen |= {batch["number"]: _controlled(batch) for batch in job.metrics().get("throttle_batches", ())}
        check_readers(config.flow_control, job.metrics())
        cost = counted(job, times, time.monotonic() - starts)
    finally:
        job.cancel()
    return _enough(OURS, list(seen.values()), load), cost


def _enough(name: str, batches: list[ControlledBatch], load: ControlledLoad) -> list[ControlledBatch]:
    if len(batches) < load.batches:
        raise HeadgateError(f"{name} completed {len(batches)} of {load.batches} batches within {load.longest:g} s")
    return batches[: load.batches]


def _numbers(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.arange(start, start + n))], schema=SCHEMA)


def _controlled(batch: dict[str, Any]) -> ControlledBatch:
    return ControlledBatch(rows=batch["rows"], scheduling=batch["scheduling_s"], processing=batch["processing_s"])


def settled(batches: Sequence[ControlledBatch], load: ControlledLoad, half: int) -> list[ControlledBatch]:
    """Return the later batches of the first half (0) or of the second half (1) of a run."""
    begin, end = half * load.half, (half + 1) * load.half
    return list(batches[begin + round((end - begin) * _SETTLED) : end])


def report(
    runs: dict[str, list[list[ControlledBatch]]], load: ControlledLoad, costs: Sequence[MechanismRun] = ()
) -> Experiment:
    """Return the rates and times of both, and whether they are the same within 25 %; and our `costs`."""
    measured: dict[str, dict[str, tuple[float, ...]]] = {name: _measures(rounds, load) for name, rounds in runs.items()}
    figures: list[Figure] = []
    misses: list[str] = []
    for quantity in measured[OURS]:
        unit = "rows/s" if "rows/s" in quantity else "s"
        original, our = ((name, measured[name][quantity]) for name in (ORIGINAL, OURS))
        made, is_same = compared(quantity, unit, original, our, "ratio")
        figures += made
        misses += [] if is_same else [quantity]
    figures += figures_of({OURS: overhead(costs)}, ())
    return Experiment(
        case="spark-streaming",
        target="SparkPid settles at the rows/s and batch times of Spark Streaming, within 25 %"
        + "".join(f"; missed: {miss}" for miss in misses),
        met=not misses,
        figures=tuple(figures),
        settings={
            "rows/s offered": load.rate,
            "seconds per row": f"{load.cost}, then {load.cost / 2}",
            "batch interval, s": load.interval,
            "batches": load.batches,
            "initial rate, rows/s": load.initial_rate,
        },
        plots=tuple(_plots(runs, load)),
    )


def _measures(rounds: Sequence[Sequence[ControlledBatch]], load: ControlledLoad) -> dict[str, tuple[float, ...]]:
    measures: dict[str, tuple[float, ...]] = {}
    for half, when in enumerate(("at first", "after the cost has halved")):
        later = [settled(batches, load, half) for batches in rounds]
        measures[f"rows/s {when}"] = tuple(
            sum(batch.rows for batch in batches) / len(batches) / load.interval for batches in later
        )
        measures[f"processing time of a batch {when}"] = tuple(
            median(batch.processing for batch in batches) for batches in later
        )
    return measures


def _curve(
    name: str, batches: list[ControlledBatch], value: Callable[[ControlledBatch], float], load: ControlledLoad
) -> Series:
    ends = tuple((number + 1) * load.interval for number in range(len(batches)))
    return Series(name, ends, tuple(float(value(batch)) for batch in batches))


def _interval(runs: dict[str, list[list[ControlledBatch]]], load: ControlledLoad) -> Series:
    """Return the line that a batch's times must stay below, or batches queue."""
    end = max(len(rounds[-1]) for rounds in runs.values()) * load.interval
    return Series("batch interval", (0.0, end), (load.interval, load.interval))


def _plots(runs: dict[str, list[list[ControlledBatch]]], load: ControlledLoad) -> list[Plot]:
    mark = ((load.half * load.interval, "the cost halves"),)
    quantities: dict[str, Callable[[ControlledBatch], float]] = {
        "input rate, rows/s": lambda batch: batch.rows / load.interval,
        "scheduling delay, s": lambda batch: batch.scheduling,
        "processing time, s": lambda batch: batch.processing,
    }
    return [
        Plot(
            title=f"{label.partition(',')[0]}, last round; batches of {load.interval:g} s",
            x="time, s",
            y=label,
            series=tuple(_curve(name, rounds[-1], value, load) for name, rounds in runs.items())
            + (() if label.startswith("input rate") else (_interval(runs, load),)),
            marks=mark,
        )
        for label, value in quantities.items()
    ]
