"""Operator chains: direct calls from one operator to the next, and to the writers where a chain ends."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Iterable, Sequence

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import Operator, OperatorContext, Output
from headgate.records.elements import MIN_TIME, LatencyMarker
from headgate.runtime.latency_markers import LatencyHistogram
from headgate.runtime.task.state_memory import StateMemory
from headgate.runtime.where import calls_operators


class Chained(Output):
    """An output that leads somewhere within the task; the end of input is passed on like everything else.

    `watermark` is the last one that it was given, for metrics.
    """

    watermark: int = MIN_TIME

    def emit_marker(self, marker: LatencyMarker) -> None:
        """Past user code: a marker is for the operators' histograms and the queues between them."""

    def end_input(self) -> None: ...


class ToOperator(Chained):
    """The next operator, called directly. What it raises is given its name and subtask."""

    __slots__ = ("_account", "context", "latency", "operator")

    def __init__(self, operator: Operator, context: OperatorContext, memory: StateMemory | None = None) -> None:
        self.operator = operator
        self.context = context
        self._account = None if memory is None else memory.open_account(operator, context)
        self.latency: dict[int, LatencyHistogram] = {}  # by source

    def open(self) -> None:
        try:
            self.operator.open(self.context)
        except Exception as error:
            raise placed(error, self.context) from error

    def close(self) -> None:
        if self._account is not None:
            self._account.close()
        try:
            self.operator.close()
        except Exception as error:
            raise placed(error, self.context) from error

    def emit(self, batch: pa.RecordBatch) -> None:
        operator = self.operator
        operator.rows_in += batch.num_rows
        try:
            operator.process(batch)
            if self._account is not None:
                self._account.look()
        except Exception as error:
            raise placed(error, self.context) from error

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        try:
            self.operator.process_watermark(time)
            if self._account is not None:
                self._account.look()
        except Exception as error:
            raise placed(error, self.context) from error

    def emit_status(self, active: bool) -> None:
        self.operator.process_status(active)

    def on_processing_time(self) -> None:
        try:
            self.operator.on_processing_time()
            if self._account is not None:
                self._account.look()
        except Exception as error:
            raise placed(error, self.context) from error

    def emit_marker(self, marker: LatencyMarker) -> None:
        if marker.source not in self.latency:
            self.latency = {**self.latency, marker.source: LatencyHistogram()}  # read by other threads
        self.latency[marker.source].record(round(time.time() * 1e6) - marker.time)
        output = self.operator.output
        assert isinstance(output, Chained)
        output.emit_marker(marker)

    def end_input(self) -> None:
        try:
            self.operator.end_input()
        except Exception as error:
            raise placed(error, self.context) from error
        output = self.operator.output
        assert isinstance(output, Chained)
        output.end_input()


calls_operators(ToOperator)


class ToWriter(Chained):
    """An exchange begins here."""

    __slots__ = ("_writer",)

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer

    def emit(self, batch: pa.RecordBatch) -> None:
        self._writer.emit(batch)

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
    """Several consumers of one stream, each given all of it (batches are immutable and shared); none at the end of a
    chain."""

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
        """To one of them, as to one channel of an exchange: a stream has as many markers behind a fork as before."""
        if self._outputs:
            random.choice(self._outputs).emit_marker(marker)

    def end_input(self) -> None:
        for output in self._outputs:
            output.end_input()


class SideOutputs(Chained):
    """The output of a node with side outputs that are read: rows go one way, what all must hear goes all ways."""

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


def joined(outputs: Sequence[Chained]) -> Chained:
    """One output for all of them."""
    return outputs[0] if len(outputs) == 1 else FanOut(outputs)


def placed(error: Exception, context: OperatorContext) -> HeadgateError:
    """The error with its place. What is no error of ours is a bug of ours, or of Arrow's: it keeps its traceback."""
    if not isinstance(error, HeadgateError):
        text = "".join(traceback.format_exception(error)).rstrip()
        error = HeadgateError(f"unexpected {type(error).__name__}: {error}\n{text}")
    return error.at(job=context.job, operator=context.operator, subtask=context.subtask)
