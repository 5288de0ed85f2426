"""A program that writes to a sink under test: it calls the sink in the order in which a job does."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import pyarrow as pa

from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.errors import JobCancelled, Superseded
from headgate.ownership import Program

#: How many checkpoints a program takes. The last one comes at the end of its input.
EPOCHS = 3


@dataclass(kw_only=True)
class StoredJob:
    """What the storage has of a job: its last complete checkpoint, and the program that owns it."""

    checkpoint: int = 0
    run: str = ""
    pending: Sequence[Any] = ()
    prepared: Any = None
    owner: int = 0
    #: What the sinks of all programs have prepared, and a checkpoint may name.
    referenced: list[Any] = field(default_factory=list)


class SinkProgram:
    """One program of a job: it starts the job, or resumes it from what is stored.

    `rows` are those of the whole job: epoch i has every third row from row i - 1.
    """

    def __init__(self, sink: Sink, stored: StoredJob, rows: pa.Table, *, home: str, subtasks: int) -> None:
        self.sink = sink
        self._stored = stored
        self._rows = rows
        self._home = home
        self._subtasks = subtasks
        self.run = f"test-{uuid.uuid4().hex[:8]}"
        self._attempt = 0
        self._writers: list[SinkWriter] = []
        self.is_cancelled = False
        self.flushed: list[Any] = []

    def start(self) -> None:
        """Claim the sink's results, and take back what is not in the last checkpoint."""
        self.claim()
        self.roll_back()
        self._refuse_repeats()

    def claim(self) -> None:
        """Prepare the sink, or resume it, and claim its results."""
        stored, name = self._stored, f"{self.run}-1"
        if stored.prepared is not None:
            self.sink.resume(name, self._rows.schema, stored.prepared)
        else:  # the job starts, or resumes from a checkpoint that does not name the sink
            self.sink.prepare(name, self._rows.schema)
        self._refuse_repeats()
        stored.owner = epoch = 1 + max(stored.owner, self.sink.newest_owner())

        def check() -> None:
            if stored.owner != epoch:
                raise Superseded("a newer program of the test owns the job")

        claim = Claim(
            program=Program.this(self.run), epoch=epoch, check=check, home=self._home, referenced=stored.referenced,
            resumed=stored.checkpoint, resumed_run=stored.run,
        )  # fmt: skip
        assert self.sink.claim(claim), "claim() refused an epoch that nobody has"
        self.sink.begin(claim)

    def _refuse_repeats(self) -> None:
        """Check that the sink knows of no rows after the checkpoint from which the program resumes."""
        stored = self._stored
        if stored.checkpoint:
            shown = self.sink.published_after(stored.checkpoint, stored.run)
            assert not shown, f"published_after() returned {shown}, and {stored.checkpoint} is the last checkpoint"

    def roll_back(self) -> None:
        """Take back what is not in the last checkpoint, and open new writers, as a restart does."""
        stored = self._stored
        if stored.checkpoint or self._attempt:
            self.sink.rollback(stored.pending, stored.checkpoint)
        copies = [cloudpickle.loads(cloudpickle.dumps(self.sink)) for _ in range(self._subtasks)]
        self._writers = [copy.writer(self._context(subtask)) for subtask, copy in enumerate(copies)]
        self._attempt += 1

    def _context(self, subtask: int) -> WriterContext:
        return WriterContext(
            job=f"{self.run}-1",
            operator="sink",
            subtask=subtask,
            parallelism=self._subtasks,
            schema=self._rows.schema,
            deliver=lambda batch: self.sink.deliver(batch, self._stored.checkpoint + 1),
            attempt=self._attempt,
            checkpoint=self._stored.checkpoint + 1,
            clock=time.time,
            sleep=time.sleep,
            wait_until=self._wait_until,
        )

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.is_cancelled:
                raise JobCancelled("the test cancels the job")
            time.sleep(0.001)

    # --- the steps of one epoch

    def epoch_rows(self, epoch: int) -> pa.Table:
        """Return the rows of an epoch, from 1."""
        return self._rows.take(list(range(epoch - 1, self._rows.num_rows, EPOCHS)))

    def write(self) -> None:
        """Write the rows of the next epoch: each writer gets a part, in several batches."""
        rows = self.epoch_rows(self._stored.checkpoint + 1)
        for number, batch in enumerate(rows.to_batches(max_chunksize=max(1, rows.num_rows // 5))):
            self._writers[number % self._subtasks].write(batch)

    def flush(self) -> None:
        """Let the writers flush for the next checkpoint. At the last checkpoint their input ends."""
        number = self._stored.checkpoint + 1
        flushed = [writer.finish() if number == EPOCHS else writer.flush(number) for writer in self._writers]
        self.flushed = _as_json([values for values in flushed if values])

    def store(self) -> None:
        """Make the checkpoint complete."""
        stored = self._stored
        stored.checkpoint += 1
        stored.run, stored.pending, stored.prepared = self.run, self.flushed, _as_json(self.sink.prepared())
        stored.referenced.append(stored.prepared)

    def commit(self) -> None:
        """Let the sink commit the last checkpoint."""
        self.sink.commit(self._stored.pending, self._stored.checkpoint)

    def go_on(self) -> None:
        """Write the remaining epochs, and finish the job."""
        while self._stored.checkpoint < EPOCHS:
            for step in (self.write, self.flush, self.store, self.commit):
                step()
        self.close()
        self.sink.finish()

    def close(self) -> None:
        """Close the writers."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.close()


def _as_json(values: Any) -> Any:
    """Return values as they are after a checkpoint has stored them."""
    return json.loads(json.dumps(values))
