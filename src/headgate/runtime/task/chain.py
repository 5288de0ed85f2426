"""Operator chains: direct calls from one operator to the next, and to the writers at the end of the chain."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import Operator, OperatorContext, Output, TwoInputOperator
from headgate.records.elements import MIN_TIME, LatencyMarker
from headgate.runtime.latency_markers import LatencyHistogram
from headgate.runtime.running_operator import calls_operators
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.state_memory import StateMemory
from headgate.runtime.task.time_account import WRITE, TimeAccount


class Chained(Output):
    """The output of an operator within a task. It leads to the next operator, to a writer, or to several of these.

    `end_input` passes the end of the input on. `watermark` is the last watermark that the output got, in microseconds
    since the epoch; metrics read it.
    """

    watermark: int = MIN_TIME

    def emit_marker(self, marker: LatencyMarker) -> None:
        """Pass a latency marker on without running user code. Each operator records the marker's age."""

    def end_input(self) -> None: ...


class ToOperator(Chained):
    """The output that calls the next operator of the chain.

    The time of each call counts in the operator's bucket of the task's `TimeAccount`. An error that the operator raises
    gets the operator's name and subtask.
    """

    __slots__ = (
        "_account",
        "_clocks",
        "_switch",
        "batches",
        "bucket",
        "context",
        "latency",
        "latency_s",
        "operator",
        "restored",
    )

    def __init__(
        self,
        operator: Operator,
        context: OperatorContext,
        memory: StateMemory | None = None,
        *,
        clocks: Clocks = SYSTEM,
        times: TimeAccount | None = None,
    ) -> None:
        self.operator = operator
        self.context = context
        self._clocks = clocks
        self._account = None if memory is None else memory.open_account(operator, context)
        times = times or TimeAccount(clocks.monotonic)
        self.bucket = times.add_bucket()
        self._switch = times.switch
        self.batches = 0
        #: The rows that the operator had counted in earlier attempts, by counter: they are in its counters.
        self.restored: dict[str, int] = {}
        self.latency: dict[int, LatencyHistogram] = {}  # by source
        #: The age of the last marker, in seconds.
        self.latency_s: float | None = None

    def open(self) -> None:
        try:
            self.operator.open(self.context)
        except Exception as error:
            raise with_location(error, self.context) from error

    def close(self) -> None:
        if self._account is not None:
            self._account.close()
        try:
            self.operator.close()
        except Exception as error:
            raise with_location(error, self.context) from error

    def emit(self, batch: pa.RecordBatch) -> None:
        self.operator.rows_in += batch.num_rows
        self.batches += 1
        self._run(self.operator.process, batch)

    def emit_second(self, batch: pa.RecordBatch) -> None:
        """Give a batch to the second input of the operator, which has two."""
        assert isinstance(self.operator, TwoInputOperator)
        self.operator.rows_in += batch.num_rows
        self.batches += 1
        self._run(self.operator.process_second, batch)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        self._run(self.operator.process_watermark, time)

    def emit_status(self, active: bool) -> None:
        self.operator.process_status(active)

    def on_processing_time(self) -> None:
        self._run(self.operator.on_processing_time)

    def emit_marker(self, marker: LatencyMarker) -> None:
        if marker.source not in self.latency:
            self.latency = {**self.latency, marker.source: LatencyHistogram()}  # replaced: other threads read it
        age = round(self._clocks.wall() * 1e6) - marker.time
        self.latency[marker.source].record(age)
        self.latency_s = max(0, age) / 1e6
        output = self.operator.output
        assert isinstance(output, Chained)
        output.emit_marker(marker)

    def end_input(self) -> None:
        self._run(self.operator.end_input)
        output = self.operator.output
        assert isinstance(output, Chained)
        output.end_input()

    def _run(self, call: Callable[..., None], *arguments: object) -> None:
        caller = self._switch(self.bucket)
        try:
            call(*arguments)
            if self._account is not None:
                self._account.update()
        except Exception as error:
            raise with_location(error, self.context) from error
        finally:
            self._switch(caller)


calls_operators(ToOperator)


class ToSecondInput(Chained):
    """The output that leads to the second input of an operator. Only batches come here."""

    __slots__ = ("_entry",)

    def __init__(self, entry: ToOperator) -> None:
        self._entry = entry

    def emit(self, batch: pa.RecordBatch) -> None:
        self._entry.emit_second(batch)

    def emit_watermark(self, time: int) -> None:
        raise NotImplementedError

    def emit_status(self, active: bool) -> None:
        raise NotImplementedError


class ToWriter(Chained):
    """The output that writes to an exchange, at the end of a chain."""

    __slots__ = ("_switch", "_writer")

    def __init__(self, writer: RecordWriter, times: TimeAccount) -> None:
        self._writer = writer
        self._switch = times.switch

    def emit(self, batch: pa.RecordBatch) -> None:
        caller = self._switch(WRITE)
        try:
            self._writer.emit(batch)
        finally:
            self._switch(caller)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        self._writer.emit_watermark(time)

    def emit_status(self, active: bool) -> None:
        self._writer.emit_status(active)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._writer.emit_marker(marker)

    def end_input(self) -> None:
        self._writer.finish()


class FanOut(Chained):
    """The output that gives every batch to each of several consumers. The consumers share the batch, which is
    immutable.

    A `FanOut` without consumers ends a chain.
    """

    __slots__ = ("_outputs",)

    def __init__(self, outputs: Sequence[Chained]) -> None:
        self._outputs = tuple(outputs)

    def emit(self, batch: pa.RecordBatch) -> None:
        for output in self._outputs:
            output.emit(batch)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        for output in self._outputs:
            output.emit_watermark(time)

    def emit_status(self, active: bool) -> None:
        for output in self._outputs:
            output.emit_status(active)

    def emit_marker(self, marker: LatencyMarker) -> None:
        """Send the marker to one random consumer. An exchange likewise sends a marker to one channel only."""
        if self._outputs:
            random.choice(self._outputs).emit_marker(marker)

    def end_input(self) -> None:
        for output in self._outputs:
            output.end_input()


class SideOutputs(Chained):
    """The output of a node that has side outputs with consumers.

    Rows go to the main output. Watermarks, statuses and the end of the input go to the main output and to all side
    outputs. A latency marker goes to one of them.
    """

    __slots__ = ("_all", "_main")

    def __init__(self, main: Chained, sides: Iterable[Chained]) -> None:
        self._main = main
        self._all = FanOut((main, *sides))

    def emit(self, batch: pa.RecordBatch) -> None:
        self._main.emit(batch)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        self._all.emit_watermark(time)

    def emit_status(self, active: bool) -> None:
        self._all.emit_status(active)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._all.emit_marker(marker)

    def end_input(self) -> None:
        self._all.end_input()


def fan_out(outputs: Sequence[Chained]) -> Chained:
    """Return one output that leads to all of `outputs`."""
    return outputs[0] if len(outputs) == 1 else FanOut(outputs)


def with_location(error: Exception, context: OperatorContext) -> HeadgateError:
    """Return the error as a HeadgateError with the job, operator and subtask where it was raised.

    An error that is not a HeadgateError is a bug of Headgate or Arrow. Its traceback becomes a part of the text.
    """
    if not isinstance(error, HeadgateError):
        text = "".join(traceback.format_exception(error)).rstrip()
        error = HeadgateError(f"unexpected {type(error).__name__}: {error}\n{text}")
    return error.at(job=context.job, operator=context.operator, subtask=context.subtask)
