"""One operator, driven by a test step by step: no job, no threads, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import pyarrow as pa

from headgate.api.checks import check_parallelism, check_schema
from headgate.api.stream import DataStream
from headgate.api.watermark import Watermark
from headgate.errors import ConfigError, PlanError
from headgate.exchange.selectors import ChannelSelector, KeyGroups, Rebalance
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext
from headgate.operators.rows import visible
from headgate.plan.graph import Node, Partitioning
from headgate.records.hashing import default_max_parallelism, key_group_range
from headgate.runtime.task.chain import Chained, ToOperator
from headgate.state.snapshot import Snapshot, decode, encode
from headgate.testing.given_rows import Rows, as_batch
from headgate.testing.given_source import GivenSource
from headgate.testing.moments import Moment, in_microseconds
from headgate.testing.pipeline_under_test import PlanEnvironment
from headgate.testing.set_clock import SetClock, on_clock

_ONE = "OperatorHarness: `operator` is to add one operator to the stream; for more of them use PipelineHarness"


class OperatorHarness:
    """Drive one operator, such as a function with state and timers, step by step; each step returns its new rows.

    `operator` is a function that is given a stream of `schema` and adds one operator to it. `event_time` names the
    column of event time, if there is one. Event time and the clock move only by `advance_watermark` and
    `advance_clock`. `parallelism` is the number of subtasks; keys are distributed to them as in a job. In a `with`
    block a `close` of your function is called, too.

    >>> class Total(hg.KeyedProcessFunction):
    ...     sum = hg.ValueState(pa.int64())
    ...     def process_element(self, row, ctx):
    ...         self.sum.update(self.sum.value(0) + row["n"])
    ...         yield {"sum": self.sum.value()}
    >>> harness = hg.testing.OperatorHarness(
    ...     lambda rows: rows.key_by("k").process(Total(), schema=pa.schema({"sum": pa.int64()})),
    ...     schema=pa.schema({"k": pa.string(), "n": pa.int64()}),
    ... )
    >>> harness.push({"k": "a", "n": 1})
    [{'sum': 1}]
    >>> harness.restart(parallelism=2)
    []
    >>> harness.push({"k": "a", "n": 2})
    [{'sum': 3}]
    """

    def __init__(
        self,
        operator: Callable[[DataStream], DataStream],
        *,
        schema: pa.Schema,
        event_time: str | None = None,
        parallelism: int = 1,
    ) -> None:
        self._operator = operator
        self._schema = check_schema("OperatorHarness", schema)
        self._event_time = event_time
        self._clock = SetClock()
        self._watermark = MIN_TIME
        self._late_rows = 0
        self._main: list[pa.RecordBatch] = []
        self._sides: dict[str, list[pa.RecordBatch]] = {}
        self._subtasks: list[ToOperator] = []
        self._open(parallelism, [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def push(self, rows: Rows) -> list[dict[str, Any]]:
        """Give the operator rows, as one batch: a dict, a list of dicts, a RecordBatch or a frame."""
        batch = as_batch(rows, self._schema)
        for subtask, share in self._selector.select(batch) if batch.num_rows else ():
            self._subtasks[subtask].emit(share)
        return self._taken()

    def advance_watermark(self, time: Moment) -> list[dict[str, Any]]:
        """Have event time come to `time`: a datetime, or microseconds since 1970-01-01T00:00Z. A time that is not
        beyond the last one changes nothing."""
        if self._event_time is None:
            raise ConfigError(
                "advance_watermark: there is no event time; name its column: OperatorHarness(event_time=)"
            )
        self._reach(in_microseconds("advance_watermark", time))
        return self._taken()

    def advance_clock(self, time: Moment) -> list[dict[str, Any]]:
        """Set the processing-time clock, which begins at 1970-01-01T00:00Z. Raises ConfigError if it would go back."""
        self._clock.advance(time)
        for subtask in self._subtasks:
            due = subtask.operator.next_time()
            if due is not None and due <= self._clock.now:
                subtask.on_processing_time()
        return self._taken()

    def end(self) -> list[dict[str, Any]]:
        """End the input: event time ends, so windows fire and event-time timers are called; timers of the clock are
        dropped."""
        self._reach(MAX_TIME)
        for subtask in self._subtasks:
            subtask.end_input()
        return self._taken()

    def restart(self, parallelism: int | None = None) -> list[dict[str, Any]]:
        """Take a checkpoint of the operator and resume from it with a new one, with another parallelism if one is
        given. The checkpoint passes through the bytes that a job would store. As in a job the watermark comes once
        more, so timers that were set for a time before it are called."""
        found = [subtask.operator.snapshot() for subtask in self._subtasks]
        stored = [decode(encode({"operator": each}))["operator"] for each in found if each is not None]
        before = len(self._subtasks)
        self.close()
        self._open(before if parallelism is None else parallelism, stored)
        return self._taken()

    def close(self) -> None:
        """Close the operator, and with it your function; again is harmless."""
        subtasks, self._subtasks = self._subtasks, []
        self._late_rows += sum(subtask.operator.late_rows for subtask in subtasks)
        for subtask in subtasks:
            subtask.close()

    def take(self, tag: str) -> list[dict[str, Any]]:
        """The rows of a side output since the last `take` of it."""
        if tag not in self._sides:
            raise PlanError(f"take: there is no side output {tag!r}; there are: {', '.join(self._sides) or 'none'}")
        return _rows_of(self._sides[tag])

    @property
    def late_rows(self) -> int:
        """How many rows a window has dropped."""
        return self._late_rows + sum(subtask.operator.late_rows for subtask in self._subtasks)

    # Inside

    def _open(self, parallelism: int, stored: Sequence[Snapshot]) -> None:
        """As many subtasks, which resume from what was stored."""
        node, partitioning = self._planned(check_parallelism("OperatorHarness", parallelism, None))
        groups = default_max_parallelism(node.parallelism)
        self._selector: ChannelSelector = Rebalance(node.parallelism, 0)
        if partitioning is not None and partitioning.kind == "key_group":
            self._selector = KeyGroups(partitioning.keys, node.parallelism, groups)
        self._sides = {tag: self._sides.get(tag, []) for tag in node.sides}
        assert node.operator is not None
        factory = on_clock(node.operator, self._clock, in_task=False)
        for subtask in range(node.parallelism):
            operator = factory()
            operator.output = _Kept(self._main)
            operator.sides = {tag: _Kept(rows) for tag, rows in self._sides.items()}
            self._subtasks.append(ToOperator(operator, _context(node, subtask, groups)))
            self._subtasks[-1].open()
            if stored:
                mine = key_group_range(subtask, node.parallelism, groups)
                operator.restore([each.of_key_groups(mine) for each in stored])
        if self._watermark > MIN_TIME:  # a job's source says again where it was
            for each in self._subtasks:
                each.emit_watermark(self._watermark)

    def _planned(self, parallelism: int) -> tuple[Node, Partitioning | None]:
        """The operator's node, and how rows come to it."""
        environment = PlanEnvironment(parallelism)
        has_time = self._event_time is not None
        watermark = Watermark(self._event_time) if self._event_time is not None else None
        rows = GivenSource(self._schema, {}, parallelism, has_event_time=has_time)
        before = environment.from_source(rows, watermark=watermark)
        after = self._operator(before)
        if not isinstance(after, DataStream):
            raise PlanError(f"OperatorHarness: `operator` must return a stream, not {after!r}")
        (source,), made = before._rows.inputs, after._rows.inputs
        graph = environment.plan.graph
        if len(made) != 1 or made[0].tag is not None or made[0].source == source.source:
            raise PlanError(_ONE)
        inputs = graph.inputs(made[0].source)
        if [each.source for each in inputs] != [source.source]:
            raise PlanError(_ONE)
        return graph[made[0].source], inputs[0].partitioning

    def _reach(self, moment: int) -> None:
        if moment > self._watermark:
            self._watermark = moment
            for subtask in self._subtasks:
                subtask.emit_watermark(moment)

    def _taken(self) -> list[dict[str, Any]]:
        return _rows_of(self._main)


class _Kept(Chained):
    """An output that keeps the rows."""

    def __init__(self, rows: list[pa.RecordBatch]) -> None:
        self._rows = rows

    def emit(self, batch: pa.RecordBatch) -> None:
        self._rows.append(visible(batch))

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


def _context(node: Node, subtask: int, groups: int) -> OperatorContext:
    return OperatorContext("test", node.name, subtask, node.parallelism, groups)


def _rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """They are gone then."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    batches.clear()
    return rows
