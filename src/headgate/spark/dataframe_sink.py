"""Rows handed to a function on the driver as Spark DataFrames: subtasks write files, the frame reads them.

The files of a checkpoint are removed once the function has returned, the one whose name is the first of them before
the others: so that one tells, also to another program, whether the function is still to be called.
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
from headgate.operators.operator import call_user
from headgate.ownership import Program
from headgate.spark.dataframe import is_ours, local_place, new_folder, read_files, spark_columns
from headgate.spark.scratch import hold, unlock
from headgate.spark.session import context_of
from headgate.spark.slots import count_slots, slots_held

DataFrameFunction = Callable[[DataFrame, int], object] | Callable[[DataFrame, int, str], object]


class ForeachDataframeSink(Sink):
    """See `headgate.api.sinks.foreach_dataframe`."""

    shows_at_commit = True
    slots = 1

    def __init__(self, fn: DataFrameFunction) -> None:
        self._fn = fn
        self._takes_run = _takes_run(fn)
        self._spark: SparkSession
        self._spill_dir: str | None = None
        self._folder = ""
        self._columns = StructType()
        self._target: Target | None = None
        self._ledger: Ledger | None = None
        self._run = ""
        self._was_lost = False
        #: The checkpoint that the job was resumed from, and the run that took it.
        self._resumed = (0, "")
        #: A job may go on from a checkpoint that has rows in the folder.
        self._is_kept = False

    def __getstate__(self) -> dict[str, Any]:
        """Only what writers need travels."""
        return {"_target": self._target}

    def configure(self, config: Config, spark: Any) -> None:
        """Raises PlanError without Spark."""
        if spark is None:
            raise PlanError("foreach_dataframe needs Spark: StreamEnvironment(spark); without it use for_each_batch")
        self._spark, self._spill_dir = spark, config.spill_dir

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Make a folder. Raises PlanError for types that Spark does not have, ConfigError where there can be none."""
        self._aim(new_folder(self._spark, self._spill_dir), uuid.uuid4().hex[:8], schema)
        self._make_folder()
        if (place := local_place(self._folder)) is not None:
            hold(place)

    def prepared(self) -> Any:
        """The folder, and the run, by which its files are known. A checkpoint names the folder from now on, which so
        outlives this program."""
        self._let_go()
        return {"folder": self._folder, "run": self._prepared().run}

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Go on in the folder of another program, which may be gone if nothing in it is wanted. Raises SinkError for
        one that no such sink made."""
        folder = prepared["folder"]
        if not is_ours(folder):
            raise SinkError(f"{folder}: is no folder that foreach_dataframe made; start from another checkpoint")
        self._aim(folder, prepared["run"], schema)
        self._is_kept = True

    def newest_owner(self) -> int:
        """By the ledger in the folder."""
        return Ledger(self._folder, self._prepared().run, None, Program.this("")).newest_owner()

    def claim(self, claim: Claim) -> bool:
        """In the ledger. Files carry the epoch from now on."""
        target = self._prepared()
        self._run, self._resumed = claim.program.run, (claim.resumed, claim.resumed_run)
        self._was_lost = self._was_lost or not self._has_folder()  # the ledger makes it anew
        ledger = Ledger(self._folder, target.run, claim.home, claim.program, self._resumed)
        is_claimed = ledger.claim(claim.epoch)
        if is_claimed:
            self._target, self._ledger = dataclasses.replace(target, owner=claim.epoch), ledger
        return is_claimed

    def published_after(self, checkpoint: int, run: str) -> int:
        """By the ledger in the folder."""
        return Ledger(self._folder, self._prepared().run, None, Program.this("")).published_after(checkpoint, run)

    def writer(self, context: WriterContext) -> SinkWriter:
        """Writes one subtask's files."""
        return FileWriter(self._prepared(), context.attempt, context.subtask)

    def commit(self, pending: Sequence[Sequence[str] | None], checkpoint: int = 0) -> None:
        """Call the function, if there are rows. Raises UserFunctionError, NotEnoughSlots, ResultsGone."""
        names = _names(pending)
        self._owned().check()
        if names:
            self._owned().show(checkpoint)
            self._is_kept = self._is_kept or checkpoint > 0
            if not self._is_there(names):
                raise ResultsGone(
                    f"{self._path(names[0])}: is gone; spill_dir must be a folder that all machines share"
                )
            self._hand_over(names, checkpoint)

    def finish(self) -> None:
        """Remove the files. A job may go on from a checkpoint that names some: that the folder is there tells it that
        they were handed over, and not lost."""
        self._empty(keep=())

    def rollback(self, pending: Sequence[Sequence[str] | None], checkpoint: int) -> None:
        """Call the function with what belongs to the checkpoint, unless that is done; remove all other files. Raises
        SinkError if it cannot be told, because the folder is gone."""
        names = _names(pending)
        self._owned().check()
        if names and self._is_there(names):
            self._owned().show(checkpoint)
            self._hand_over(names, checkpoint)
        self._remove(self._files())
        self._make_folder()
        self._was_lost = False

    def abort(self, pending: Sequence[Sequence[str] | None] = (), checkpoint: int = 0) -> None:
        """Keep what belongs to the checkpoint and was not handed over: a job that goes on from it will do that."""
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
        """Whether these files are still to be handed over. Raises SinkError if only some of them are there."""
        target = self._prepared()
        paths = [self._path(name) for name in names]
        with writing(target.root):
            files = target.filesystem.get_file_info(paths)
        lost = [file.path for file in files if file.type != fs.FileType.File]
        if self._was_lost or not self._has_folder() or (lost and lost[0] != paths[0]):
            raise ResultsGone(
                f"{(lost or [target.root])[0]}: is gone, and with it rows that foreach_dataframe is to get"
            )
        return not lost

    def _has_folder(self) -> bool:
        target = self._prepared()
        with writing(target.root):
            return bool(target.filesystem.get_file_info(target.root).type == fs.FileType.Directory)

    def _hand_over(self, names: Sequence[str], checkpoint: int) -> None:
        self._require_slot()
        paths = [posixpath.join(self._folder, name) for name in names]
        arguments = (checkpoint, self._run_of(checkpoint)) if self._takes_run else (checkpoint,)
        call_user(self._fn, read_files(self._spark, paths, self._columns), *arguments)
        self._remove(map(self._path, names))

    def _run_of(self, checkpoint: int) -> str:
        """The run that took the checkpoint."""
        resumed, run = self._resumed
        return run if checkpoint == resumed else self._run

    def _require_slot(self) -> None:
        """Without a free slot the function's Spark jobs would wait for ever. Raises NotEnoughSlots."""
        context = context_of(self._spark)
        there, held = count_slots(context), sum(slots_held(context))
        if held >= there:
            raise NotEnoughSlots(
                f"the Spark jobs of foreach_dataframe need a task slot, and TaskManagers hold {held} of the {there} on "
                f"{context.master}; give the session more cores, or run fewer jobs there at a time"
            )

    def _empty(self, keep: Sequence[str]) -> None:
        kept = set(map(self._path, keep))
        self._remove(path for path in self._files() if path not in kept)
        if not self._is_kept:
            if self._ledger is not None:
                self._ledger.remove()
            self._remove_folder()

    def _remove_folder(self) -> None:
        """Unless somebody else's files are in it."""
        target = self._prepared()
        self._let_go()
        with writing(target.root):
            remove_if_empty(target.filesystem, target.root)

    def _let_go(self) -> None:
        if (place := local_place(self._folder)) is not None:
            unlock(place)

    def _files(self) -> list[str]:
        """Those of this run."""
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
        assert self._ledger is not None
        return self._ledger

    def _prepared(self) -> Target:
        assert self._target is not None
        return self._target


_FORMAT = ParquetFormat()


def _takes_run(fn: DataFrameFunction) -> bool:
    """Whether it has a third parameter for the run. Of any other name and with a default it is for something else."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some functions in C say nothing
        return False
    by_place = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return any(each.default is each.empty or each.name == "run" for each in by_place[2:3])


def _names(pending: Sequence[Sequence[str] | None]) -> list[str]:
    return sorted(name for names in pending for name in names or ())
