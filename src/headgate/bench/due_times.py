"""Measure how late rows reach an operator: from the time in their due column to the arrival of their batch."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from hdrh.histogram import HdrHistogram

from headgate.bench.idle_timer import LONGEST, new_histogram
from headgate.operators.operator import Operator, OperatorContext, OperatorFactory
from headgate.records.canonical import raw_values

#: Latencies are counted in steps of 8 us up to four seconds. Longer latencies count as four seconds. With steps of 1 us
#: the counting took as long as the measured operator.
_STEP_BITS = 3
_STEPS = 4_000_000 >> _STEP_BITS
#: Each 16th row is counted, so that the counting takes little of the processor time that the job has.
_EACH = 16


class DueTimes(Operator):
    """An operator around the measured operator. It counts the latencies of each 16th row, and passes on everything.

    `column` is the column with the due time. At the end of the input each subtask writes its counts to `folder`.
    """

    def __init__(self, factory: OperatorFactory, column: str, folder: str) -> None:
        super().__init__()
        self._inner = factory()
        self._column = column
        self._folder = Path(folder)
        self._counts = np.zeros(_STEPS + 1, dtype=np.int64)
        self._rows = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._inner.output = self.output
        self._inner.open(context)

    def process(self, batch: pa.RecordBatch) -> None:
        due = raw_values(batch.column(self._column)).view(np.int64)[-self._rows % _EACH :: _EACH]
        late = (round(time.time() * 1e6) - due) >> _STEP_BITS
        counts = np.bincount(late.clip(0, _STEPS))
        self._counts[: len(counts)] += counts
        self._rows += batch.num_rows
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
    """Return the counted latencies of all subtasks in microseconds, each rounded up to the end of its step."""
    histogram = new_histogram()
    counts = sum(np.load(path) for path in sorted(folder.glob("*.npy")))
    for step in np.flatnonzero(counts):
        histogram.record_value(min((int(step) + 1) << _STEP_BITS, LONGEST), int(counts[step]))
    return histogram
