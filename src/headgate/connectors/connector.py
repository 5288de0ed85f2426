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

from headgate.records.elements import MIN_TIME
from headgate.state import shapes

if TYPE_CHECKING:
    from headgate.config import Config
    from headgate.connectors.data_file import DataFile
    from headgate.ownership import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderContext:
    """What a reader may know of where it runs."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    #: Makes the task thread call `read` again soon; may be called from any thread.
    wake: Callable[[], None]
    #: `time.time()` at which the job as a whole started: t0 of paced sources that do not go on from a position.
    started_at: float
    #: The wall clock, seconds since the epoch.
    clock: Callable[[], float]
    #: What `position` of every reader there was returned, by its subtask, also of those that had finished, when the job
    #: goes on from a checkpoint.
    positions: Sequence[Any] | None = None
    #: Takes rows for the source's side outputs, by tag: those that are read. To be called within `read`.
    sides: Mapping[str, Callable[[pa.RecordBatch], None]] = field(default_factory=dict)


class Source(ABC):
    """An input. `schema` is known on the driver, before anything runs."""

    schema: pa.Schema
    #: Functions of the user's that run in its tasks.
    task_functions: tuple[Callable[..., Any], ...] = ()
    #: Schemas of its side outputs, by tag.
    sides: Mapping[str, pa.Schema] = MappingProxyType({})
    bounded: bool = True
    #: Its readers know where they stand, and can go on from there. Rows of one that is not replayable may be lost, or
    #: come twice, when the job restarts.
    replayable: bool = True
    #: So can those of another job, which goes on from a checkpoint of this one (`restore`).
    resumable: bool = True

    def prepare(self) -> None:
        """On the driver, when a job starts: list the files, check them. Raises SourceError.

        What it finds out is kept in the source, which then travels to the subtasks.
        """

    def prepared(self) -> Any:
        """On the driver, after `prepare`: what `restore` needs to read the same in another program, as JSON has it;
        None for nothing."""
        return None

    def restore(self, prepared: Any) -> None:
        """In place of `prepare`, when a job goes on from a checkpoint of another program. Raises SourceError if what
        was to be read is gone or has changed."""
        self.prepare()

    def check_position(self, position: Any) -> None:
        """Raises ValueError for what no reader of it returns from `position`: a checkpoint may hold anything."""
        shapes.plain(position, "the position")

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
    #: A split is open, or waits to be read. While there is none, the subtask's watermark holds back nobody. A reader
    #: that has an end is `finished` in place of it.
    has_split: bool = True
    #: The event time that it knows to have been reached, in microseconds; it never goes back. A stream with event time
    #: takes it for what has been read so far, where `hg.Watermark` makes less of the rows.
    reached: int = MIN_TIME

    @abstractmethod
    def read(self) -> pa.RecordBatch | None:
        """The next batch, or None when nothing is there now; returns within a bounded wait. An empty batch says that
        there was nothing to give so far and more is to come. Raises SourceError."""

    @abstractmethod
    def position(self) -> Any:
        """Where it stands between two reads, as JSON has it, also once it has finished: with the positions of all
        readers, those of another parallelism go on from here. None if the source is not replayable."""

    def next_read(self) -> float | None:
        """After `read` returned None: when (context clock) to call it again; None = when `wake` is called."""
        return None

    def split_name(self) -> str:
        """What it reads now, for messages. Any thread may call it."""
        return f"split {self.split}"

    def close(self) -> None:
        """Free files and threads; called once, also after a failure."""

    def is_stuck(self) -> bool:
        """After `close`: a function of the user's, on a thread of the reader's, has not returned."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """With what a program takes over a job's results."""

    program: Program
    #: The program's epoch, for all that it owns.
    epoch: int
    #: Raises Superseded if another program has taken over the job.
    check: Callable[[], None]
    #: The folder of the job's checkpoints, by path or URI; None without.
    home: str | None = None
    #: What `prepared` returned in the programs whose checkpoints the job can resume from, of all its sinks; None: that
    #: cannot be told.
    referenced: Sequence[Any] | None = None
    #: The checkpoint that the job resumes from, 0 for none, and the run that took it, "" if it does not say.
    resumed: int = 0
    resumed_run: str = ""


