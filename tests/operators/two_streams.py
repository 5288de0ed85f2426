"""Drives an operator with two inputs over random batches, watermarks and restarts, as tasks would."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.exchange.selectors import KeyGroups
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext, OperatorFactory, TwoInputOperator
from headgate.plan.graph import EventTime, StreamGraph
from headgate.records.hashing import key_group_range
from headgate.state.snapshot import decode, encode

GROUPS = 32


class Collected:
    """An output that keeps batches, and checks that no row is earlier than the watermark before it."""

    def __init__(self, event_time: EventTime | None) -> None:
        self.event_time = event_time
        self.batches: list[pa.RecordBatch] = []
        self.watermark = MIN_TIME

    def emit(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows
        batch.validate(full=True)
        if self.event_time is not None:
            column, offset = batch.column(self.event_time.column), self.event_time.offset
            times = np.asarray(column.cast(pa.timestamp("us")).cast(pa.int64()))
            assert times.min() + offset >= self.watermark, "a row of the result is late"
        self.batches.append(batch)

    def emit_watermark(self, time: int) -> None:
        assert time >= self.watermark
        self.watermark = time

    def emit_status(self, active: bool) -> None: ...


@dataclass
class Subtasks:
    """The subtasks of one operator, which a graph of two sources and this operator describes."""

    graph: StreamGraph
    parallelism: int = 1

    def __post_init__(self) -> None:
        self.node = next(node for node in self.graph.nodes if node.operator is not None and len(node.inputs) == 2)
        assert self.node.operator is not None
        self.factory: OperatorFactory = self.node.operator
        self.collected: list[pa.RecordBatch] = []
        self.late_rows = 0
        self.open(self.parallelism)

    def open(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.operators: list[TwoInputOperator] = []
        for subtask in range(parallelism):
            operator = self.factory()
            assert isinstance(operator, TwoInputOperator)
            operator.output = Collected(self.node.event_time)
            operator.open(OperatorContext("test", "join", subtask, parallelism, GROUPS))
            self.operators.append(operator)

    def push(self, side: int, batch: pa.RecordBatch) -> None:
        keys = KeyGroups(self.node.inputs[side].partitioning.keys, self.parallelism, GROUPS)
        for subtask, rows in keys.select(batch):
            operator = self.operators[subtask]
            (operator.process_second if side else operator.process)(rows)
            assert operator.state_bytes() >= 0

    def advance(self, time: int) -> None:
        for operator in self.operators:
            operator.process_watermark(time)

    def restart(self, parallelism: int) -> None:
        """Take a snapshot, store it as a checkpoint does, and resume with another parallelism."""
        stored = []
        for operator in self.operators:
            snapshot = operator.snapshot()
            assert snapshot is not None
            stored.append(decode(encode({"join": snapshot}))["join"])
        self.take()
        self.open(parallelism)
        for subtask, operator in enumerate(self.operators):
            groups = key_group_range(subtask, parallelism, GROUPS)
            operator.restore([snapshot.of_key_groups(groups) for snapshot in stored])

    def take(self) -> None:
        for operator in self.operators:
            assert isinstance(operator.output, Collected)
            self.collected += operator.output.batches
            operator.output.batches = []
            self.late_rows += operator.late_rows
            operator.late_rows = 0

    def finish(self) -> list[dict[str, Any]]:
        """End the input. Returns all rows of the result."""
        self.advance(MAX_TIME)
        for operator in self.operators:
            operator.end_input()
        self.take()
        return [row for batch in self.collected for row in batch.to_pylist()]


def interleaved(
    rng: random.Random, sides: tuple[pa.RecordBatch, pa.RecordBatch], times: tuple[str, str], disorder: int
) -> Iterator[tuple[int, pa.RecordBatch] | int]:
    """Yield the rows of both sides as batches with their side, and watermarks in between.

    The rows come roughly in the order of their event times: each is at most `disorder` microseconds too late. So no
    row is late for these watermarks.
    """
    parts = []
    for side, (rows, name) in enumerate(zip(sides, times, strict=True)):
        at = np.asarray(rows.column(name).cast(pa.timestamp("us")).cast(pa.int64()).fill_null(0))
        arrival = at + np.array([rng.randrange(disorder + 1) for _ in range(len(at))], np.int64)
        parts += [(int(when), side, row, int(time)) for row, (when, time) in enumerate(zip(arrival, at, strict=True))]
    parts.sort()
    begin = 0
    while begin < len(parts):
        end = min(len(parts), begin + rng.choice([1, 3, 20, 200]))
        for side in rng.sample([0, 1], 2):
            rows = [row for _, of, row, _ in parts[begin:end] if of == side]
            if rows:
                yield side, sides[side].take(pa.array(rows))
        begin = end
        if rng.random() < 0.5 and begin < len(parts):
            yield parts[begin][0] - disorder
