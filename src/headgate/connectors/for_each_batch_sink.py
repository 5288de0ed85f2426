"""A sink that calls the user's function with each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.operators.operator import call_user, check_function


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """The origin of a batch: its subtask, checkpoint and run.

    After a restart from a checkpoint, the sink gets the rows after this checkpoint again, perhaps in other batches. A
    program that was paused and replaced may send batches with the same checkpoint number as the program that replaced
    it. Their `run` differs.
    """

    #: The sink's subtask, from 0.
    subtask: int
    #: The checkpoint that the batch belongs to, or 0 without checkpoints.
    checkpoint_id: int
    #: A string that is different for each program that starts or resumes the job.
    run: str = ""


BatchFunction = Callable[[pa.RecordBatch, BatchInfo], object]


class ForEachBatchSink(Sink):
    """A sink that calls the user's function in its tasks; see `hg.sinks.for_each_batch`."""

    def __init__(self, fn: BatchFunction) -> None:
        check_function("for_each_batch", fn)
        self._fn = fn
        self._run = ""
        self.task_functions = (fn,)

    def begin(self, claim: Claim) -> None:
        """Store the run of the claim. The writers pass the run to the function."""
        self._run = claim.program.run

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that calls the function with each batch."""
        return _FunctionWriter(self._fn, BatchInfo(context.subtask, context.checkpoint, self._run))


class _FunctionWriter(SinkWriter):
    def __init__(self, fn: BatchFunction, info: BatchInfo) -> None:
        self._fn = fn
        self._info = info

    def write(self, batch: pa.RecordBatch) -> None:
        call_user(self._fn, batch, self._info)

    def flush(self, checkpoint: int) -> Any:
        """Assign all later batches to the next checkpoint."""
        self._info = replace(self._info, checkpoint_id=checkpoint + 1)
