"""The driver's part of table sinks: what Delta Lake and Iceberg have in common.

The files of a checkpoint are added to the table in one commit of the table, with the checkpoint's number. So a commit
that is repeated adds nothing. A ledger in the table's folder records the owners of the results, as for file sinks.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.connectors.file_sinks.file_formats import ParquetFormat
from headgate.connectors.file_sinks.file_writer import Target
from headgate.connectors.file_sinks.ledger import FOLDER, Ledger
from headgate.connectors.tables.data_file_writer import DataFileWriter
from headgate.connectors.tables.file_columns import check_files, columns_digest
from headgate.connectors.tables.iceberg_partitions import IcebergPartition
from headgate.connectors.tables.table_columns import NewColumns
from headgate.errors import ResultsGone, SinkError
from headgate.filesystems import WRITABLE, locate
from headgate.ownership import Program

#: How often a commit looks at the table again after another writer was faster.
ATTEMPTS: Final = 20
TableMode = Literal["append", "error"]
_RUN: Final = re.compile("[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The commit of one checkpoint: the sink's run, the owner's epoch, the checkpoint, and the run that took it."""

    run: str
    owner: int
    checkpoint: int
    taken_by: str


class TableSink(Sink):
    """A sink that adds data files to a table. A subclass knows the format of the table."""

    exactly_once = True
    shows_at_commit = True
    takes_upserts = False
    #: Whether readers of a column that got a wider type find the values of older files.
    widens = False

    def __init__(self, what: str, mode: TableMode, new_columns: NewColumns, file_bytes: int) -> None:
        self._what = what
        self._mode = mode
        self._file_bytes = file_bytes
        self._new_columns = new_columns
        self._schema: pa.Schema | None = None
        self._target: Target | None = None
        self._columns: pa.Schema | None = None
        #: What divides the rows among files that keep all columns.
        self._partitions: Sequence[IcebergPartition] = ()
        self._root = self._run = ""
        self._ledger: Ledger | None = None
        self._program = ""
        self._resumed = (0, "")
        self._resumes = False

    # --- what a format does

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Check that the rows fit into the table, or that it can be created. Changes nothing. Raises SinkError, and
        PlanError for rows that do not fit."""

    @abstractmethod
    def has_files(self) -> bool:
        """Return whether there is a table, and it has files. Raises SinkError."""

    @abstractmethod
    def opened(self, schema: pa.Schema) -> tuple[str, pa.Schema, Sequence[str]]:
        """Create the table if it is not there, and add new columns if the user wants that.

        Returns the path or URI of its folder, its columns, and the columns that make folders, and are not in
        the files.
        """

    @abstractmethod
    def fence(self, epoch: Epoch) -> None:
        """Record the owner in the table, so that an older program cannot commit any more. Raises SinkError."""

    @abstractmethod
    def add(self, epoch: Epoch, files: Sequence[dict[str, Any]]) -> None:
        """Add files to the table in one commit, unless the table has this epoch. Raises SinkError and Superseded."""

    # --- the sink

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check the table and the columns. The table is created, or changed, when the job starts."""
        if self._mode == "error" and self.has_files():
            raise SinkError(f'{self._what}: the table has rows; choose another, empty it, or mode="append" adds rows')
        self._prepare(schema)

    def _prepare(self, schema: pa.Schema) -> None:
        self.check(schema)
        self._schema, self._run, self._resumes = schema, uuid.uuid4().hex[:12], False
        self._target = self._ledger = None

    def prepared(self) -> Any:
        """Return the table and the run."""
        return {"table": self._what, "run": self._run}

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Continue a run of another program. Raises SinkError if that program wrote to another table."""
        match prepared:
            case {"table": self._what, "run": str(run)} if _RUN.fullmatch(run):
                self._prepare(schema)
                self._run, self._resumes = run, True
            case _:
                table = prepared.get("table") if isinstance(prepared, dict) else None
                raise SinkError(f"{self._what}: the rows up to the checkpoint are in {table}; give that table")

    def check_place(self, location: str) -> None:
        """Raise SinkError if the sink cannot own the results in a folder, which is a path or URI."""
        scheme, separator, _ = location.partition("://")
        if separator and scheme not in WRITABLE:
            raise SinkError(
                f"{self._what}: is in {scheme}://; the sink writes only to local paths and to "
                f"{', '.join(f'{name}://' for name in WRITABLE)}, where two programs cannot both own the results"
            )

    def _open(self) -> None:
        """Create or change the table if needed, and find out where its files go."""
        if self._target is None:
            assert self._schema is not None
            self._root, self._columns, folders = self.opened(self._schema)
            filesystem, inside = locate(self._root)
            self._target = Target(
                filesystem=filesystem, root=inside.rstrip("/"), run=self._run, owner=0, format=ParquetFormat(),
                schema=self._columns, partition_by=tuple(folders), prefix="part", file_bytes=self._file_bytes,
            )  # fmt: skip

    def newest_owner(self) -> int:
        """Return the epoch of the last owner in the table's ledger."""
        if not self._resumes:
            return 0
        self._open()
        return Ledger(self._root, self._run, None, Program.this("")).newest_owner()

    def claim(self, claim: Claim) -> bool:
        """Claim the results in the ledger, and in the table itself if an older program may still commit."""
        self._open()
        assert self._target is not None
        ledger = Ledger(self._root, self._run, claim.home, claim.program, (claim.resumed, claim.resumed_run))
        if not ledger.claim(claim.epoch):
            return False
        self._target, self._ledger = dataclasses.replace(self._target, owner=claim.epoch), ledger
        self._program, self._resumed = claim.program.run, (claim.resumed, claim.resumed_run)
        if self._resumes:
            self.fence(self._epoch(0))
        return True

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint in the table that `checkpoint` does not contain. Raises ResultsGone."""
        if not self._resumes:  # a run that no checkpoint names has published nothing
            return 0
        self._open()
        assert self._target is not None
        ledger = Ledger(self._root, self._run, None, Program.this(""))
        if not ledger.has_owner_besides(self._target.owner):
            raise ResultsGone(
                f"{self._what}: {FOLDER}/{self._run} is gone from the table's folder, so the sink cannot tell which "
                "rows are in the table. Put it back, or start without resume"
            )
        return ledger.published_after(checkpoint, run)

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer of one subtask's data files."""
        if self._target is None or self._columns is None:
            raise SinkError(f"{self._what}: the results were not claimed: call claim() first")
        writer = DataFileWriter(self._target, self._columns, context.attempt, context.subtask)
        writer.partitions = self._partitions
        folders = self._target.partition_by or [partition.name for partition in self._partitions]
        writer.digest = columns_digest(self._columns, folders)
        return writer

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Add the files to the table, and record the checkpoint in the same commit."""
        ledger, target = self._owned()
        ledger.check()
        if checkpoint:
            ledger.show(checkpoint)
        files = [file for files in pending for file in files or ()]
        for file in files:
            target.path(file.get("path") if isinstance(file, dict) else None)  # refuses a path of a forged checkpoint
        if files:
            self.add(self._epoch(checkpoint), files)

    def check_files(self, files: Sequence[dict[str, Any]], columns: pa.Schema, folders: Sequence[str]) -> None:
        """Raise SinkError if the table, which has these columns now, no longer takes the files."""
        if files:
            check_files(self._what, self._owned()[1], files, columns, folders, widens=self.widens)

    def finish(self) -> None:
        """Remove the ledger, unless a checkpoint was committed: a program may resume from it."""
        if self._ledger is not None:
            self._ledger.check()
            self._ledger.close(keep=False)
            self._ledger = None

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Commit the files of the checkpoint. Later files belong to no table."""
        if checkpoint:
            self.commit(pending, checkpoint)
        else:
            self._owned()[0].check()

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """Commit the files of the last checkpoint. Without a checkpoint, remove the ledger."""
        if self._ledger is not None:
            if checkpoint:
                self.commit(pending, checkpoint)
            self._ledger.check()
            if not checkpoint:
                self._ledger.remove()
        self._target = self._ledger = None

    def _epoch(self, checkpoint: int) -> Epoch:
        taken_by = self._resumed[1] if checkpoint and checkpoint == self._resumed[0] else self._program
        return Epoch(run=self._run, owner=self._owned()[1].owner, checkpoint=checkpoint, taken_by=taken_by)

    def _owned(self) -> tuple[Ledger, Target]:
        if self._ledger is None or self._target is None:
            raise SinkError(f"{self._what}: the results were not claimed: call claim() first")
        return self._ledger, self._target
