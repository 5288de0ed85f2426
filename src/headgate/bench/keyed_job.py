"""The job of `keyed-sum` and `latency`: one-second sums and counts of 1,000 keys, over two processes.

Both cases use the same configuration, so that throughput and latency hold for one configuration.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import headgate as hg
from headgate.bench.due_times import DueTimes
from headgate.bench.keyed_rows import keyed_rows
from headgate.errors import HeadgateError

PARALLELISM = 2
#: Flush after each batch. At full rate a batch nearly fills a message. In a paced job, waiting for more gains nothing.
BUFFER_TIMEOUT = "0 ms"
#: The time that a batch of a paced source spans. A small batch costs as much as a large batch, so few batches are
#: better.
BATCH_TIME = "1 ms"
#: Bytes of a row on the wire: key, value and time.
ROW_BYTES = 24

SETTINGS = {"parallelism": PARALLELISM, "processes": PARALLELISM, "buffer_timeout": BUFFER_TIMEOUT,
            "batch_time": BATCH_TIME, "keys": 1000}  # fmt: skip


def keyed_sum_seconds(rows: int, **options: Any) -> float:
    """Return the seconds that the job takes for `rows` rows at full speed, start-up included.

    `options` are options of `hg.Config`. Raises the job's error, and HeadgateError if less than half of the rows
    crossed a socket.
    """
    environment = keyed_environment(**options)
    _sums(environment, rows, None)
    began = time.perf_counter()
    result = environment.execute("keyed-sum")
    seconds = time.perf_counter() - began
    crossed = result.metrics["remote_bytes"]
    if result.rows_in != rows or crossed < ROW_BYTES * rows / 2:
        raise HeadgateError(f"keyed-sum read {result.rows_in:,} rows of {rows:,}; {crossed:,} bytes crossed sockets")
    return seconds


def source_seconds(rows: int) -> float:
    """Return the seconds that the source alone takes for `rows` rows, with a null sink after it."""
    environment = keyed_environment()
    _rows(environment, rows, None).sink_to(hg.sinks.null())
    began = time.perf_counter()
    environment.execute("source-only")
    return time.perf_counter() - began


def run_paced(rows: int, rate: float, folder: Path, buffer_timeout: str = BUFFER_TIMEOUT) -> None:
    """Run the job at `rate` rows/s. Write to `folder` how late rows reach the keyed operator; see `DueTimes`."""
    environment = keyed_environment(buffer_timeout)
    window = _sums(environment, rows, rate)
    graph = environment._jobs.graph
    operator = graph[window].operator
    assert operator is not None
    graph.change(window, operator=partial(DueTimes, operator, "ts", str(folder)))
    environment.execute("latency")


def keyed_environment(buffer_timeout: str = BUFFER_TIMEOUT, **options: Any) -> hg.StreamEnvironment:
    """Return an environment of two TaskManager processes, with the configuration of these cases and `options`."""
    return hg.StreamEnvironment(
        parallelism=PARALLELISM,
        config=hg.Config(buffer_timeout=buffer_timeout, **options),
        deployment=hg.LocalDeployment(taskmanagers=PARALLELISM, processes=True),
    )


def _rows(environment: hg.StreamEnvironment, rows: int, rate: float | None) -> hg.DataStream:
    source = hg.sources.generate(keyed_rows, rows=rows, rate=rate, time="ts", batch_time=BATCH_TIME)
    return environment.from_source(source, watermark=hg.Watermark("ts"))


def _sums(environment: hg.StreamEnvironment, rows: int, rate: float | None) -> int:
    """Add the whole job to the environment, and return the id of the window operator's node."""
    keyed = _rows(environment, rows, rate).key_by("key")
    sums = keyed.window(hg.tumble("1 s")).aggregate(total=hg.sum("value"), rows=hg.count())
    sums.sink_to(hg.sinks.null())
    return sums._rows.last("window")
