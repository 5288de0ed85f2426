"""Drives an aggregation step by step: an output that stores what it receives, subtasks, rows as comparable tuples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.operators.operator import Operator, OperatorContext
from headgate.records.hashing import key_group_range, key_groups, key_hash, subtask_of_key_group
from headgate.state.snapshot import Snapshot, decode, encode

GROUPS = 8


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


class Side:
    """The subtasks of an operator at one parallelism; each gets the rows of its key groups."""

    def __init__(self, make: Callable[[], Operator], parallelism: int) -> None:
        self.operators = [make() for _ in range(parallelism)]
        self.kept: list[Kept] = []
        for subtask, operator in enumerate(self.operators):
            self.kept.append(attach(operator))
            operator.open(OperatorContext("job", "operator", subtask, parallelism, GROUPS))

    def process(self, batch: pa.RecordBatch, keys: int) -> None:
        groups = np.broadcast_to(key_groups(key_hash(batch.columns[:keys]), GROUPS), batch.num_rows)
        owners = subtask_of_key_group(groups, len(self.operators), GROUPS)
        for subtask, operator in enumerate(self.operators):
            mine = batch.filter(pa.array(owners == subtask))
            if mine.num_rows:
                operator.process(mine)

    def watermarks(self, times: Sequence[int]) -> None:
        for operator, time in zip(self.operators, times, strict=True):
            operator.process_watermark(time)

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots as they are read from storage."""
        found = [operator.snapshot() for operator in self.operators]
        return [decode(encode({"node": snapshot}))["node"] for snapshot in found if snapshot is not None]

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        parallelism = len(self.operators)
        for subtask, operator in enumerate(self.operators):
            groups = key_group_range(subtask, parallelism, GROUPS)
            operator.restore([snapshot.of_key_groups(groups) for snapshot in snapshots])

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        return sum((multiset(kept.rows) for kept in self.kept), Counter())

    @property
    def late(self) -> int:
        return sum(operator.late_rows for operator in self.operators)
