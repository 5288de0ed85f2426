"""The operator of a sink, at the end of a chain: it hands batches to the sink's writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.connectors.json_values import stored
from headgate.errors import SinkError
from headgate.operators.operator import Operator, OperatorContext
from headgate.runtime.task.clocks import SYSTEM, Clocks


class SinkOperator(Operator):
    """The operator that writes the batches of one sink in one subtask.

    `pending` is the value that the writer returned at the end of input; the driver passes it to `Sink.commit`.
    `checkpoint` is the number of the checkpoint that the first rows belong to, or 0 without checkpoints. Each batch
    that goes to the driver carries the number of its checkpoint.
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        deliver: Callable[[pa.RecordBatch, int], None],
        attempt: int = 0,
        checkpoint: int = 0,
        *,
        wait_until: Callable[[Callable[[], bool]], None],
        clocks: Clocks = SYSTEM,
    ) -> None:
        super().__init__()
        self._clocks = clocks
        self._sink = sink
        self._schema = schema
        self._deliver = deliver
        self._attempt = attempt
        self._checkpoint = checkpoint
        self._wait_until = wait_until
        self._writer: SinkWriter | None = None
        self.pending: Any = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._writer = self._sink.writer(
            WriterContext(
                job=context.job,
                operator=context.operator,
                subtask=context.subtask,
                parallelism=context.parallelism,
                schema=self._schema,
                deliver=lambda batch: self._deliver(batch, self._checkpoint),
                attempt=self._attempt,
                checkpoint=self._checkpoint,
                clock=self._clocks.wall,
                sleep=self._clocks.sleep,
                wait_until=self._wait_until,
            )
        )

    def process(self, batch: pa.RecordBatch) -> None:
        assert self._writer is not None
        self._writer.write(batch)
        self.rows_out += batch.num_rows

    def process_watermark(self, time: int) -> None: ...

    def process_status(self, active: bool) -> None: ...

    def flush(self, checkpoint: int) -> Any:
        """Return the value of the writer's `flush`, which the driver later passes to `Sink.commit`.

        The writer has taken all rows before the checkpoint's barrier.
        """
        assert self._writer is not None
        self._checkpoint = checkpoint + 1
        return self._checked(self._writer.flush(checkpoint), "flush")

    def end_input(self) -> None:
        assert self._writer is not None
        self.pending = self._checked(self._writer.finish(), "finish")

    def _checked(self, pending: Any, method: str) -> Any:
        """Return a copy of `pending`, which the writer's `method` returned for `Sink.commit`. Raises SinkError if a
        checkpoint cannot store it."""
        try:
            return stored(pending, f"what {type(self._writer).__name__}.{method}() returned")
        except ValueError as error:
            raise SinkError(str(error)) from None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
