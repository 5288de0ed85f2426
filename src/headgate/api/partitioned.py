"""`Partitioned`: the calls of a stream that choose the subtask of the next operator for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headgate.api.planned_rows import PlannedRows
from headgate.errors import PlanError
from headgate.operators.operator import check_function
from headgate.plan.graph import BROADCAST, FORWARD, LOAD_AWARE, REBALANCE, RESCALE, SHUFFLE, TO_ONE, Partitioning

#: Stands for the class of streams. Its module imports this one, so this one cannot import it.
DataStream = TypeVar("DataStream")


class Partitioned(ABC, Generic[DataStream]):
    """A stream whose rows can be distributed to the subtasks of the next operator in another way."""

    _rows: PlannedRows

    def rebalance(self, *, load_aware: bool = False) -> DataStream:
        """Send batches to all subtasks of the next operator in turn.

        With `load_aware`, each batch goes to the least loaded of the next four subtasks, so that a slow subtask gets
        fewer rows. The load is the data in a channel's buffers. Loads differ only after buffers begin to fill. In batch
        mode, loads never differ.

        >>> long_trips = trips.rebalance().filter("km > 4").set_parallelism(4)
        """
        if not isinstance(load_aware, bool):
            raise PlanError(f"rebalance: load_aware={load_aware!r} must be True or False")
        return self._partitioned(LOAD_AWARE if load_aware else REBALANCE)

    def rescale(self) -> DataStream:
        """Send the batches of each subtask to a fixed group of subtasks of the next operator, in turn.

        With 2 subtasks here and 4 in the next operator, subtask 0 sends to subtasks 0 and 1, subtask 1 to 2 and 3.
        `rescale` needs fewer channels than `rebalance`, but an uneven load stays uneven.

        >>> long_trips = trips.set_parallelism(2).rescale().filter("km > 4").set_parallelism(4)
        """
        return self._partitioned(RESCALE)

    def shuffle(self) -> DataStream:
        """Send each row to a random subtask of the next operator. Runs with the same batches make the same choices.

        >>> long_trips = trips.shuffle().filter("km > 4").set_parallelism(4)
        """
        return self._partitioned(SHUFFLE)

    def to_one(self) -> DataStream:
        """Send all rows to subtask 0 of the next operator. The default parallelism of this operator is then 1.

        >>> in_one_file = trips.to_one().sink_to(hg.sinks.csv("trips/"))
        """
        return self._partitioned(TO_ONE)

    def partition_by(self, fn: Callable[[pa.RecordBatch, int], Any]) -> DataStream:
        """Send each row to the subtask of the next operator that `fn(batch, subtasks)` returns for the row.

        `fn` gets a batch and the number of subtasks. It returns an integer array with the subtask of each row, from 0.

        >>> def by_length(batch, subtasks):
        ...     return pc.if_else(pc.greater(batch["km"], 4), 0, subtasks - 1)
        >>> partitioned = trips.partition_by(by_length).filter("km > 0").set_parallelism(2)
        """
        check_function("partition_by", fn)
        return self._partitioned(Partitioning("custom", function=fn))

    def broadcast(self) -> DataStream:
        """Send every row to every subtask of the next operator.

        >>> trips.broadcast().filter("km > 6").set_parallelism(2).collect().num_rows
        2
        """
        return self._partitioned(BROADCAST)

    def forward(self) -> DataStream:
        """Send the rows of subtask i to subtask i of the next operator. The next operator gets the same parallelism.

        >>> long_trips = trips.set_parallelism(2).forward().filter("km > 4")
        """
        return self._partitioned(FORWARD)

    @abstractmethod
    def _stream(self, rows: PlannedRows) -> DataStream:
        """Return a stream of these rows."""

    def _partitioned(self, partitioning: Partitioning) -> DataStream:
        return self._stream(self._rows.partitioned(partitioning))
