"""The subtasks of the source of an operator under test: they send its rows to the operator's subtasks."""

from __future__ import annotations

import pyarrow as pa

from headgate.operators.operator import OperatorContext
from headgate.plan.execution import is_pointwise, neighbours
from headgate.plan.graph import Edge, Node
from headgate.runtime.task.routing import selector


class SendingSubtasks:
    """The subtasks of a source. They send rows by the partitioning of the operator's input, with the selectors of a
    job."""

    def __init__(self, source: Node, edge: Edge, receivers: int) -> None:
        senders, partitioning = source.parallelism, edge.partitioning
        self._columns = None if edge.columns is None else list(edge.columns)
        self._receivers = [
            neighbours(sender, senders, receivers) if is_pointwise(partitioning) else range(receivers)
            for sender in range(senders)
        ]
        self._selectors = [
            selector(partitioning, len(channels), OperatorContext("test", source.name, sender, senders), None, _no_load)
            for sender, channels in enumerate(self._receivers)
        ]

    def send(self, batch: pa.RecordBatch, turn: int) -> list[tuple[int, pa.RecordBatch]]:
        """Return pairs of an operator's subtask and the rows that it gets. The subtasks of the source take turns."""
        if self._columns is not None:
            batch = batch.select(self._columns)
        sender = turn % len(self._selectors)
        receivers = self._receivers[sender]
        return [(receivers[channel], rows) for channel, rows in self._selectors[sender].select(batch)]


def _no_load(_channel: int) -> int:
    """Return 0: no data waits, because the operator processes all rows before the next rows are sent."""
    return 0
