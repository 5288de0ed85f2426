"""A sink of two functions of the user: one writes the rows of a checkpoint, the other makes them visible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.connectors.for_each_batch_sink import BatchInfo
from headgate.connectors.json_values import checked
from headgate.errors import UserFunctionError
from headgate.operators.operator import call_user, check_function

#: Writes rows where nobody sees them. Returns JSON values that name what was written.
WriteFunction: TypeAlias = Callable[[pa.Table, BatchInfo], Any]
#: Makes rows visible. The arguments are the list of what calls of a WriteFunction returned, and the checkpoint.
CommitFunction: TypeAlias = Callable[[list[Any], int], object]
#: When a writer has collected so many bytes of rows, it calls the WriteFunction.
_MOST_HELD: Final = 64 << 20


class TwoPhaseSink(Sink):
    """A sink that calls `write` in its tasks and `commit` on the driver; see `hg.sinks.two_phase`."""

    shows_at_commit = True
    exactly_once = True

    def __init__(self, write: WriteFunction, commit: CommitFunction) -> None:
        check_function("two_phase", write)
        check_function("two_phase", commit)
        self._write = write
        self._commit = commit
        self._run = ""
        self.task_functions = (write,)

    def begin(self, claim: Claim) -> None:
        """Store the run of the claim. The writers pass the run to `write`."""
        self._run = claim.program.run

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that calls `write` with the rows of a checkpoint."""
        return _TwoPhaseWriter(self._write, context, BatchInfo(context.subtask, context.checkpoint, self._run))

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Call `commit` with what `write` returned, unless there were no rows."""
        if written := [value for values in pending for value in values or ()]:
            call_user(self._commit, written, checkpoint)

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Commit the rows of the checkpoint. What was written after it is never committed."""
        self.commit(pending, checkpoint)

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """Commit the rows of the last checkpoint, if there is one."""
        if checkpoint:
            self.commit(pending, checkpoint)


class _TwoPhaseWriter(SinkWriter):
    def __init__(self, write: WriteFunction, context: WriterContext, info: BatchInfo) -> None:
        self._write_rows = write
        self._schema = context.schema
        self._info = info
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _MOST_HELD:
            self._pass_on()

    def flush(self, checkpoint: int) -> Any:
        """Write the rows that are held. Assign all later rows to the next checkpoint."""
        self._pass_on()
        self._info = replace(self._info, checkpoint_id=checkpoint + 1)
        written, self._written = self._written, []
        return written or None

    def finish(self) -> Any:
        self._pass_on()
        return self._written or None

    def _pass_on(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, self._schema)
        self._held, self._bytes = [], 0
        value = call_user(self._write_rows, table, self._info)
        try:
            self._written.append(checked(value, "what write() returned"))
        except ValueError as error:
            raise UserFunctionError(f"two_phase: {error}") from None
