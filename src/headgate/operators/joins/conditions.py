"""The conditions of joins: when two rows with equal keys are partners, and how long a row waits for partners.

A condition gives each row a span of time; rows whose spans overlap are partners. All times are in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.operators.event_times import event_times
from headgate.operators.joins.coded_rows import Spans
from headgate.quantities import duration_text
from headgate.records.canonical import Int64s, null_mask

#: A span has about this many buckets of codes; see `Codes`. A bucket has at least about 1 ms.
_BUCKETS = 32
_LEAST_SHIFT = 10
#: The end of a span is at most this far from 1970, so that differences of times fit into 64 bits.
_FAR = 1 << 62


class Condition(Protocol):
    """The condition of a join."""

    @property
    def by_clock(self) -> bool:
        """Whether the time of a row is the time of the clock when the row arrives. Otherwise it is the event time."""

    @property
    def shift(self) -> int:
        """The size of a bucket of codes: 2 ** `shift` microseconds."""

    def spans(self, side: int, times: Int64s, rows: pa.RecordBatch) -> Spans:
        """Return the begins and ends of the spans of rows. `side` is 0 for left rows and 1 for right rows."""

    def stays(self, side: int) -> int:
        """Return how long a row of this side can find partners that arrive in time, from the end of its span on."""


@dataclass(frozen=True, slots=True)
class Within:
    """Right rows are partners if their time is from the left row's time + `lower` to the left row's time + `upper`.

    If `upper_column` is set, this column of the left row has the latest time of partners, and `upper` is not used.
    """

    lower: int
    upper: int = 0
    upper_column: str | None = None
    by_clock = False

    def __str__(self) -> str:
        upper = duration_text(self.upper) if self.upper_column is None else self.upper_column
        return f"within ({duration_text(self.lower)}, {upper})"

    @property
    def shift(self) -> int:
        width = self.upper - self.lower if self.upper_column is None else 0
        return _shift(width)

    def spans(self, side: int, times: Int64s, rows: pa.RecordBatch) -> Spans:
        if side:
            return times, times
        begins = times + self.lower
        if self.upper_column is None:
            return begins, times + self.upper
        column = rows.column(rows.schema.get_field_index(self.upper_column))
        ends = np.clip(event_times(column, self.upper_column, 0), -_FAR, _FAR)
        nulls = null_mask(column)
        return begins, ends if nulls is None else np.where(nulls, begins - 1, ends)  # such a row has no partners

    def stays(self, side: int) -> int:
        return -self.lower if side else 0


@dataclass(frozen=True, slots=True)
class SameWindow:
    """Rows are partners if they are in the same tumbling window of `size`. The span of a row is the window's start."""

    size: int
    by_clock = False

    def __str__(self) -> str:
        return f"window tumble({duration_text(self.size)})"

    @property
    def shift(self) -> int:
        return max(self.size.bit_length() - 1, 0)

    def spans(self, side: int, times: Int64s, rows: pa.RecordBatch) -> Spans:
        starts = times // self.size * self.size
        return starts, starts

    def stays(self, side: int) -> int:
        return self.size - 1


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows are partners if they arrive within `ttl` of each other, by the clock."""

    ttl: int
    by_clock = True

    def __str__(self) -> str:
        return f"ttl {duration_text(self.ttl)}"

    @property
    def shift(self) -> int:
        return _shift(2 * self.ttl)

    def spans(self, side: int, times: Int64s, rows: pa.RecordBatch) -> Spans:
        return (times, times) if side else (times - self.ttl, times + self.ttl)

    def stays(self, side: int) -> int:
        return self.ttl if side else 0


def _shift(width: int) -> int:
    return max((width // _BUCKETS).bit_length() - 1, _LEAST_SHIFT)
