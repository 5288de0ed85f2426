"""Outputs of a source that redirect batches, or all calls, to a throttle."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headgate.records.elements import LatencyMarker
from headgate.runtime.task.chain import Chained
from headgate.runtime.taskmanager.throttling.stored_output import StoredOutput


class EachBatch(Chained):
    """An output that passes each batch to the function `emit`, and everything else to `output`."""

    def __init__(self, output: Chained, emit: Callable[[pa.RecordBatch], None]) -> None:
        self._output = output
        self._emit = emit

    def emit(self, batch: pa.RecordBatch) -> None:
        self._emit(batch)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        self._output.emit_watermark(time)

    def emit_status(self, active: bool) -> None:
        self._output.emit_status(active)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._output.emit_marker(marker)

    def end_input(self) -> None:
        self._output.end_input()


class EachCall(Chained):
    """An output that stores each call for later. `number` returns the number under which it is stored."""

    def __init__(self, output: Chained, stored: StoredOutput, number: Callable[[], int]) -> None:
        self._output = output
        self._stored = stored
        self._number = number

    def emit(self, batch: pa.RecordBatch) -> None:
        self._stored.add_rows(self._number(), batch, self._output.emit)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        self._stored.add(self._number(), lambda: self._output.emit_watermark(time))

    def emit_status(self, active: bool) -> None:
        self._stored.add(self._number(), lambda: self._output.emit_status(active))

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._stored.add(self._number(), lambda: self._output.emit_marker(marker))

    def end_input(self) -> None:
        self._stored.add(self._number(), self._output.end_input)
