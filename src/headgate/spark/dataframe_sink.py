"""A sink that calls a function on the driver with Spark DataFrames: subtasks write files, the DataFrame reads them.

When the function has returned, the sink removes the checkpoint's files in the order of their names. While the first of
these files exists, the function must still be called. Another program can see this, too.
"""

from __future__ import annotations

import dataclasses
import inspect
import posixpath
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.config import Config
from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.connectors.file_sinks.file_formats import ParquetFormat, check_writable
from headgate.connectors.file_sinks.file_writer import FileWriter, Target, remove_if_empty, writing
from headgate.connectors.file_sinks.ledger import Ledger
from headgate.errors import NotEnoughSlots, PlanError, ResultsGone, SinkError
from headgate.filesystems import listing, locate, make_private
from headgate.operators.operator import call_user, function_name
from headgate.ownership import Program
from headgate.spark.dataframe import is_ours, local_place, new_folder, read_files, spark_columns
from headgate.spark.scratch import hold, unlock
from headgate.spark.session import context_of
from headgate.spark.slots import count_slots, slots_held

DataFrameFunction = Callable[[DataFrame, int], object] | Callable[[DataFrame, int, str], object]


class ForeachDataframeSink(Sink):
    """A sink that calls the user's function for each checkpoint; see `headgate.api.sinks.foreach_dataframe`."""

    shows_at_commit = True
    takes_upserts = False
    slots = 1

    def __init__(self, fn: DataFrameFunction) -> None:
        self._fn = fn
        self._takes_run = _takes_run(fn)
        _check_parameters(fn, 3 if self._takes_run else 2)
        self._spark: SparkSession
        self._spill_dir: str | None = None
        self._folder = ""
        self._columns = StructType()
        self._target: Target | None = None
        self._ledger: Ledger | None = None
        self._run = ""
        #: Whether the folder was gone when the job resumed.
        self._was_lost = False
        #: The checkpoint that the job resumed from, and the run that took this checkpoint.
        self._resumed = (0, "")
        #: The files whose rows the function got last, in this program.
        self._handed_over: list[str] = []
        #: Whether a job may resume from a checkpoint that has rows in the folder.
        self._is_kept = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields that writers need in the tasks, for pickling."""
        return {"_target": self._target}

    def configure(self, config: Config, spark: Any) -> None:
        """Remember the session and the option `spill_dir`. Raises PlanError without Spark."""
        if spark is None:
            raise PlanError("foreach_dataframe needs Spark: StreamEnvironment(spark); without it use for_each_batch")
        self._spark, self._spill_dir = spark, config.spill_dir

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Create a folder for the rows.

        Raises PlanError for types that Spark lacks, and ConfigError if executors cannot reach the folder.
        """
        self._aim(new_folder(self._spark, self._spill_dir), uuid.uuid4().hex[:8], schema)
        self._make_folder()
        if (place := local_place(self._folder)) is not None:
            hold(place)

    def prepared(self) -> Any:
        """Return the folder and the run. The names of the files in the folder contain the run.

        From now on checkpoints refer to the folder, so it must outlive this program. The folder's lock is removed.
        """
        self._unlock()
        return {"folder": self._folder, "run": self._prepared().run}

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Resume in the folder of another program. The folder may be gone if none of its rows are still needed.

        Raises SinkError for a folder that no such sink made.
        """
        folder = prepared["folder"]
        if not is_ours(folder):
            raise SinkError(f"{folder}: was not made by foreach_dataframe; start from another checkpoint")
        self._aim(folder, prepared["run"], schema)
        self._is_kept = True

    def newest_owner(self) -> int:
        """Return the highest epoch of a program in the folder's ledger."""
        return Ledger(self._folder, self._prepared().run, None, Program.this("")).newest_owner()

    def claim(self, claim: Claim) -> bool:
        """Record this program as the owner in the folder's ledger. From then on file names contain the program's epoch.

        Returns False if another program has claimed the folder with this epoch.
        """
        target = self._prepared()
        self._run, self._resumed = claim.program.run, (claim.resumed, claim.resumed_run)
        self._was_lost = self._was_lost or not self._has_folder()  # the ledger makes it again
        ledger = Ledger(self._folder, target.run, claim.home, claim.program, self._resumed)
        is_claimed = ledger.claim(claim.epoch)
        if is_claimed:
            self._target, self._ledger = dataclasses.replace(target, owner=claim.epoch), ledger
        return is_claimed

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint after `checkpoint` for which a program began to call the function, or 0, from the
        folder's ledger."""
        return Ledger(self._folder, self._prepared().run, None, Program.this("")).published_after(checkpoint, run)

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer of one subtask's files."""
        return FileWriter(self._prepared(), context.attempt, context.subtask)

    def commit(self, pending: Sequence[Sequence[str] | None], checkpoint: int = 0) -> None:
        """Call the function, if there are rows, once for each checkpoint. Raises UserFunctionError, NotEnoughSlots,
        ResultsGone."""
        names = _names(pending)
        self._owned().check()
        if names and names != self._handed_over:
            self._owned().show(checkpoint)
            self._is_kept = self._is_kept or checkpoint > 0
            if not self._is_there(names):
                raise ResultsGone(
                    f"{self._path(names[0])}: is gone; spill_dir must be a folder that all machines share"
                )
            self._hand_over(names, checkpoint)

    def finish(self) -> None:
        """Remove the files. Keep the folder if a job may resume from a checkpoint that names some of the files.

        A job that finds the folder without the files knows that the function got the rows.
        """
        self._empty(keep=())

    def rollback(self, pending: Sequence[Sequence[str] | None], checkpoint: int) -> None:
        """Call the function with the rows of the checkpoint, unless it already got them. Remove all other files.

        Raises ResultsGone if the checkpoint has rows and the folder is gone: then nothing shows whether the function
        got the rows.
        """
        names = _names(pending)
        self._owned().check()
        if names and self._is_there(names):
            self._owned().show(checkpoint)
            self._hand_over(names, checkpoint)
        self._remove(self._files())
        self._make_folder()
        self._was_lost = False

    def abort(self, pending: Sequence[Sequence[str] | None] = (), checkpoint: int = 0) -> None:
        """Remove all files except the checkpoint's files: a job that resumes calls the function with them."""
        if self._target is None:
            return
        if self._ledger is not None:
            self._ledger.check()
            self._is_kept = checkpoint > 0
            self._empty(keep=_names(pending))
        elif not self._is_kept:
            self._remove_folder()
        self._target = self._ledger = None

    def _aim(self, folder: str, run: str, schema: pa.Schema) -> None:
        """Set the folder, run and schema that the sink writes with, and epoch 0. Raises PlanError, SinkError."""
        self._target = self._ledger = None
        self._columns = spark_columns("foreach_dataframe", schema)
        check_writable(_FORMAT, schema)
        with writing(folder):
            filesystem, root = locate(folder)
        self._folder, self._is_kept = folder, False
        self._target = Target(
            filesystem=filesystem,
            root=root,
            run=run,
            owner=0,
            format=_FORMAT,
            schema=schema,
            partition_by=(),
            prefix="part",
        )

    def _make_folder(self) -> None:
        target = self._prepared()
        with writing(target.root):
            make_private(target.filesystem, target.root)

    def _is_there(self, names: Sequence[str]) -> bool:
        """Return whether the function must still get these files. If the first file is gone, the function has got all
        of them.

        Raises ResultsGone if the folder is gone, or if another file is gone while the first file exists.
        """
        target = self._prepared()
        paths = [self._path(name) for name in names]
        with writing(target.root):
            files = target.filesystem.get_file_info(paths)
        lost = [file.path for file in files if file.type != fs.FileType.File]
        if self._was_lost or not self._has_folder() or (lost and lost[0] != paths[0]):
            raise ResultsGone(
                f"{(lost or [target.root])[0]}: is gone, and with it rows that foreach_dataframe must still get; put "
                "it back, or start without the checkpoint"
            )
        return not lost

    def _has_folder(self) -> bool:
        target = self._prepared()
        with writing(target.root):
            return bool(target.filesystem.get_file_info(target.root).type == fs.FileType.Directory)

    def _hand_over(self, names: Sequence[str], checkpoint: int) -> None:
        """Call the function with the rows of these files, and remove the files.

        An older program, which was paused inside the function, may remove the files during this call. The function then
        got the rows in the older program, and this method ignores an error of its own call.
        """
        self._require_slot()
        paths = [posixpath.join(self._folder, name) for name in names]
        arguments = (checkpoint, self._run_of(checkpoint)) if self._takes_run else (checkpoint,)
        try:
            call_user(self._fn, read_files(self._spark, paths, self._columns), *arguments)
        except Exception:
            if self._is_there(names):
                raise
        self._handed_over = list(names)
        self._remove(map(self._path, names))

    def _run_of(self, checkpoint: int) -> str:
        """Return the run that took the checkpoint."""
        resumed, run = self._resumed
        return run if checkpoint == resumed else self._run

    def _require_slot(self) -> None:
        """Raise NotEnoughSlots if no slot is free, because Spark jobs of the function would then wait forever."""
        context = context_of(self._spark)
        there, held = count_slots(context), sum(slots_held(context))
        if held >= there:
            raise NotEnoughSlots(
                f"the Spark jobs of foreach_dataframe need a task slot, and TaskManagers hold {held} of the {there} on "
                f"{context.master}; give the session more cores, or run fewer jobs there at a time"
            )

    def _empty(self, keep: Sequence[str]) -> None:
        """Remove the run's files, except for files with a name in `keep`. Remove the folder if no job may need it."""
        keep_paths = set(map(self._path, keep))
        self._remove(path for path in self._files() if path not in keep_paths)
        if not self._is_kept:
            if self._ledger is not None:
                self._ledger.remove()
            self._remove_folder()

    def _remove_folder(self) -> None:
        """Remove the folder, unless it has files of other runs."""
        target = self._prepared()
        self._unlock()
        with writing(target.root):
            remove_if_empty(target.filesystem, target.root)

    def _unlock(self) -> None:
        if (place := local_place(self._folder)) is not None:
            unlock(place)

    def _files(self) -> list[str]:
        """List the paths of the run's files."""
        target = self._prepared()
        with writing(target.root):
            entries = listing(target.filesystem, target.root)
        return [e.path for e in entries if e.type == fs.FileType.File and target.may_remove(e.base_name)]

    def _remove(self, paths: Iterator[str] | Sequence[str]) -> None:
        filesystem = self._prepared().filesystem
        for path in paths:
            with writing(path), suppress(FileNotFoundError):
                filesystem.delete_file(path)

    def _path(self, name: Any) -> str:
        return self._prepared().path(name)

    def _owned(self) -> Ledger:
        assert self._ledger is not None, f"foreach_dataframe: the rows in {self._folder} were not claimed"
        return self._ledger

    def _prepared(self) -> Target:
        assert self._target is not None, "foreach_dataframe: the sink was not prepared, or was aborted"
        return self._target


_FORMAT = ParquetFormat()


def _takes_run(fn: DataFrameFunction) -> bool:
    """Return whether the function's third parameter takes the run: its name is `run`, or it has no default."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return any(third.default is third.empty or third.name == "run" for third in positional[2:3])


def _check_parameters(fn: DataFrameFunction, count: int) -> None:
    """Raise PlanError if the function cannot be called with `count` positional arguments."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        raise PlanError(
            "foreach_dataframe: fn gets (spark_df, checkpoint_id), or (spark_df, checkpoint_id, run), and "
            f"{function_name(fn)} takes {signature}"
        ) from None


def _names(pending: Sequence[Sequence[str] | None]) -> list[str]:
    """Return the names of all pending files, sorted, so that the first name is the same in each program."""
    return sorted(name for names in pending for name in names or ())
