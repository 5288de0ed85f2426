"""Measures how late rows reach an operator: from the time in their due column to the batch's arrival, all rows."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from hdrh.histogram import HdrHistogram

from headgate.bench.idle_timer import LONGEST, new_histogram
from headgate.operators.base import Operator, OperatorContext, OperatorFactory

#: Latencies are counted by the microsecond up to here, and all beyond it as this much.
_COUNTED = 4_000_000


class DueTimes(Operator):
    """Passes everything to the operator it stands for; at the end writes the counts to `folder`, a file per subtask."""

    def __init__(self, factory: OperatorFactory, column: str, folder: str) -> None:
        super().__init__()
        self._inner = factory()
        self._column = column
        self._folder = Path(folder)
        self._counts = np.zeros(_COUNTED + 1, dtype=np.int64)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._inner.output = self.output
        self._inner.open(context)

    def process(self, batch: pa.RecordBatch) -> None:
        now = round(time.time() * 1e6)
        late = np.clip(now - batch.column(self._column).cast(pa.int64()).to_numpy(), 0, _COUNTED)
        least = int(late.min())
        counts = np.bincount(late - least)
        self._counts[least : least + len(counts)] += counts
        self._inner.process(batch)

    def process_watermark(self, time: int) -> None:
        self._inner.process_watermark(time)

    def process_status(self, active: bool) -> None:
        self._inner.process_status(active)

    def end_input(self) -> None:
        self._inner.end_input()
        np.save(self._folder / f"{self.context.subtask}.npy", self._counts)

    def close(self) -> None:
        self._inner.close()

    def state_keys(self) -> int:
        return self._inner.state_keys()

    def state_bytes(self) -> int:
        return self._inner.state_bytes()


def read_histogram(folder: Path) -> HdrHistogram:
    """What all subtasks wrote, in microseconds."""
    histogram = new_histogram()
    counts = sum(np.load(path) for path in sorted(folder.glob("*.npy")))
    for latency in np.flatnonzero(counts):
        histogram.record_value(min(int(latency), LONGEST), int(counts[latency]))
    return histogram
