"""`small-batches`: the processor time that a batch costs, however few rows it has.

A source makes blocks of rows, which go through `key_by` into one-second sums on two processes. Paced, it makes 1,000
blocks/s, with adaptive flush: the blocks of up to 20 ms leave together (see `headgate.connectors.read_bursts`). At full
speed the buffer timeout is 0. Each figure is the difference of a long and a short job, so start-up does not count. The
rows are slices of a batch that was made before: they cost almost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.host import processor_seconds
from headgate.bench.keyed_job import PARALLELISM, keyed_environment
from headgate.bench.keyed_rows import SCHEMA, keyed_rows
from headgate.bench.peers.flink import Flink
from headgate.bench.report import CaseResult, Figure, Skipped, ratios

#: Blocks per second of a paced source, and the rows of a block.
PACE: Final = 1000
PACED_ROWS: Final = (1, 500)
#: The rows of a block at full speed.
FLUSHED_ROWS: Final = 1024
#: The rows that were made before. Each block is a slice of them.
_MADE: Final = 1 << 17
ROUNDS: Final = 5


def run(options: Options) -> CaseResult:
    """Measure the paced jobs in turn with Flink at the same rows/s, and then the job at full speed."""
    rounds, seconds = (1, 2) if options.quick else (ROUNDS, 20)
    ours: dict[int, list[float]] = {rows: [] for rows in PACED_ROWS}
    flinks: dict[int, list[float]] = {rows: [] for rows in PACED_ROWS}
    rates: list[float] = []
    skipped: list[Skipped] = []
    seconds_of(PACE, 1, PACE)  # does not count: after it, the process that forks has imported everything
    try:
        with Flink(PARALLELISM, options.say) as flink:
            flink.seconds("one-phase", 1_000_000)  # the first run starts the JVM
            for number in range(rounds):
                options.say(f"small-batches: round {number + 1}")
                for rows in PACED_ROWS:
                    ours[rows].append(paced_cost(rows, seconds))
                    flinks[rows].append(_flink_cost(flink, rows, seconds))
    except ChildFailed as error:
        skipped.append(Skipped("Flink", str(error)))
        flinks.clear()
        ours = {rows: [paced_cost(rows, seconds)] for rows in PACED_ROWS}
    for _ in range(rounds):
        rates.append(flushed_rate(2_000 if options.quick else 50_000))
    return CaseResult(
        case="small-batches",
        target="a block of 1 row and of 500 rows cost at most as much processor time as in Flink SQL",
        met=not skipped and all(max(ours[rows]) <= min(flinks[rows]) for rows in PACED_ROWS),
        figures=(*_paced_figures(ours, flinks), Figure(f"blocks of {FLUSHED_ROWS:,}, flushed", "rows/s", tuple(rates))),
        settings={"parallelism": PARALLELISM, "processes": PARALLELISM, "blocks/s": PACE},
        skipped=tuple(skipped),
    )


def _paced_figures(ours: dict[int, list[float]], flinks: dict[int, list[float]]) -> list[Figure]:
    figures = []
    for rows, costs in ours.items():
        name = f"{PACE:,} blocks/s of {rows} rows"
        figures.append(Figure(name, "us per block", tuple(costs)))
        if flinks:
            figures.append(Figure(f"Flink SQL, {PACE * rows:,} rows/s", "us per block", tuple(flinks[rows])))
            figures.append(Figure(f"{name}: ours / Flink's", "", ratios(costs, flinks[rows])))
    return figures


def paced_cost(rows: int, seconds: int) -> float:
    """Return the processor time of a block of `rows` rows in microseconds, at 1,000 blocks/s for `seconds`."""
    return _cost(lambda blocks: seconds_of(blocks, rows, PACE), seconds)


def _flink_cost(flink: Flink, rows: int, seconds: int) -> float:
    return _cost(lambda blocks: flink.seconds("one-phase", blocks * rows, PACE * rows), seconds)


def _cost(job: Callable[[int], object], seconds: int) -> float:
    """Return the microseconds of processor time for a block. `job(blocks)` runs the job."""
    at = [processor_seconds()]
    few, many = PACE, PACE * (seconds + 1)
    for blocks in (few, many):
        job(blocks)
        at.append(processor_seconds())
    return ((at[2] - at[1]) - (at[1] - at[0])) * 1e6 / (many - few)


def flushed_rate(blocks: int) -> float:
    """Return the rows/s of the job at full speed, with a buffer timeout of 0."""
    few = blocks // 10
    short, long = seconds_of(few, FLUSHED_ROWS, None), seconds_of(few + blocks, FLUSHED_ROWS, None)
    return blocks * FLUSHED_ROWS / (long - short)


def seconds_of(blocks: int, rows: int, pace: int | None) -> float:
    """Return the seconds of the job for `blocks` blocks of `rows` rows, start-up included.

    `pace` is in blocks/s; None means full speed.
    """
    environment = keyed_environment("0 ms" if pace is None else "adaptive")
    rate = None if pace is None else float(pace * rows)
    source = hg.sources.generate(
        _slices, rows=blocks * rows, rate=rate, schema=SCHEMA, time="ts", batch_rows=rows, batch_time="1 h"
    )
    keyed = environment.from_source(source, watermark=hg.Watermark("ts")).key_by("key")
    sums = keyed.window(hg.tumble("1 s")).aggregate(total=hg.sum("value"), rows=hg.count())
    sums.sink_to(hg.sinks.null())
    began = time.perf_counter()
    environment.execute("small-batches")
    return time.perf_counter() - began


def _slices(start: int, n: int) -> pa.RecordBatch:
    """Return `n` rows of the rows that were made before."""
    return _made().slice(start % (_MADE - n), n)


@cache
def _made() -> pa.RecordBatch:
    return keyed_rows(0, _MADE)
