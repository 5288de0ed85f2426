"""The interfaces of sources and sinks.

The driver makes and checks a `Source` or `Sink` and pickles it into its tasks. There each subtask makes a
`SourceReader` or `SinkWriter` from it, and calls that on its task thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.records.elements import MIN_TIME
from headgate.state import shapes

if TYPE_CHECKING:
    from headgate.config import Config
    from headgate.connectors.data_file import DataFile
    from headgate.ownership import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderContext:
    """Where a reader runs, and what it may call there."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    #: Makes the task thread call `read` again soon. Any thread may call it.
    wake: Callable[[], None]
    #: When the whole job started, seconds since the epoch: t0 of paced sources that do not resume from a position.
    started_at: float
    #: The wall clock, seconds since the epoch.
    clock: Callable[[], float]
    #: When the job resumes from a checkpoint: what `position` of each reader returned, by subtask, also of readers that
    #: had finished. Their number is the parallelism at that time.
    positions: Sequence[Any] | None = None
    #: By tag, takes the rows of those side outputs that the job reads. A reader calls it only within `read`.
    sides: Mapping[str, Callable[[pa.RecordBatch], None]] = field(default_factory=dict)


class Source(ABC):
    """An input of a job. The driver knows its `schema` before the job runs."""

    schema: pa.Schema
    #: The user's functions that run in its tasks.
    task_functions: tuple[Callable[..., Any], ...] = ()
    #: Schemas of its side outputs, by tag.
    sides: Mapping[str, pa.Schema] = MappingProxyType({})
    #: Whether the input has an end.
    bounded: bool = True
    #: Whether a reader can resume from a position when the job restarts. Rows of a source that is not replayable may be
    #: lost, or come twice.
    replayable: bool = True
    #: Whether another job can resume from a checkpoint of this one (`restore`).
    resumable: bool = True

    def prepare(self) -> None:
        """On the driver, when a job starts: look for the input, for example list the files. Raises SourceError.

        The source keeps what it finds, and is pickled into its tasks afterwards.
        """

    def prepared(self) -> Any:
        """On the driver, after `prepare`: return what `restore` needs in another program, as JSON values.

        None if `restore` needs nothing.
        """
        return None

    def restore(self, prepared: Any) -> None:
        """On the driver, in place of `prepare`: look for the input that another program had found.

        The job resumes from a checkpoint of that program. `prepared` is what `prepared` returned there. Raises
        SourceError if the input is gone or has changed.
        """
        self.prepare()

    def check_position(self, position: Any) -> None:
        """Check a position from a checkpoint, which may hold anything.

        Raises ValueError for a value that no reader of this source returns from `position`.
        """
        shapes.plain(position, "the position")

    def configure(self, config: Config) -> None:
        """On the driver, when an environment takes the source: keep the options that the source needs."""

    def release(self) -> None:
        """On the driver, when a job for which `prepare` was called has ended in any way: remove what `prepare` made."""

    def files(self) -> Sequence[DataFile]:
        """On the driver: return the files that a job started now would read. Raises SourceError."""
        return ()

    @abstractmethod
    def reader(self, context: ReaderContext) -> SourceReader:
        """Return the reader of one subtask; called on its task thread.

        The reader itself takes its share of the splits: those whose number is its subtask, modulo the parallelism.
        """


class SourceReader(ABC):
    """One subtask's part of a source. It reads its splits one after the other."""

    #: Whether all splits are read. `read` then returns no more rows.
    finished: bool = False
    #: The number of the split that the last batch came from; watermarks are kept per split. When it changes, the split
    #: before has ended.
    split: int = 0
    #: Whether a split is open or waits to be read. While there is none, the subtask's watermark does not hold back
    #: others. A reader that has an end is `finished` instead.
    has_split: bool = True
    #: The event time that it knows to have been reached, in microseconds; it never goes back. A stream with event time
    #: takes it for what has been read so far, where `hg.Watermark` makes less of the rows.
    reached: int = MIN_TIME

    @abstractmethod
    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None if there is none now. Waits for a bounded time only.

        An empty batch means that the reader found no rows yet, and is to be called again. Raises SourceError.
        """

    @abstractmethod
    def position(self) -> Any:
        """Return where the reader stands between two reads, as JSON values, also once it has finished.

        Another job, with any parallelism, can resume from the positions of all readers together. None if the source is
        not replayable.
        """

    def next_read(self) -> float | None:
        """After `read` returned None: return the time of its next call, by the context's clock.

        None if the reader calls `wake` instead.
        """
        return None

    def split_name(self) -> str:
        """Return what the reader reads now, for messages. Any thread may call it."""
        return f"split {self.split}"

    def close(self) -> None:
        """Free files and threads. The task calls it once, also after a failure."""

    def is_stuck(self) -> bool:
        """After `close`: return whether a function of the user still runs on one of the reader's threads."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a program presents when it claims the results of a job."""

    program: Program
    #: The program's epoch: a newer program of the job has a higher one.
    epoch: int
    #: Raises Superseded if another program has taken over the job.
    check: Callable[[], None]
    #: The path or URI of the folder with the job's checkpoints; None without checkpoints.
    home: str | None = None
    #: For `begin`: what `prepared` of all sinks returned, in all programs whose checkpoints the job can resume from.
    #: None if that is not known.
    referenced: Sequence[Any] | None = None
    #: The checkpoint that the job resumes from; 0 for none.
    resumed: int = 0
    #: The run that took that checkpoint; "" if the checkpoint does not say.
    resumed_run: str = ""