class Sink(ABC):
    """Where results go. All but `writer` runs on the driver.

    `prepare` (or `resume`), `claim` and `begin`, then `commit` for each checkpoint that is complete and for the job's
    end, then `finish`; when the job starts again, `rollback`; when it has failed or was cancelled, `abort`. `commit`
    and `finish` are called by a thread of their own; `deliver` may be called meanwhile.

    Several programs may resume one job, and an older one may have been paused in the midst of any of these methods. A
    sink whose rows count once records each `claim`, and raises Superseded when a newer program has claimed its results;
    see `headgate.ownership`.
    """

    #: Functions of the user's that run in its tasks.
    task_functions: tuple[Callable[..., Any], ...] = ()
    #: `begin` removes what is there.
    replaces: bool = False
    #: Its rows are seen when they are committed, and not before.
    shows_at_commit: bool = False
    #: Through all restarts of a job with checkpoints each row is there once; others may be given rows once more.
    exactly_once: bool = False
    #: Task slots of Spark that it needs on the driver's behalf while the job runs, beside those of the job.
    slots: int = 0

    def configure(self, config: Config, spark: Any) -> None:
        """When it joins an environment: take note of the options that matter to it, and of the Spark session, None
        where there is none. Raises PlanError if it needs one."""

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Before the job starts: check that results can be written, and remove nothing. `job` is unique per run. Raises
        SinkError."""

    def prepared(self) -> Any:
        """After `prepare`: what `resume` needs to go on with the same results in another program, as JSON has it; None
        for nothing."""
        return None

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """In place of `prepare`, when a job goes on from a checkpoint of another program. Raises SinkError."""
        self.prepare(job, schema)

    def newest_owner(self) -> int:
        """After `prepare` or `resume`: the highest epoch with which a program has claimed the results; 0 if none has,
        or that is not recorded. Raises SinkError."""
        return 0

    def claim(self, claim: Claim) -> bool:
        """The job is sure to start: record that the results are this program's; whether no other program has claimed
        them with the same epoch. Repeated with another epoch then. Raises SinkError."""
        return True

    def begin(self, claim: Claim) -> None:
        """The results are claimed: remove what is to be replaced, and what lost programs of this job left. If the job
        is resumed, `rollback` comes next. Raises SinkError."""

    def published_after(self, checkpoint: int, run: str) -> int:
        """After `prepare` or `resume`: the last checkpoint whose rows are seen, whichever program showed them, and are
        not among those up to this one, which `run` took ("" if it does not say); 0 if there is none, or that is not
        recorded. Raises SinkError."""
        return 0

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """One subtask's writer; called on its task thread."""

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """A batch that a writer passed to `context.deliver`, and the checkpoint that it belongs to: one after the last
        that its writer was asked to flush for; 0 without checkpoints. Called by one thread."""

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Make all that the writers returned from `flush` or `finish` visible: the checkpoint is complete, or (0) the
        job has finished without any. Repeating it, also in another process, changes nothing."""

    def finish(self) -> None:
        """The job has finished and all is committed: see to what is wanted once, in the end. May be repeated."""

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Keep what belongs to the checkpoint (0: the job's start) and those before it, committing `pending`, and
        remove all that was written since. May be repeated."""

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """The job has failed, or was cancelled or stopped: leave visible what belongs to its last checkpoint, as
        `rollback` would (0: there is none, and nothing stays visible), and nothing behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """What a sink writer may know of where it runs."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    schema: pa.Schema
    #: Send a batch to `Sink.deliver` on the driver; flow-controlled, may wait for the driver.
    deliver: Callable[[pa.RecordBatch], None]
    #: How often the job has started again in this program. A writer of an earlier attempt may still run elsewhere.
    attempt: int = 0
    #: The checkpoint that the first batches belong to; 0 without checkpoints.
    checkpoint: int = 0


class SinkWriter(ABC):
    """One subtask's part of a sink."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Raises SinkError."""

    def flush(self, checkpoint: int) -> Any:
        """A checkpoint's barrier has come: what was written before it is to be kept. Returns what `Sink.commit` needs
        for what came after the last `flush`, as plain JSON values, None for nothing. It may still be wanted if this
        checkpoint fails: the next one holds it, too."""
        return None

    def finish(self) -> Any:
        """The input has ended: returns what `Sink.commit` needs for what came after the last `flush`."""
        return None

    def close(self) -> None:
        """Free everything; called once, also after a failure, and then without `finish`."""
