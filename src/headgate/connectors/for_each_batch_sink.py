"""Batches handed to a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.operators.operator import call_user, check_function


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """Where a batch comes from: the sink's subtask, the checkpoint it belongs to (0 without checkpoints), and the run,
    a text that is another one for each program that starts or resumes the job.

    After a restart from a checkpoint the rows of later ones come again, in other batches. Two programs may both give
    batches of a checkpoint with one number, when one was paused and replaced: `run` tells them apart.
    """

    subtask: int
    checkpoint_id: int
    run: str = ""


BatchFunction = Callable[[pa.RecordBatch, BatchInfo], object]


class ForEachBatchSink(Sink):
    """Calls the function in the task; see `hg.sinks.for_each_batch`."""

    def __init__(self, fn: BatchFunction) -> None:
        check_function("for_each_batch", fn)
        self._fn = fn
        self._run = ""
        self.task_functions = (fn,)

    def begin(self, claim: Claim) -> None:
        """Its writers are told the run."""
        self._run = claim.program.run

    def writer(self, context: WriterContext) -> SinkWriter:
        """Calls the function with its subtask's batches."""
        return _FunctionWriter(self._fn, BatchInfo(context.subtask, context.checkpoint, self._run))


class _FunctionWriter(SinkWriter):
    def __init__(self, fn: BatchFunction, info: BatchInfo) -> None:
        self._fn = fn
        self._info = info

    def write(self, batch: pa.RecordBatch) -> None:
        call_user(self._fn, batch, self._info)

    def flush(self, checkpoint: int) -> Any:
        """What comes now belongs to the next one."""
        self._info = replace(self._info, checkpoint_id=checkpoint + 1)