class Sink(ABC):
    """An output of a job. The driver calls all methods except `writer`.

    First it calls `prepare` (or `resume`), `claim` and `begin`. Then it calls `commit` for each complete checkpoint and
    at the job's end, and last `finish`. After a restart it calls `rollback`, and `abort` when the job has failed or was
    cancelled. A thread of its own calls `commit` and `finish`; `deliver` may be called at the same time.

    Several programs may resume one job, one after the other, and an older program may have been paused inside any of
    these methods. So a sink whose rows count once records each `claim`, and raises Superseded when a newer program has
    claimed its results; see `headgate.ownership`.
    """

    #: The user's functions that run in its tasks.
    task_functions: tuple[Callable[..., Any], ...] = ()
    #: Whether `begin` removes earlier results.
    replaces: bool = False
    #: Whether readers see rows only once they are committed.
    shows_at_commit: bool = False
    #: Whether each row is there once after all restarts of a job with checkpoints. Other sinks may get rows again.
    exactly_once: bool = False
    #: Spark task slots that the sink's own Spark jobs need while the job runs, in addition to the slots of its tasks.
    slots: int = 0

    def configure(self, config: Config, spark: Any) -> None:
        """When an environment takes the sink: keep the options that it needs, and the Spark session, None if there is
        none. Raises PlanError if the sink needs a session and there is none."""

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Before the job starts: check that results can be written. Removes nothing. Raises SinkError.

        `job` is different for each run.
        """

    def prepared(self) -> Any:
        """After `prepare`: return what `resume` needs in another program to add to the same results, as JSON values.

        None if `resume` needs nothing.
        """
        return None

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """In place of `prepare`: check that the results of another program can be continued. Raises SinkError.

        The job resumes from a checkpoint of that program. `prepared` is what `prepared` returned there.
        """
        self.prepare(job, schema)

    def newest_owner(self) -> int:
        """After `prepare` or `resume`: return the highest epoch with which a program has claimed the results.

        0 if none has, or if the sink records no claims. Raises SinkError.
        """
        return 0

    def claim(self, claim: Claim) -> bool:
        """Record that the results belong to this program, now that the job is certain to start.

        Returns False if another program has claimed them with the same epoch; the driver then calls it again with
        another epoch. Raises SinkError.
        """
        return True

    def begin(self, claim: Claim) -> None:
        """After the claim: remove results that are to be replaced, and files that lost programs of this job left.

        If the job resumes, `rollback` comes next. Raises SinkError.
        """

    def published_after(self, checkpoint: int, run: str) -> int:
        """After `prepare` or `resume`: return the last checkpoint whose rows are visible and come after `checkpoint`.

        `run` is the run that took `checkpoint`, "" if the checkpoint does not say. Any program may have made the rows
        visible. 0 if there is no such checkpoint, or if the sink does not record it. Raises SinkError.
        """
        return 0

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """Return the writer of one subtask; called on its task thread."""

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """Take a batch that a writer passed to `context.deliver`. One thread makes all calls.

        `checkpoint` is the checkpoint that the batch belongs to: the one after the writer's last `flush`; 0 without
        checkpoints.
        """

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Make visible all that the writers returned from `flush` or `finish`, in `pending`.

        The checkpoint is complete, or (0) the job has finished without checkpoints. Repeated calls, also in another
        process, change nothing.
        """

    def finish(self) -> None:
        """Do what is needed once at the end: the job has finished and all is committed. May be repeated."""

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Commit `pending`, keep the rows up to the checkpoint (0: the job's start) and remove all rows after it.

        May be repeated.
        """

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """Clean up after a job that has failed, or was cancelled or stopped.

        The rows up to its last checkpoint stay visible, as by `rollback` (0: there is none, so no rows stay). Nothing
        else is left behind.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """Where a sink writer runs, and what it may call there."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    schema: pa.Schema
    #: Sends a batch to `Sink.deliver` on the driver. Flow-controlled: it may wait for the driver.
    deliver: Callable[[pa.RecordBatch], None]
    #: How often the job has restarted in this program. A writer of an earlier attempt may still run elsewhere.
    attempt: int = 0
    #: The checkpoint that the first batches belong to; 0 without checkpoints.
    checkpoint: int = 0


class SinkWriter(ABC):
    """One subtask's part of a sink."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Raises SinkError."""

    def flush(self, checkpoint: int) -> Any:
        """Make the rows before a checkpoint's barrier durable.

        Returns, as plain JSON values, what `Sink.commit` needs for the rows since the last `flush`; None for nothing.
        If this checkpoint fails, the next one commits them: so they must stay.
        """
        return None

    def finish(self) -> Any:
        """At the input's end: return what `Sink.commit` needs for the rows since the last `flush`."""
        return None

    def close(self) -> None:
        """Free everything. The task calls it once, also after a failure, and then without `finish`."""
