"""The load of `spark-streaming`: more rows than the job can process, and a cost per row that changes once."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledLoad:
    """`rate` rows/s are offered. The job needs `cost` seconds for a row, and half of that in the second half of its
    batches.

    A batch comes each `interval` seconds. The controller begins with `initial_rate` rows/s.
    """

    rate: int
    cost: float
    interval: float
    batches: int
    initial_rate: int

    @property
    def half(self) -> int:
        """The number of batches before the cost changes."""
        return self.batches // 2

    @property
    def longest(self) -> float:
        """The most seconds that a run may take."""
        return 20 + 10 * self.batches * self.interval

    def work(self, rows: int, began: float) -> None:
        """Sleep for the time that `rows` rows need. `began` is when the job began, in seconds since the epoch."""
        is_cheap = time.time() - began >= self.half * self.interval
        time.sleep(rows * self.cost / (2 if is_cheap else 1))

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledBatch:
    """A batch: its rows, how long it waited for the batches before it, and how long it ran, in seconds."""

    rows: int
    scheduling: float
    processing: float
