#!/usr/bin/env python3
"""Measure the steps of a small batch from the source to the sink, one after the other, on one thread.

  scripts/compiled scripts/batch_steps.py [ROWS ...]

It prints the median microseconds of processor time of each step: in a loop without a pause, and with 1 ms of sleep
before the source's and before the window's steps. After a sleep the processor's caches have lost much of the code, as
in a paced job. Then a paced job runs on two processes: its processor time and its voluntary context switches per block.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow as pa

import headgate as hg
from headgate.bench.keyed_rows import SCHEMA, keyed_rows
from headgate.bench.small_batches import PACE, paced_cost, seconds_of
from headgate.connectors.connector import ReaderContext
from headgate.connectors.null_sink import NullSink
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import KeyGroups
from headgate.memory.network_pool import NetworkBufferPool
from headgate.operators.operator import OperatorContext
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_kinds import Windows
from headgate.records.arrow import BatchCodec
from headgate.records.spanning import SpanningDeserializer, serialize
from headgate.runtime.task.exchange_parts import ExchangeParts

SECOND = 1_000_000
WARM_UP, ROUNDS = 50, 500
CHANNELS, SEGMENTS, SEGMENT = 2, 64, 1 << 15
PACED_SECONDS = 5


class Sink:
    """The output of the window operator."""

    def __init__(self, timed: Callable[..., Any]) -> None:
        self._timed = timed
        self._write = NullSink().writer(None).write  # type: ignore[arg-type]

    def emit(self, batch: pa.RecordBatch) -> None:
        self._timed("windows into the sink", self._write, batch)

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


class Steps:
    """The parts that a batch passes, and the processor time of each."""

    def __init__(self, rows: int) -> None:
        self.took: dict[str, list[float]] = defaultdict(list)
        made = keyed_rows(0, 1 << 16)
        source = hg.sources.generate(
            lambda start, n: made.slice(start % 60_000, n), rows=1 << 40, schema=SCHEMA, time="ts", batch_rows=rows
        )
        context = ReaderContext(
            job="steps", operator="source", subtask=0, parallelism=1, wake=lambda: None, started_at=0.0,
            clock=time.time,
        )  # fmt: skip
        self.reader = source.reader(context)
        self.codec, self.channels = BatchCodec(source.schema), KeyGroups(["key"], CHANNELS, 128)
        self.watermarks = WatermarkGenerator("ts", source.schema)
        parts = ExchangeParts(hg.Config(buffer_timeout="0 ms"), NetworkBufferPool(SEGMENTS, SEGMENT, threading.Lock))
        self.partition = parts.partition("steps", CHANNELS, lambda: None)
        for subpartition in self.partition.subpartitions:
            subpartition.attach(lambda: None)
        self.writer = parts.writer(self.partition, self.channels, self.codec, PendingBudget(), lambda writer: None)
        self.decoders = [SpanningDeserializer(self.codec) for _ in range(CHANNELS)]
        self.window = WindowAggregate(
            ("key",), windows=Windows(SECOND, SECOND), input_schema=source.schema, time_column="ts", time_offset=0,
            aggregates=(("total", hg.sum("value")), ("rows", hg.count())),
        )  # fmt: skip
        self.window.output = Sink(self.timed)
        self.window.open(OperatorContext("steps", "window", 0, 1))

    def timed(self, step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time_ns()
        result = call(*arguments)
        self.took[step].append((time.thread_time_ns() - began) / 1e3)
        return result

    def run(self, pause: float) -> None:
        """Let one batch pass all steps."""
        timed = self.timed
        time.sleep(pause)
        batch = timed("read a batch", self.reader.read)
        watermark = timed("watermark of the batch", self.watermarks.observe, batch, 0)
        for _, share in timed("channel of each row", self.channels.select, batch):
            timed("serialise a message", serialize, share, self.codec)
        timed("write: channels, messages, flush", self.write, batch)
        time.sleep(pause)
        for subpartition, decoder in zip(self.partition.subpartitions, self.decoders, strict=True):
            for polled in timed("poll a channel", subpartition.poll, SEGMENTS):
                elements = timed("deserialise a message", self.decoded, decoder, polled.buffer)
                for element in elements:
                    timed("rows into the window", self.window.process, element)
        timed("watermark at the window", self.window.process_watermark, watermark)

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.emit(batch)
        self.writer.flush()

    def decoded(self, decoder: SpanningDeserializer, buffer: Any) -> list[Any]:
        elements = decoder.feed(buffer.views)
        buffer.recycle()
        return elements


def steps(rows: int, pause: float) -> dict[str, float]:
    """Return the microseconds of each step for batches of so many rows."""
    parts = Steps(rows)
    for number in range(WARM_UP + ROUNDS):
        if number == WARM_UP:
            parts.took.clear()
        parts.run(pause)
    return {step: median(values) for step, values in parts.took.items()}


def switches() -> dict[tuple[int, int], int]:
    """Return the voluntary context switches so far of each thread of this process and of its descendants."""
    here, found = psutil.Process(), {}
    for process in (here, *here.children(recursive=True)):
        for task in Path(f"/proc/{process.pid}/task").glob("*/status"):
            with suppress(OSError, StopIteration):  # the thread has ended
                lines = task.read_text().splitlines()
                count = next(line for line in lines if line.startswith("voluntary_ctxt_switches"))
                found[process.pid, int(task.parent.name)] = int(count.split()[1])
    return found


def switches_of(job: Callable[[], object]) -> int:
    """Return the voluntary context switches of a job, without those of its last 0.2 s."""
    before, ended = switches(), threading.Event()
    last = dict(before)

    def sample() -> None:
        while not ended.wait(0.2):
            last.update(switches())

    thread = threading.Thread(target=sample)
    thread.start()
    job()
    ended.set()
    thread.join()
    return sum(last.values()) - sum(before.values())


def paced(rows: int) -> tuple[float, float]:
    """Return the microseconds of processor time and the voluntary context switches of a block of a paced job."""
    short, long = (switches_of(partial(seconds_of, PACE * seconds, rows, PACE)) for seconds in (1, PACED_SECONDS + 1))
    return paced_cost(rows, PACED_SECONDS), (long - short) / (PACE * PACED_SECONDS)


def main() -> None:
    for rows in map(int, sys.argv[1:] or ("1", "64", "1024")):
        in_a_loop, after_sleep = steps(rows, 0), steps(rows, 1e-3)
        print(f"{rows} rows{'in a loop':>32}{'after 1 ms':>13}   (us)")
        for step, value in in_a_loop.items():
            print(f"  {step:32}{value:7.1f}{after_sleep[step]:13.1f}")
        cost, waits = paced(rows)
        print(f"  a paced job: {cost:.0f} us and {waits:.1f} voluntary context switches for each block")


if __name__ == "__main__":
    main()
