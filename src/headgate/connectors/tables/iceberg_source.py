"""The source of an Iceberg table: the rows of one snapshot, then those that each later snapshot adds.

The position `[snapshot, phase, file, row]` names the next row. In the phase `_WHOLE`, `file` counts all files of the
snapshot; in `_ADDED`, the files that the snapshot adds. Files are in the order of their paths. In the phase `_DONE`,
the snapshot is read, and the next one may not exist yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.connectors.tables.followed_table import FollowedTable
from headgate.connectors.tables.iceberg_catalog import IcebergCatalog, iceberg_library
from headgate.connectors.tables.iceberg_columns import FileColumns, IcebergFile
from headgate.connectors.tables.open_file import OpenFile, needed_names
from headgate.connectors.tables.table_columns import ReadNewColumns, chosen_columns, new_columns_error
from headgate.errors import SourceError

#: The phases of a position: the files that a snapshot adds, all its files, and none any more.
_ADDED, _WHOLE, _DONE = 0, 1, 2
#: Stands for the snapshot of a table without one. Iceberg's IDs are above 0.
_NO_SNAPSHOT: Final = 0


class IcebergSource(FollowedTable["_Poll"]):
    """A source of the rows of an Iceberg table; see `hg.sources.iceberg`."""

    def __init__(self, table: str, catalog: str, *, start: int | None, batch_rows: int, interval: float | str,
                 bounded: bool, columns: Sequence[str] | None, new_columns: ReadNewColumns,
                 options: Mapping[str, str]) -> None:  # fmt: skip
        poll = _Poll(
            table, catalog, start=start, batch_rows=batch_rows, bounded=bounded, columns=columns,
            new_columns=new_columns, options=options,
        )  # fmt: skip
        super().__init__(poll, interval=interval, bounded=bounded)

    def check_place(self, place: Any) -> None:
        """Raise ValueError if `place` is neither None nor four numbers."""
        match place:
            case None | [int(), 0 | 1 | 2, int(), int()] if place is None or min(place) >= 0:
                pass
            case _:
                raise ValueError(f"the position {place!r} is not a snapshot, 0 to 2, a file and a row")


class _Poll:
    """The function that the source asks for rows. It keeps the files of one snapshot, and one open file."""

    def __init__(self, name: str, catalog: str, *, start: int | None, batch_rows: int, bounded: bool,
                 columns: Sequence[str] | None, new_columns: ReadNewColumns,
                 options: Mapping[str, str]) -> None:  # fmt: skip
        self._name = name
        self.what = f"iceberg: {catalog}.{name}"
        self._catalog = IcebergCatalog(catalog, options, self.what, SourceError)
        self._start = start
        self._bounded = bounded
        self._new_columns = new_columns
        #: The table as it was when the source last looked for a newer snapshot.
        self._table: Any = None
        #: The snapshot, the phase, and its files.
        self._files: tuple[int, int, Sequence[IcebergFile]] | None = None
        self._file = OpenFile(batch_rows)
        #: The columns of the open file.
        self._found: FileColumns | None = None
        self.needed: Collection[str] | None = None
        with self._catalog.errors():
            table = self._newest()
            schema = table.schema()
            self.table_id = str(table.metadata.table_uuid)
            #: The highest number of a column so far. New columns have higher numbers, and dropped ones lower ones.
            self._highest_id = int(table.metadata.last_column_id)
            self.columns = chosen_columns(self.what, schema.as_arrow(), columns)
            #: The number of each column, which does not change when the column gets another name.
            self._ids = {field.name: field.field_id for field in schema.fields if field.name in self.columns.names}

    def __call__(self, split: str, position: Any) -> tuple[pa.RecordBatch, Any] | None:
        """Return the rows after a position, and the position after them. Returns None at the end of a bounded source.

        An empty batch means that the table has no newer snapshot.
        """
        with self._catalog.errors():
            if self._table is None:
                self._table = self._newest()
            snapshot, phase, file, row = self._first(self._table) if position is None else position
            while True:
                if phase == _DONE:
                    self._table = self._newest()
                    following = self._following(self._table, snapshot)
                    if following is None:
                        break
                    snapshot, phase, file, row = following, _ADDED, 0, 0
                files = self._files_of(self._table, snapshot, phase)
                while file < len(files):
                    if (batch := self._next(files[file], file, row)) is not None:
                        return batch, [snapshot, phase, file, row + batch.num_rows]
                    file, row = file + 1, 0
                phase, file, row = _DONE, 0, 0
        if self._bounded:
            return None
        return pa.RecordBatch.from_pylist([], self.columns), [snapshot, _DONE, 0, 0]

    def _first(self, table: Any) -> tuple[int, int, int, int]:
        if self._start is not None:
            if self._start != _NO_SNAPSHOT and table.snapshot_by_id(self._start) is None:
                raise SourceError(f"{self.what}: there is no snapshot {self._start}; give start= the ID of one")
            return self._start, _DONE, 0, 0
        newest = table.current_snapshot()
        return (_NO_SNAPSHOT, _DONE, 0, 0) if newest is None else (newest.snapshot_id, _WHOLE, 0, 0)

    def _following(self, table: Any, snapshot: int) -> int | None:
        """Return the snapshot after `snapshot`, or None if there is no newer one. Raises SourceError if the table's
        history does not have it."""
        newest = table.current_snapshot()
        if (_NO_SNAPSHOT if newest is None else newest.snapshot_id) == snapshot:
            return None
        history = [] if newest is None else iceberg_library("table.snapshots").ancestors_of(newest, table.metadata)
        parents = {(each.parent_snapshot_id or _NO_SNAPSHOT): int(each.snapshot_id) for each in history}
        if snapshot not in parents:
            raise SourceError(
                f"{self.what}: the snapshot after {snapshot} is not in the table's history: it has expired, or the "
                "table was rolled back or made anew; start again without resume"
            )
        return parents[snapshot]

    def _files_of(self, table: Any, snapshot: int, phase: int) -> Sequence[IcebergFile]:
        if self._files is None or self._files[:2] != (snapshot, phase):
            self._check_names(table, snapshot)
            found = self._all_files(table, snapshot) if phase == _WHOLE else self._added(table, snapshot)
            self._files = snapshot, phase, sorted(found, key=lambda file: file.uri)
            self._file.close()
        return self._files[2]

    def _check_names(self, table: Any, number: int) -> None:
        """Raise SourceError if a snapshot has new columns that the source refuses."""
        snapshot = table.snapshot_by_id(number)
        if self._new_columns == "ignore" or snapshot is None or snapshot.schema_id is None:
            return
        fields = table.schemas()[snapshot.schema_id].fields
        if added := [field.name for field in fields if field.field_id > self._highest_id]:
            raise new_columns_error(self.what, f"snapshot {number}", added)

    def _all_files(self, table: Any, snapshot: int) -> Iterator[IcebergFile]:
        if table.snapshot_by_id(snapshot) is None:
            raise SourceError(f"{self.what}: snapshot {snapshot} has expired; start again without resume")
        for task in table.scan(snapshot_id=snapshot).plan_files():
            if task.delete_files:
                raise SourceError(
                    f"{self.what}: snapshot {snapshot} has files with deleted rows, which the source cannot read; "
                    "rewrite the table's data files, or start after it"
                )
            yield self._checked(table, task.file)

    def _added(self, table: Any, number: int) -> Iterator[IcebergFile]:
        """Yield the files that a snapshot adds. Raises SourceError if it changes or removes rows."""
        snapshot = table.snapshot_by_id(number)
        operation = iceberg_library("table.snapshots").Operation
        if snapshot.summary is not None and snapshot.summary.operation == operation.REPLACE:
            return  # it only rewrites files
        if snapshot.summary is None or snapshot.summary.operation != operation.APPEND:
            raise SourceError(
                f"{self.what}: snapshot {number} removes or changes rows; the source follows tables that only get new "
                f"rows. Start again without resume, or leave out this snapshot with start={number}"
            )
        added = iceberg_library("manifest").ManifestEntryStatus.ADDED
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == number:
                for entry in manifest.fetch_manifest_entry(table.io):
                    if entry.status == added:
                        yield self._checked(table, entry.data_file)

    def _checked(self, table: Any, file: Any) -> IcebergFile:
        if file.file_format != iceberg_library("manifest").FileFormat.PARQUET:
            raise SourceError(f"{self.what}: {file.file_path} is not a Parquet file; the source reads no others")
        return IcebergFile.of(table, file)

    def _next(self, file: IcebergFile, number: int, row: int) -> pa.RecordBatch | None:
        """Return the rows of a file from `row` on, at most `batch_rows`, or None at its end."""
        batch = self._file.next(number, row, partial(self._opened, file))
        if batch is None:
            return None
        columns = [self._column(column, batch, file) for column in self.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.columns)

    def _column(self, column: pa.Field, batch: pa.RecordBatch, file: IcebergFile) -> pa.Array:
        """Return a column of a file: from its rows, or from its partition. A column that it lacks is null."""
        assert self._found is not None
        name = self._found.names.get(column.name)
        if name is not None and name in batch.schema.names:
            return self._found.named(batch.column(name), name, column.type).cast(column.type)
        value = file.values.get(self._ids[column.name]) if name is None else None
        if value is None:
            return pa.nulls(batch.num_rows, column.type)
        return pa.repeat(pa.scalar(value, column.type), batch.num_rows)

    def _opened(self, file: IcebergFile) -> tuple[pq.ParquetFile, Sequence[str]]:
        parquet = pq.ParquetFile(self._table.io.new_input(file.uri).open())
        self._found = FileColumns(parquet.schema_arrow, self._table.metadata.name_mapping(), self._ids)
        names = {in_file: name for name, in_file in self._found.names.items()}
        return parquet, needed_names([*names], lambda name: self.needed is None or names[name] in self.needed)

    def close(self) -> None:
        """Close the file that is open."""
        self._file.close()

    def _newest(self) -> Any:
        return self._catalog.connected().load_table(self._name)

    def __getstate__(self) -> dict[str, Any]:
        file = OpenFile(self._file.batch_rows)
        return {**self.__dict__, "_table": None, "_files": None, "_file": file, "_found": None}
