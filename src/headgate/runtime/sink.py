"""The operator at the end of a chain: hands batches to a sink's writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headgate.connectors.base import Sink, SinkWriter, WriterContext
from headgate.operators.base import Operator, OperatorContext


class SinkOperator(Operator):
    """`pending` is what the writer returned at the end of input, for `Sink.commit` on the driver."""

    def __init__(self, sink: Sink, schema: pa.Schema, deliver: Callable[[pa.RecordBatch], None]) -> None:
        super().__init__()
        self._sink = sink
        self._schema = schema
        self._deliver = deliver
        self._writer: SinkWriter | None = None
        self.pending: Any = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._writer = self._sink.writer(
            WriterContext(
                context.job, context.operator, context.subtask, context.parallelism, self._schema, self._deliver
            )
        )

    def process(self, batch: pa.RecordBatch) -> None:
        assert self._writer is not None
        self._writer.write(batch)
        self.rows_out += batch.num_rows

    def process_watermark(self, time: int) -> None: ...

    def process_status(self, active: bool) -> None: ...

    def end_input(self) -> None:
        assert self._writer is not None
        self.pending = self._writer.finish()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
