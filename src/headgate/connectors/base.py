"""What a source and a sink are.

A `Source` and a `Sink` are made on the driver, checked there, and travel in the task closure; a `SourceReader` and a
`SinkWriter` are their instances in one subtask, driven by its task thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from headgate.config import Config
    from headgate.connectors.files import DataFile


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What a reader may know of where it runs."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    #: Makes the task thread call `read` again soon; may be called from any thread.
    wake: Callable[[], None]
    #: `time.time()` at which the job as a whole started: t0 of paced sources.
    started_at: float
    #: The wall clock, seconds since the epoch.
    clock: Callable[[], float]
    #: What `position` of every reader there was returned, by its number, when the job goes on from a checkpoint.
    positions: Sequence[Any] | None = None
    #: Takes rows for the source's side outputs, by tag: those that are read. To be called within `read`.
    sides: Mapping[str, Callable[[pa.RecordBatch], None]] = field(default_factory=dict)


class Source(ABC):
    """A replayable input. `schema` is known on the driver, before anything runs."""

    schema: pa.Schema
    #: Schemas of its side outputs, by tag.
    sides: Mapping[str, pa.Schema] = MappingProxyType({})
    bounded: bool = True
    #: Its readers know where they stand, and can go on from there. Rows of one that is not replayable may be lost when
    #: the job restarts.
    replayable: bool = True

    def prepare(self) -> None:
        """On the driver, when a job starts: list the files, check them. Raises SourceError.

        What it finds out is kept in the source, which then travels to the subtasks.
        """

    def configure(self, config: Config) -> None:
        """On the driver, when it joins an environment: take note of the options that matter to it."""

    def release(self) -> None:
        """On the driver, when a job it was prepared for has ended, however: remove what `prepare` made."""

    def files(self) -> Sequence[DataFile]:
        """On the driver: the files that are there to be read now, if it reads files. Raises SourceError."""
        return ()

    @abstractmethod
    def reader(self, context: ReaderContext) -> SourceReader:
        """One subtask's reader; called on its task thread. A reader deals splits to itself: i mod parallelism."""


class SourceReader(ABC):
    """One subtask's part of a source, read one split after the other."""

    #: All splits are read; no `read` will return rows any more.
    finished: bool = False
    #: Number of the split the last batch came from; watermarks are kept per split. A split that is no longer current
    #: has ended.
    split: int = 0

    @abstractmethod
    def read(self) -> pa.RecordBatch | None:
        """The next batch, or None when nothing is there now; returns within a bounded wait. An empty batch says that
        there was nothing to give so far and more is to come. Raises SourceError."""

    def position(self) -> Any:
        """Where it stands between two reads, as JSON has it: with the positions of all readers, those of another
        parallelism go on from here. None if the source is not replayable."""
        return None

    def next_read(self) -> float | None:
        """After `read` returned None: when (context clock) to call it again; None = when `wake` is called."""
        return None

    def close(self) -> None:
        """Free files and threads; called once, also after a failure."""

    def is_stuck(self) -> bool:
        """After `close`: a function of the user's, on a thread of the reader's, has not returned."""
        return False


class Sink(ABC):
    """Where results go. `prepare`, `commit` and `abort` run on the driver."""

    #: `prepare` removes what is there. Such a sink is prepared last, when all else of the job is known to be well.
    replaces: bool = False

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Before the job starts: check and make the target ready. Raises SinkError. `job` is unique per run."""

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """One subtask's writer; called on its task thread."""

    def deliver(self, batch: pa.RecordBatch) -> None:
        """On the driver: a batch that a writer passed to `context.deliver`. Called by one thread."""

    def commit(self, pending: Sequence[Any]) -> None:
        """Make all that the writers returned from `flush` or `finish` visible: a checkpoint is complete, or the job has
        finished. Repeating it, also in another process, changes nothing."""

    def rollback(self, pending: Sequence[Any]) -> None:
        """The job restarts from a checkpoint: commit what belongs to it, and remove all that was written since."""

    def abort(self) -> None:
        """The job has failed or was cancelled: leave nothing visible and nothing behind."""


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What a sink writer may know of where it runs."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    schema: pa.Schema
    #: Send a batch to `Sink.deliver` on the driver; flow-controlled, may wait for the driver.
    deliver: Callable[[pa.RecordBatch], None]


class SinkWriter(ABC):
    """One subtask's part of a sink."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Raises SinkError."""

    def flush(self, checkpoint: int) -> Any:
        """A checkpoint's barrier has come: what was written before it is to be kept. Returns what `Sink.commit` needs
        for that, as plain JSON values, None for nothing."""
        return None

    def finish(self) -> Any:
        """The input has ended: returns what `Sink.commit` needs for what came after the last `flush`."""
        return None

    def close(self) -> None:
        """Free everything; called once, also after a failure, and then without `finish`."""
