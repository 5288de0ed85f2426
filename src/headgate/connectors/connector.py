"""The interfaces of sources and sinks.

The driver makes and checks a `Source` or `Sink`, and sends a pickled copy to each task. There each subtask makes a
`SourceReader` from the source, or a `SinkWriter` from the sink. The subtask's task thread calls the reader or writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
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
    """The place where a reader runs, and the functions that the reader may call there.

    - `job`, `operator`: the names of the job and of the source.
    - `subtask`, `parallelism`: the number of this reader, from 0, and the number of readers.
    - `wake()`: any thread may call it. The task thread then calls `read` again soon.
    - `positions`: if the job resumes, what `position` of all earlier readers returned, by subtask. Otherwise None.
    - `sides`: by tag, the functions that take rows of the side outputs that the job reads. Call them only in `read`.
    - `clock()`, `started_at`: the time, and the time when the job started, in seconds since the epoch.
    """

    job: str
    operator: str
    subtask: int
    parallelism: int
    wake: Callable[[], None]
    #: The time at which the whole job started, in seconds since the epoch. If the job does not resume, a source with a
    #: rate counts the due times of its rows from here.
    started_at: float
    clock: Callable[[], float]
    #: If the job resumes from a checkpoint: the results of `position` of all earlier readers, by subtask. Readers that
    #: had finished are included, so the number of positions is the earlier parallelism.
    positions: Sequence[Any] | None = None
    sides: Mapping[str, Callable[[pa.RecordBatch], None]] = field(default_factory=dict)


class Source(ABC):
    """An input of a job, for connectors of your own.

    The driver makes the source, calls `prepare`, and sends a pickled copy to each subtask. There `reader` returns the
    `SourceReader` of the subtask. A source needs a `schema` and a `reader`; all other methods have defaults. Attributes
    of the class:

    - `schema`: the columns of the rows.
    - `bounded`: whether the input has an end. True by default.
    - `replayable`: whether a reader can resume from a position. True by default.
    - `resumable`: whether another program can resume from a checkpoint of this job. True by default.
    - `sides`: the schemas of side outputs, by tag.
    - `task_functions`: functions of the user that run in the tasks.

    `SourceReader` has an example. The page docs/how-to/write-a-connector.md shows a whole connector.
    """

    schema: pa.Schema
    #: The user's functions that run in the tasks of the source.
    task_functions: tuple[Callable[..., Any], ...] = ()
    sides: Mapping[str, pa.Schema] = MappingProxyType({})
    bounded: bool = True
    #: Whether a reader can resume from a position when the job restarts. Otherwise rows may be lost, or read twice.
    replayable: bool = True
    #: Whether another program can resume from a checkpoint of this job, with `restore`.
    resumable: bool = True

    def prepare(self) -> None:
        """Look for the input, for example list the files. The driver calls this when a job starts. Raises SourceError.

        The source stores what it finds. The driver pickles the source for the tasks afterwards.
        """

    def prepared(self) -> Any:
        """Return the JSON values that `restore` needs in another program. The driver calls this after `prepare`.

        If it returns None, the driver calls `prepare` also when a job resumes.
        """
        return None

    def restore(self, prepared: Any) -> None:
        """Look for the input that another program had found. The driver calls this instead of `prepare`.

        The job resumes from a checkpoint of the other program. The argument is the result of `prepared` in that
        program, and never None. Raises SourceError if the input is gone or has changed.
        """
        self.prepare()

    def check_position(self, position: Any) -> None:
        """Check a position from a checkpoint. A damaged or forged checkpoint may hold any value.

        Raises ValueError for a value that `position` of this source's readers never returns.
        """
        shapes.plain(position, "the position")

    def configure(self, config: Config) -> None:
        """Store the options that the source needs. The driver calls this when an environment takes the source."""

    def reading(self, columns: Collection[str]) -> Source:
        """Return a source that reads only these columns (one or more), or this source. The driver calls this.

        The rows of the result have all columns of `schema`. The values of columns that are not needed may be null. The
        positions of its readers must not depend on `columns`: a job that resumes may need other columns.
        """
        return self

    def with_dictionaries(self, columns: Collection[str]) -> Source:
        """Return a source that gives these columns of texts with dictionaries, or this source. The driver calls this.

        The result's `schema` has `pa.dictionary(pa.int32(), type)` for them. Expressions are then evaluated once for
        each text of a dictionary, and not for each row. Positions must not depend on it.
        """
        return self

    def commit(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Tell the input's system what the job has read, for example acknowledge messages. The driver calls this.

        `pending` has what the readers' `to_commit` returned, without None. The checkpoint is complete, so the job never
        reads these rows again. `checkpoint` is 0 at the end of a job without checkpoints. The driver may skip a call;
        the next call then has later values. If a call raises SourceError, the job restarts.
        """

    def release(self) -> None:
        """Remove everything that `prepare` made. The driver calls this when the job has ended in any way."""

    def files(self) -> Sequence[DataFile]:
        """Return the files that a job would read if it started now. The driver calls this. Raises SourceError."""
        return ()

    @abstractmethod
    def reader(self, context: ReaderContext) -> SourceReader:
        """Return the reader of one subtask. The subtask's task thread calls this.

        The reader takes its share of the splits: split i belongs to subtask i mod parallelism.
        """


