"""Outputs of a source that redirect batches, or all calls, to a throttle."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headgate.records.elements import LatencyMarker
from headgate.runtime.task.chain import Chained


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
    """An output that stores each call for later. `store` gets the call, and the number of rows and bytes in its
    batch."""

    def __init__(self, output: Chained, store: Callable[[Callable[[], None], int, int], None]) -> None:
        self._output = output
        self._store = store

    def emit(self, batch: pa.RecordBatch) -> None:
        self._store(lambda: self._output.emit(batch), batch.num_rows, batch.nbytes)

    def emit_watermark(self, time: int) -> None:
        self.watermark = time
        self._store(lambda: self._output.emit_watermark(time), 0, 0)

    def emit_status(self, active: bool) -> None:
        self._store(lambda: self._output.emit_status(active), 0, 0)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._store(lambda: self._output.emit_marker(marker), 0, 0)

    def end_input(self) -> None:
        self._store(self._output.end_input, 0, 0)
