"""Drives an aggregation step by step: an output that stores what it receives, and rows as comparable tuples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headgate.operators.operator import Operator


class Kept:
    """An output that stores batches and watermarks in their order."""

    def __init__(self) -> None:
        self.events: list[pa.RecordBatch | int] = []

    def emit(self, batch: pa.RecordBatch) -> None:
        batch.validate(full=True)
        self.events.append(batch)

    def emit_watermark(self, time: int) -> None:
        self.events.append(time)

    def emit_status(self, active: bool) -> None:
        raise AssertionError("no status was sent")

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return [event for event in self.events if not isinstance(event, int)]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in self.batches for row in rows_of(batch)]


def attach(operator: Operator) -> Kept:
    """Give the operator an output, and return the output."""
    operator.output = kept = Kept()
    return kept


def rows_of(table: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def canonical(value: Any) -> Any:
    """Return a comparable form: NaN equals NaN, 0.0 equals -0.0, lists have no order, floats have nine digits."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value + 0.0:.9g}")
    if isinstance(value, list):
        return tuple(sorted(map(canonical, value), key=repr))
    return value


def multiset(rows: Sequence[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(canonical, row)) for row in rows)
