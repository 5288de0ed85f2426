"""The two ends of an exchange. `exchange` runs this module with `python -m` in one process for each end.

A task emits one prebuilt batch again and again. A task in the other process counts the decoded batches.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.bench.exchange_end import End, WriterHead, serve_end
from headgate.exchange.selectors import Rebalance
from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import Operator, OperatorContext
from headgate.operators.rows import MapRows
from headgate.runtime.task.chain import ToOperator, fan_out
from headgate.runtime.task.heads import END, MORE

SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64()), ("time", pa.timestamp("us", tz="UTC"))])
BATCH_ROWS = 8192
ROW_BYTES = 24


def prebuilt_batch() -> pa.RecordBatch:
    """Return the batch that is sent: three columns of eight bytes each."""
    numbers = np.arange(BATCH_ROWS)
    columns = [pa.array(numbers), pa.array(numbers * 0.5), pa.array(numbers * 1000).cast(SCHEMA.field("time").type)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class _PrebuiltHead(WriterHead):
    """A head that emits the same batch `batches` times."""

    def __init__(self, batches: int, writer: RecordWriter) -> None:
        super().__init__(writer)
        self._remaining = batches
        self._batch = prebuilt_batch()

    def step(self, now: float) -> float:
        if not self._remaining:
            return END
        self._remaining -= 1
        self.writer.emit(self._batch)
        return MORE


def send(end: End, request: dict[str, Any]) -> None:
    """Send the requested number of batches, to the channels in turn."""
    channels = request["channels"]
    end.send(SCHEMA, [Rebalance(channels, 0)], channels, partial(_PrebuiltHead, request["batches"]))


class _RowCounter(Operator):
    """An operator that counts the rows of decoded batches. Its clock starts at the first batch, whose rows do
    not count."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.began = 0.0
        self.seconds = 0.0

    def process(self, batch: pa.RecordBatch) -> None:
        if self.began:
            self.rows += batch.num_rows
        else:
            self.began = time.perf_counter()

    def end_input(self) -> None:
        self.seconds = time.perf_counter() - self.began


def _same_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row itself: the cheapest function of rows."""
    return row


def _chain(count: _RowCounter, row_function: bool) -> list[ToOperator]:
    """Return the consumer's operators, the last one first: the counter, and with `row_function` a map before it."""
    count.output = fan_out([])
    chain = [ToOperator(count, OperatorContext("bench", "count", 0, 1))]
    if row_function:
        rows = MapRows(_same_row, SCHEMA)
        rows.output = fan_out(list(chain))
        chain.append(ToOperator(rows, OperatorContext("bench", "map", 0, 1)))
    return chain


def receive(end: End, request: dict[str, Any]) -> dict[str, Any]:
    """Receive until the input ends. Return the payload bytes, the seconds that they took, and the number of buffers."""
    count = _RowCounter()
    gate = [(0, 0, index) for index in range(request["channels"])]
    buffers = end.receive(SCHEMA, [gate], _chain(count, request["row_function"]))
    return {"bytes": count.rows * ROW_BYTES, "seconds": count.seconds, "buffers": buffers}


if __name__ == "__main__":
    serve_end(send, receive)
