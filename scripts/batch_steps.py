#!/usr/bin/env python3
"""Measure the steps of a small batch from the source to a window, one after the other, on one thread.

  scripts/compiled scripts/batch_steps.py [ROWS ...]

It prints the median microseconds of each step: in a loop without a pause, and with 1 ms of sleep before the source's
and before the window's steps. After a sleep the processor's caches have lost much of the code, as in a paced job.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.bench.keyed_rows import SCHEMA, keyed_rows
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.exchange.selectors import KeyGroups
from headgate.operators.operator import OperatorContext
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_kinds import Windows
from headgate.records.arrow import BatchCodec
from headgate.records.canonical import from_raw_values
from headgate.records.spanning import SpanningDeserializer, serialize

SECOND = 1_000_000
WARM_UP, ROUNDS = 50, 500
TIME = pa.field("ts", pa.timestamp("us", "UTC"))


class Nothing:
    """The output of the window operator."""

    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


def steps(rows: int, pause: float) -> dict[str, float]:
    """Return the microseconds of each step for batches of so many rows."""
    schema = SCHEMA.append(TIME)
    made, codec, channels = keyed_rows(0, 1 << 16), BatchCodec(schema), KeyGroups(["key"], 2, 128)
    watermarks, reader = WatermarkGenerator("ts", schema), SpanningDeserializer(codec)
    window = WindowAggregate(
        ("key",), windows=Windows(SECOND, SECOND), input_schema=schema, time_column="ts", time_offset=0,
        aggregates=(("total", hg.sum("value")), ("rows", hg.count())),
    )  # fmt: skip
    window.output = Nothing()
    window.open(OperatorContext("steps", "window", 0, 1))
    took: dict[str, list[float]] = defaultdict(list)

    def timed(step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter_ns()
        result = call(*arguments)
        took[step].append((time.perf_counter_ns() - began) / 1e3)
        return result

    for number in range(WARM_UP + ROUNDS):
        if number == WARM_UP:
            took.clear()
        time.sleep(pause)
        times = (number * 1000 + np.arange(rows)).astype(np.int64)
        batch = made.slice(number, rows).append_column(TIME, from_raw_values(times, None, TIME.type))
        watermark = timed("watermark of the batch", watermarks.observe, batch, 0)
        shares = timed("channel of each row", channels.select, batch)
        messages = [timed("serialise a message", serialize, share, codec) for _, share in shares]
        time.sleep(pause)
        for message in messages:
            for element in timed("deserialise a message", reader.feed, message):
                timed("rows into the window", window.process, element)
        timed("watermark at the window", window.process_watermark, watermark)
    return {step: median(values) for step, values in took.items()}


def main() -> None:
    for rows in map(int, sys.argv[1:] or ("1", "64", "1024")):
        in_a_loop, paced = steps(rows, 0), steps(rows, 1e-3)
        print(f"{rows} rows{'in a loop':>24}{'after 1 ms':>13}   (us)")
        for step, value in in_a_loop.items():
            print(f"  {step:24}{value:7.1f}{paced[step]:13.1f}")


if __name__ == "__main__":
    main()
