"""A harness with which a test drives one operator step by step: no job, no threads, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

import pyarrow as pa

from headgate.api.checks import check_parallelism, check_schema
from headgate.api.stream import DataStream
from headgate.api.watermark import Watermark
from headgate.errors import ConfigError, HeadgateError, PlanError
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext
from headgate.operators.rows import visible
from headgate.plan.graph import Node, StreamGraph
from headgate.records.hashing import default_max_parallelism, key_group_range
from headgate.runtime.task.chain import Chained, ToOperator
from headgate.state.snapshot import Snapshot, decode, encode
from headgate.testing.given_rows import Rows, as_batch
from headgate.testing.given_source import GivenSource
from headgate.testing.moments import Moment, in_microseconds
from headgate.testing.pipeline_under_test import PlanEnvironment
from headgate.testing.sending_subtasks import SendingSubtasks
from headgate.testing.set_clock import SetClock, on_clock

_ONE_OPERATOR = "OperatorHarness: `operator` must add one operator to the stream; for several use PipelineHarness"


class OperatorHarness:
    """One operator under test, such as a function with state and timers. Each step returns the operator's new rows.

    `operator` is a function that takes a stream of `schema` and adds one operator to it. `event_time` names the
    column of event time, if there is one. Event time and the clock move only by `advance_watermark` and
    `advance_clock`. `parallelism` is the number of subtasks of the operator and of its source. Rows are partitioned
    over the operator's subtasks as in a job. If your function has a `close`, use the harness in a `with` block, which
    calls `close` at its end.

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
        self._schema = check_schema("OperatorHarness", schema, "the input rows")
        self._event_time = event_time
        self._clock = SetClock()
        self._watermark = MIN_TIME
        self._late_rows = 0
        self._pushed = 0
        self._main: list[pa.RecordBatch] = []
        self._sides: dict[str, list[pa.RecordBatch]] = {}
        self._subtasks: list[ToOperator] = []
        self._open(self._plan(check_parallelism("OperatorHarness", parallelism, None)), [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def push(self, rows: Rows) -> list[dict[str, Any]]:
        """Give the operator a batch of rows: a dict, a list of dicts, a RecordBatch or a frame. Return the operator's
        new rows.

        With a parallelism above 1, the subtasks of the source take turns.
        """
        batch, subtasks = as_batch(rows, self._schema), self._open_subtasks()
        turn, self._pushed = self._pushed, self._pushed + 1
        for subtask, share in self._senders.send(batch, turn) if batch.num_rows else ():
            subtasks[subtask].emit(share)
        return self._take_main()

    def advance_watermark(self, time: Moment) -> list[dict[str, Any]]:
        """Move event time to `time`: a datetime, or microseconds since 1970-01-01T00:00Z. Return the new rows.

        A time that is not later than the last one changes nothing. Raises ConfigError without an event time column.
        """
        if self._event_time is None:
            raise ConfigError(
                "advance_watermark: there is no event time; name its column: OperatorHarness(event_time=)"
            )
        self._advance_to(in_microseconds("advance_watermark", time))
        return self._take_main()

    def advance_clock(self, time: Moment) -> list[dict[str, Any]]:
        """Move the processing-time clock to `time` and call the timers that are due. Return the new rows.

        The clock starts at 1970-01-01T00:00Z. Raises ConfigError if `time` is earlier than the clock.
        """
        subtasks = self._open_subtasks()
        self._clock.advance(time)
        for subtask in subtasks:
            due = subtask.operator.next_time()
            if due is not None and due <= self._clock.now:
                subtask.on_processing_time()
        return self._take_main()

    def end(self) -> list[dict[str, Any]]:
        """End the input: the watermark passes all times, so windows fire and event-time timers are called. Return the
        new rows.

        Processing-time timers are dropped.
        """
        self._advance_to(MAX_TIME)
        for subtask in self._open_subtasks():
            subtask.end_input()
        return self._take_main()

    def restart(self, parallelism: int | None = None) -> list[dict[str, Any]]:
        """Take a checkpoint of the operator and resume from it with a new operator. Return the new rows.

        `parallelism` is the new number of subtasks. None keeps the number. The checkpoint is encoded and decoded as in
        a job. The new operator gets the last watermark again, as in a job. So timers for earlier times are called.

        If your function raises an error in `open` or `close`, the harness is closed.
        """
        subtasks = self._open_subtasks()
        checked = check_parallelism("restart", len(subtasks) if parallelism is None else parallelism, None)
        graph = self._plan(checked)
        snapshots = [subtask.operator.snapshot() for subtask in subtasks]
        stored = [decode(encode({"operator": each}))["operator"] for each in snapshots if each is not None]
        self.close()
        self._open(graph, stored)
        return self._take_main()

    def close(self) -> None:
        """Close the operator and your function in it. A second call does nothing.

        After that, each step raises ConfigError. `take` and `late_rows` still work.
        """
        subtasks, self._subtasks = self._subtasks, []
        self._late_rows += sum(subtask.operator.late_rows for subtask in subtasks)
        with ExitStack() as closing:  # which closes each subtask, even if another one raises
            for subtask in subtasks:
                closing.callback(subtask.close)

    def take(self, tag: str) -> list[dict[str, Any]]:
        """Return the rows of the side output `tag` since its last `take`.

        Raises PlanError if there is no such side output.
        """
        if tag not in self._sides:
            raise PlanError(f"take: there is no side output {tag!r}; there are: {', '.join(self._sides) or 'none'}")
        return _take_rows(self._sides[tag])

    @property
    def late_rows(self) -> int:
        """The number of late rows that a window has dropped."""
        return self._late_rows + sum(subtask.operator.late_rows for subtask in self._subtasks)

    # Inside

    def _open_subtasks(self) -> list[ToOperator]:
        """Return the subtasks. Raises ConfigError if the harness is closed."""
        if not self._subtasks:
            raise ConfigError("the harness is closed, by close() or by an error in a restart: make a new harness")
        return self._subtasks

    def _open(self, graph: StreamGraph, stored: Sequence[Snapshot]) -> None:
        """Open the operator's subtasks, or none after an error. They resume from the `stored` snapshots of all earlier
        subtasks."""
        source, node = graph.nodes
        self._senders = SendingSubtasks(source, node.inputs[0], node.parallelism)
        try:
            self._open_each(node, stored)
        except BaseException:
            with suppress(HeadgateError):  # the first error counts
                self.close()
            raise

    def _open_each(self, node: Node, stored: Sequence[Snapshot]) -> None:
        groups = default_max_parallelism(node.parallelism)
        self._sides = {tag: self._sides.get(tag, []) for tag in node.sides}
        assert node.operator is not None
        factory = on_clock(node.operator, self._clock, in_task=False)
        for subtask in range(node.parallelism):
            operator = factory()
            operator.output = _CollectingOutput(self._main)
            operator.sides = {tag: _CollectingOutput(rows) for tag, rows in self._sides.items()}
            self._subtasks.append(ToOperator(operator, _context(node, subtask, groups)))
            self._subtasks[-1].open()
            if stored:
                own_groups = key_group_range(subtask, node.parallelism, groups)
                operator.restore([each.of_key_groups(own_groups) for each in stored])
        if self._watermark > MIN_TIME:  # as after a restart of a job, whose source emits its last watermark again
            for opened in self._subtasks:
                opened.emit_watermark(self._watermark)

    def _plan(self, parallelism: int) -> StreamGraph:
        """Plan a source and the operator. Return the two nodes as a graph."""
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
            raise PlanError(_ONE_OPERATOR)
        if [each.source for each in graph.inputs(made[0].source)] != [source.source]:
            raise PlanError(_ONE_OPERATOR)
        return graph.graph([made[0].source])

    def _advance_to(self, moment: int) -> None:
        subtasks = self._open_subtasks()
        if moment > self._watermark:
            self._watermark = moment
            for subtask in subtasks:
                subtask.emit_watermark(moment)

    def _take_main(self) -> list[dict[str, Any]]:
        return _take_rows(self._main)


class _CollectingOutput(Chained):
    """An output that collects the rows and ignores watermarks."""

    def __init__(self, rows: list[pa.RecordBatch]) -> None:
        self._rows = rows

    def emit(self, batch: pa.RecordBatch) -> None:
        self._rows.append(visible(batch))

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


def _context(node: Node, subtask: int, groups: int) -> OperatorContext:
    return OperatorContext("test", node.name, subtask, node.parallelism, groups)


def _take_rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows of `batches` as dicts, and empty the list."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    batches.clear()
    return rows
