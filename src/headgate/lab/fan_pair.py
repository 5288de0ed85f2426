"""The two ends of an exchange with many channels. `buffer_timeout` runs this module with `python -m` in two processes.

Writers in one process shuffle rows over several gates. A union in the other process reads all gates.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.bench.exchange_end import End, WriterHead, serve_end
from headgate.exchange.selectors import Shuffle
from headgate.exchange.writer import RecordWriter
from headgate.lab.latencies import BUCKETS, Counts, buckets
from headgate.operators.operator import Operator, OperatorContext
from headgate.runtime.task.chain import ToOperator, fan_out
from headgate.runtime.task.heads import END, MORE

#: `due` is when the row should leave, in microseconds since the epoch. At full speed it is when the row was made.
SCHEMA = pa.schema([("due", pa.int64()), ("number", pa.int64()), ("value", pa.float64())])
BATCH_ROWS = 8192
_US = 1_000_000


class _PacedHead(WriterHead):
    """A head that emits rows at `rate` per second (None means full speed) from `start` to `end`.

    At `end` it drops overdue rows, so that a load that is too high for the exchange ends too.
    """

    def __init__(self, rate: float | None, start: float, end: float, writer: RecordWriter) -> None:
        super().__init__(writer)
        self._rate, self._start, self._end = rate, start, end
        self._row = 0
        self._values = pa.array(np.arange(BATCH_ROWS) * 0.5)

    def step(self, now: float) -> float:
        now = time.time()
        if now >= self._end:
            return END
        if now < self._start:
            return self._start - now
        if self._rate is None:
            self._emit(np.full(BATCH_ROWS, round(now * _US)))
            return MORE
        n = min(BATCH_ROWS, int((now - self._start) * self._rate) - self._row)
        step = min(BATCH_ROWS, max(1, int(self._rate / 1000)))  # the rows of a millisecond, but at least one
        if n < step:
            return max(1e-6, self._start + (self._row + step) / self._rate - now)
        due = round(self._start * _US) + (np.arange(self._row, self._row + n) * (_US / self._rate)).astype(np.int64)
        self._emit(due)
        return MORE

    def _emit(self, due: Counts) -> None:
        n = len(due)
        numbers = np.arange(self._row, self._row + n)
        self._row += n
        columns = [pa.array(due), pa.array(numbers), self._values.slice(0, n)]
        self.writer.emit(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def send(end: End, request: dict[str, Any]) -> None:
    """Send rows for the requested seconds: at `rate` rows/s for all writers together, or at full speed."""
    writers, gates, rate = request["writers"], request["gates"], request["rate"]
    share = None if rate is None else rate / writers
    selectors = [Shuffle(gates, seed=number) for number in range(writers)]
    start = time.time() + 0.2
    end.send(SCHEMA, selectors, gates, partial(_PacedHead, share, start, start + request["seconds"]))


class _Latencies(Operator):
    """An operator that counts rows and their latencies. Rows due in the first `warm_up` seconds do not count."""

    def __init__(self, warm_up: float) -> None:
        super().__init__()
        self._warm_up = warm_up
        self._from: int | None = None
        self.rows = 0
        self.batches = 0
        self.last = 0.0
        self.counts: Counts = np.zeros(BUCKETS, dtype=np.int64)

    @property
    def began(self) -> float:
        return 0.0 if self._from is None else self._from / _US

    def process(self, batch: pa.RecordBatch) -> None:
        now = time.time()
        due = batch.column("due").to_numpy()
        if self._from is None:
            self._from = int(due.min()) + round(self._warm_up * _US)
        counted = due[due >= self._from]
        self.batches += 1
        if len(counted):
            self.rows += len(counted)
            self.last = now
            self.counts += np.bincount(buckets(now * _US - counted), minlength=BUCKETS)


def receive(end: End, request: dict[str, Any]) -> dict[str, Any]:
    """Receive over writers x gates channels until all channels end. Return what `_Latencies` counted."""
    counter = _Latencies(request["warm_up"])
    counter.output = fan_out([])
    gates = [[(0, writer, gate) for writer in range(request["writers"])] for gate in range(request["gates"])]
    buffers_in = end.receive(SCHEMA, gates, [ToOperator(counter, OperatorContext("lab", "count", 0, 1))])
    cells = np.flatnonzero(counter.counts)
    return {
        "rows": counter.rows,
        "seconds": counter.last - counter.began,
        "batches": counter.batches,
        "cells": cells.tolist(),
        "late": counter.counts[cells].tolist(),
        "buffers": buffers_in,
    }


if __name__ == "__main__":
    serve_end(send, receive)