class SourceReader(ABC):
    """The part of a source that runs in one subtask.

    A reader sets `finished` when all its splits are read, and `split` to the number of the split of the last batch. If
    it reads several splits at once, it sets `open_splits` and `rows_by_split` instead of `split`. While it has no
    split, it sets `has_split` to False, so that it does not hold back the watermarks of other subtasks. The task calls
    all methods from one thread, except for those that say "any thread". While the job is back-pressured, the task does
    not call `read`. A reader that fetches ahead must therefore limit the bytes that wait for `read`.

    >>> class Numbers(hg.Source):
    ...     schema = pa.schema({"n": pa.int64()})
    ...     def reader(self, context):
    ...         return NumbersReader(context)
    >>> class NumbersReader(hg.SourceReader):
    ...     def __init__(self, context):
    ...         positions = context.positions or range(context.parallelism)
    ...         self.next, self.step = positions[context.subtask], context.parallelism
    ...     def read(self):
    ...         self.finished = self.next >= 5
    ...         if self.finished:
    ...             return None
    ...         self.next += self.step
    ...         return pa.record_batch({"n": [self.next - self.step]})
    ...     def position(self):
    ...         return self.next
    >>> hg.StreamEnvironment().from_source(Numbers()).collect().column("n").to_pylist()
    [0, 1, 2, 3, 4]
    """

    #: Whether all splits are read. `read` then returns no more rows.
    finished: bool = False
    #: The number of the split that the last batch came from. Watermarks count per split. When the number changes,
    #: the previous split has ended.
    split: int = 0
    #: The numbers of the splits that the reader reads at the same time, or None if it reads one after the other. Each
    #: of them holds back the watermark until it leaves this collection, or has no rows for the idle timeout.
    open_splits: Collection[int] | None = None
    #: With `open_splits`: the splits of the rows of the last batch, in order, as pairs (split, number of rows).
    rows_by_split: Sequence[tuple[int, int]] = ()
    #: Whether the reader has an open or a waiting split. Without a split, the subtask's watermark does not hold back
    #: the watermarks of other subtasks. A reader of a bounded source sets `finished` instead.
    has_split: bool = True
    #: The event time, in microseconds, that the input has reached, as far as the reader knows. It never goes back. A
    #: stream with event time uses it as the watermark if it is above the watermark of the rows so far.
    reached: int = MIN_TIME

    @abstractmethod
    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None if no batch is ready now. Waits for a bounded time only.

        An empty batch means that the reader has found no rows yet: the task calls `read` again at once. After None, the
        task waits for `wake` or `next_read`. Raises SourceError.
        """

    @abstractmethod
    def position(self) -> Any:
        """Return the position of the reader between two reads, as JSON values. A finished reader returns a position
        too.

        Another job, with any parallelism, can resume from the positions of all readers together. Returns None if the
        source is not replayable.
        """

    def pause_splits(self, splits: Collection[int]) -> None:
        """Read all `open_splits` but these, which are `max_drift` ahead. A reader without this method pauses none."""

    def to_commit(self) -> Any:
        """Return the JSON values that `Source.commit` needs for the rows before the position, or None for no values.

        The task calls this method together with `position`, and at the end of input.
        """
        return None

    def next_read(self) -> float | None:
        """Return the time, by the context's clock, at which the task calls `read` again after `read` has returned None.

        Returns None if the reader calls `wake` instead.
        """
        return None

    def lag(self) -> float | None:
        """Return by how many seconds the next rows are overdue, at least 0. Return None for a reader without a rate,
        which reads as fast as it can. Any thread may call this method."""
        return None

    def unread(self) -> Mapping[str, int] | None:
        """Return how many rows or messages of each split wait in the input, by the split's name. Return None if that is
        not known. Any thread may call this method, about once a second, so it does not wait."""
        return None

    @property
    def is_reading(self) -> bool:
        """Whether a thread of the reader reads the next rows now. The wait for these rows counts as the source's work.

        A reader without a thread returns False, and so does a reader that only waits until there are new rows.
        """
        return False

    def split_name(self) -> str:
        """Return the name of the split that the reader reads now, for messages. Any thread may call this method."""
        return f"split {self.split}"

    def split_key(self, split: int) -> str | None:
        """Return a name of an open split. It must be the same in every run, and no other split may have it.

        A checkpoint keeps the largest event time of the split under this name. If the method returns None, the time is
        not kept: after a restart, the split holds back the watermark until its next row. A warning about a stalled
        watermark shows the name, or for None the number of the split. Any thread may call this method.
        """
        return None

    def close(self) -> None:
        """Free files and threads. The task calls this method once, also after a failure."""

    def is_stuck(self) -> bool:
        """Return, after `close`, whether a user's function still runs on one of the reader's threads."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The data with which a program claims the results of a job, for `Sink.claim` and `Sink.begin`.

    - `program`: the program. Each program that starts or resumes the job has another `program.run`.
    - `epoch`: a number that is higher for each newer program of the job.
    - `check()`: raises Superseded if a newer program has taken over the job.
    - `resumed`, `resumed_run`: the checkpoint that the job resumes from, or 0, and the run that took it.
    - `home`, `referenced`: the folder of the job's checkpoints, and the results of `prepared` of all sinks, in all
      programs with checkpoints there.
    """

    program: Program
    #: The program's epoch. A newer program of the same job has a higher epoch.
    epoch: int
    #: Raises Superseded if another program has taken over the job.
    check: Callable[[], None]
    #: The path or URI of the folder with the job's checkpoints, or None without checkpoints.
    home: str | None = None
    #: For `begin`: the results of `prepared` of all sinks, in all programs whose checkpoints the job can resume from.
    #: None if they are not known.
    referenced: Sequence[Any] | None = None
    #: The checkpoint that the job resumes from, or 0 if it does not resume.
    resumed: int = 0
    #: The run that took the checkpoint `resumed`, or "" if the checkpoint does not name its run.
    resumed_run: str = ""


class Sink(ABC):
    """An output of a job, for connectors of your own. The driver calls all methods except `writer`.

    A sink needs only `writer`, whose `SinkWriter` runs in each subtask. A sink whose rows become visible in two phases
    also has `commit`. The page docs/how-to/write-a-connector.md shows a whole sink. Attributes of the class:

    - `exactly_once`: whether the results have each row once, also after a failure. False by default.
    - `shows_at_commit`: whether readers see rows only after `commit`. False by default.
    - `replaces`: whether `begin` removes the results of earlier jobs. False by default.
    - `takes_upserts`: whether the sink may get rows that replace earlier rows with the same key. True by default.
    - `upsert_key`: the columns by which the sink replaces rows. None by default: it replaces no rows.
    - `slots`: how many Spark task slots the sink's own Spark jobs need while the job runs. 0 by default.
    - `task_functions`: functions of the user that run in the tasks.

    First the driver calls `prepare` (or `resume`), `claim` and `begin`. It calls `commit` for each complete checkpoint
    and at the job's end, and then `finish`. After a restart it calls `rollback`. When the job has failed or was
    cancelled, it calls `abort`. A separate thread of the driver calls `commit` and `finish`. Another thread may call
    `deliver` at the same time.

    Several programs may resume one job, one after the other. An older program may be paused inside any of these
    methods, and continue later. A sink with `exactly_once` therefore records each `claim`. It raises Superseded when a
    newer program has claimed its results; see `headgate.ownership`.
    """

    #: The user's functions that run in the tasks of the sink.
    task_functions: tuple[Callable[..., Any], ...] = ()
    replaces: bool = False
    shows_at_commit: bool = False
    #: Whether the results have each row exactly once, even if a job with checkpoints restarts. Other sinks may get rows
    #: again after a restart.
    exactly_once: bool = False
    #: Whether the sink may get rows that replace earlier rows with the same key. The rows of a key come in order.
    takes_upserts: bool = True
    #: The columns by which the sink replaces rows. An upserting stream must have the same key. None: the sink replaces
    #: no rows.
    upsert_key: tuple[str, ...] | None = None
    #: Spark task slots that the sink's own Spark jobs need while the job runs, in addition to the slots of its tasks.
    slots: int = 0

    def configure(self, config: Config, spark: Any) -> None:
        """Store the options that the sink needs, and the Spark session. The driver calls this when an environment takes
        the sink.

        `spark` is None if there is no session. Raises PlanError if the sink needs a session.
        """

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check that results can be written. The driver calls this before the job starts. Removes nothing. Raises
        SinkError.

        `job` names the job's run and the sink. It is different for each run.
        """

    def prepared(self) -> Any:
        """Return the JSON values that `resume` needs in another program to add to the same results.

        The driver calls this after `prepare`. If it returns None, the driver calls `prepare` also when a job resumes.
        """
        return None

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Check that the results of another program can be continued. The driver calls this instead of `prepare`.

        The job resumes from a checkpoint of the other program. The argument `prepared` is the result of `prepared` in
        that program, and never None. Raises SinkError.
        """
        self.prepare(job, schema)

    def newest_owner(self) -> int:
        """Return the highest epoch with which a program has claimed the results.

        The driver calls this after `prepare` or `resume`. Returns 0 if there is no claim, or if the sink records no
        claims. Raises SinkError.
        """
        return 0

    def claim(self, claim: Claim) -> bool:
        """Record that the results belong to this program. The driver calls this when the job is certain to start.

        Returns False if another program has claimed the results with the same epoch. The driver then calls this method
        again with another epoch. Raises SinkError.
        """
        return True

    def begin(self, claim: Claim) -> None:
        """Remove results that the job replaces, and files that lost programs of this job left.

        The driver calls this after `claim`. If the job resumes, the driver calls `rollback` next. Raises SinkError.
        """

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint after `checkpoint` whose rows are visible.

        The driver calls this after `prepare` or `resume`, and after `begin`. `run` names the run (the program) that
        took `checkpoint`; it is "" if the checkpoint does not name its run. Any program may have made the rows visible.
        Returns 0 if there is no such checkpoint, or if the sink does not record visible checkpoints. Raises SinkError.
        """
        return 0

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """Return the writer of one subtask. The subtask's task thread calls this."""

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """Take a batch that a writer passed to `context.deliver`. One thread makes all these calls.

        `checkpoint` is the checkpoint that the batch belongs to: the first checkpoint after the writer's last `flush`.
        `checkpoint` is 0 if the job takes no checkpoints.
        """

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Make the rows in `pending` visible. `pending` has the results of the writers' `flush` and `finish`.

        The checkpoint is complete. If `checkpoint` is 0, the job has finished without checkpoints. Repeated calls
        change nothing, even from another process.
        """

    def finish(self) -> None:
        """Do the sink's last work. The job has finished, and all rows are committed. Calls may be repeated."""

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Commit `pending`, keep the rows up to the checkpoint, and remove all rows after it.

        If `checkpoint` is 0, remove all rows since the job's start. Calls may be repeated.
        """

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """Clean up after a job that has failed, or was cancelled or stopped.

        The rows up to the last checkpoint stay visible, as after `rollback`. Without a checkpoint (0), no rows stay.
        The sink removes everything else that the job has made.
        """

    def superseded(self) -> None:
        """Remove what this program has made and no other program needs. The driver calls this instead of `abort` after
        another program has taken over the job. Visible rows stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """The place where a sink writer runs, and the functions that the writer may call there.

    - `job`, `operator`: the names of the job's run and of the sink.
    - `subtask`, `parallelism`: the number of this writer, from 0, and the number of writers.
    - `schema`: the schema of the batches.
    - `attempt`, `checkpoint`: how often the job has restarted in this program, and the first batches' checkpoint, or 0.
      A writer of an earlier attempt may still run on another machine.
    - `wait_until(condition)`: waits until the target takes rows again. A cancel of the job ends the wait.
    - `deliver(batch)`: sends a batch to `Sink.deliver` on the driver. It waits while the driver is slower.
    - `clock()`, `sleep(seconds)`: the time in seconds since the epoch, and a wait.
    """

    job: str
    operator: str
    subtask: int
    parallelism: int
    schema: pa.Schema
    deliver: Callable[[pa.RecordBatch], None]
    attempt: int = 0
    checkpoint: int = 0
    clock: Callable[[], float]
    #: Waits for a number of seconds. A writer that waits by this call also works in the virtual time of a simulation.
    sleep: Callable[[float], None]
    #: Waits until a condition is true, and checks it at least every 10 ms. A writer whose target takes no more rows
    #: waits by this call: the wait counts as back-pressure, and a cancel of the job ends it with JobCancelled.
    wait_until: Callable[[Callable[[], bool]], None]


class SinkWriter(ABC):
    """The part of a sink that runs in one subtask. The task calls all methods from one thread.

    >>> class Printing(hg.Sink):
    ...     def writer(self, context):
    ...         return PrintingWriter()
    >>> class PrintingWriter(hg.SinkWriter):
    ...     def write(self, batch):
    ...         print(batch.to_pylist())
    >>> env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    >>> sink = env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(Printing())
    >>> result = env.execute()
    [{'n': 1}]
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. The task takes no other batch until the call returns: this is the back-pressure of a sink.

        A writer that must wait for its target calls `WriterContext.wait_until`. Raises SinkError.
        """

    def flush(self, checkpoint: int) -> Any:
        """Make durable all rows that came before the checkpoint's barrier.

        Returns the JSON values that `Sink.commit` needs for the rows since the last `flush`. Returns None without rows.
        If this checkpoint fails, the next checkpoint commits these rows, so the rows must stay.
        """
        return None

    def finish(self) -> Any:
        """Return the JSON values that `Sink.commit` needs for the rows since the last `flush`, at the input's end."""
        return None

    def close(self) -> None:
        """Free all resources. The task calls this method once. After a failure, the task calls it without `finish`."""
