"""The source of a Delta table: the rows of one version, then those that each later version adds.

The position `[version, is_snapshot, file, row]` names the next row. If `is_snapshot` is 1, `file` counts all files of
the version, in the order of their paths. If it is 0, `file` counts the files that the version adds, in the order of the
log; the version may not exist yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.connectors.tables.delta_sink import delta_error, delta_library
from headgate.connectors.tables.followed_table import FollowedTable
from headgate.connectors.tables.open_file import OpenFile, needed_names
from headgate.connectors.tables.table_columns import ReadNewColumns, chosen_columns, new_columns_error
from headgate.errors import SourceError
from headgate.filesystems import locate

#: How a text of a time ends that says its time zone.
_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")


class DeltaSource(FollowedTable["_Poll"]):
    """A source of the rows of a Delta table; see `hg.sources.delta`."""

    def __init__(self, uri: str, *, start: int | None, batch_rows: int, interval: float | str, bounded: bool,
                 columns: Sequence[str] | None, new_columns: ReadNewColumns,
                 storage_options: Mapping[str, str]) -> None:  # fmt: skip
        poll = _Poll(
            uri, start=start, batch_rows=batch_rows, bounded=bounded, columns=columns,
            new_columns=new_columns, storage_options=storage_options,
        )  # fmt: skip
        super().__init__(poll, interval=interval, bounded=bounded)

    def check_place(self, place: Any) -> None:
        """Raise ValueError if `place` is neither None nor four numbers."""
        match place:
            case None | [int(), 0 | 1, int(), int()] if place is None or min(place) >= 0:
                pass
            case _:
                raise ValueError(f"the position {place!r} is not a version, 0 or 1, a file and a row")


@dataclass(frozen=True, slots=True)
class _File:
    """A data file: its path below the table's folder, and the values of its partition by column."""

    path: str
    values: Mapping[str, Any]


class _Poll:
    """The function that the source asks for rows. It keeps the files of one version, and one open file."""

    def __init__(self, uri: str, *, start: int | None, batch_rows: int, bounded: bool,
                 columns: Sequence[str] | None, new_columns: ReadNewColumns,
                 storage_options: Mapping[str, str]) -> None:  # fmt: skip
        self._uri = uri
        self.what = f"delta: {uri}"
        self._start = start
        self._bounded = bounded
        self._new_columns = new_columns
        self._storage_options = dict(storage_options)
        #: The version, whether it is a snapshot, and its files.
        self._files: tuple[int, int, Sequence[_File]] | None = None
        self._file = OpenFile(batch_rows)
        self.needed: Collection[str] | None = None
        with self._errors():
            table = self._table()
            #: The version whose columns are known. Only later versions can have new columns.
            self._made_at = int(table.version())
            self.table_id = str(table.metadata().id)
            schema = pa.schema(table.schema().to_arrow())
            self._known = tuple(schema.names)
            self.columns = chosen_columns(self.what, schema, columns)
            if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
                raise SourceError(f"{self.what}: the table has mapped columns, which the source cannot read")

    def __call__(self, split: str, position: Any) -> tuple[pa.RecordBatch, Any] | None:
        """Return the rows after a position, and the position after them. Returns None at the end of a bounded source.

        An empty batch means that the table has no newer version.
        """
        with self._errors():
            if self._files is None:
                position = self._begun(position)
            version, is_snapshot, file, row = position
            while is_snapshot or self._is_listed(version) or self._has(version):
                files = self._files_of(version, is_snapshot)
                while file < len(files):
                    if (batch := self._next(files[file], file, row)) is not None:
                        return batch, [version, is_snapshot, file, row + batch.num_rows]
                    file, row = file + 1, 0
                version, is_snapshot, file, row = version + 1, 0, 0, 0
            self._check_log(version - 1)
        if self._bounded:
            return None
        return pa.RecordBatch.from_pylist([], self.columns), [version, is_snapshot, file, row]

    def _begun(self, position: Any) -> Any:
        """Return where to begin; None becomes the place of `start`. Raises SourceError if it is not in the table."""
        newest = self._table().version()
        if position is None:
            position = [newest, 1, 0, 0] if self._start is None else [self._start + 1, 0, 0, 0]
        following = position[0] + position[1]  # the first version whose file of the log is needed
        if following > newest + 1:
            raise SourceError(
                f"{self.what}: there is no version {following - 1}, the newest is {newest}; was the table replaced?"
            )
        if following <= newest and not self._has(following):
            raise SourceError(f"{self.what}: the log no longer has version {following}; start again without resume")
        return position

    def _is_listed(self, version: int) -> bool:
        return self._files is not None and self._files[:2] == (version, 0)

    def _files_of(self, version: int, is_snapshot: int) -> Sequence[_File]:
        if self._files is None or self._files[:2] != (version, is_snapshot):
            files = self._snapshot(version) if is_snapshot else list(self._added(version))
            self._files = version, is_snapshot, files
            self._file.close()
        return self._files[2]

    def _snapshot(self, version: int) -> list[_File]:
        table = self._table(version)
        if pa.table(table.deletion_vectors()).num_rows:
            raise self._has_deletion_vectors(version)
        self._check_names(version, (field.name for field in table.schema().fields))
        names = table.metadata().partition_columns
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files = [_File(row["path"], {name: row[f"partition.{name}"] for name in names}) for row in rows]
        return sorted(files, key=lambda file: file.path)

    def _added(self, version: int) -> Iterator[_File]:
        """Yield the files that a version adds.

        Raises SourceError if it changes or removes rows, or has new columns that the source refuses.
        """
        filesystem, path = self._log(version)
        with filesystem.open_input_stream(path) as stream:
            actions = [json.loads(line) for line in stream.read().splitlines() if line.strip()]
        for action in actions:
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                self._check_names(version, (field["name"] for field in fields))
            if "remove" in action and action["remove"].get("dataChange", True):
                raise SourceError(
                    f"{self.what}: version {version} removes or changes rows; the source follows tables that only get "
                    f"new rows. Start again without resume, or leave out this version with start={version}"
                )
            if "add" in action and action["add"].get("dataChange", True):
                if action["add"].get("deletionVector"):
                    raise self._has_deletion_vectors(version)
                yield _File(action["add"]["path"], action["add"].get("partitionValues", {}))

    def _check_names(self, version: int, names: Iterable[str]) -> None:
        """Raise SourceError if a version has new columns that the source refuses."""
        if self._new_columns == "ignore" or version <= self._made_at:
            return
        if added := [name for name in names if name not in self._known]:
            raise new_columns_error(self.what, f"version {version}", added)

    def _has_deletion_vectors(self, version: int) -> SourceError:
        return SourceError(
            f"{self.what}: version {version} has deletion vectors, which the source cannot read; rewrite its files "
            "with REORG TABLE ... APPLY (PURGE)"
        )

    def _check_log(self, newest: int) -> None:
        """Raise SourceError if the table's newest version, which has been read, is no longer in its log. Otherwise the
        source would wait for ever for a version after it."""
        if not self._has(newest):
            raise SourceError(
                f"{self.what}: its version {newest} has been read, and is gone: the table was removed or made anew. "
                "Restore it and resume, or start again without resume"
            )

    def _has(self, version: int) -> bool:
        filesystem, path = self._log(version)
        return bool(filesystem.get_file_info(path).is_file)

    def _log(self, version: int) -> tuple[Any, str]:
        filesystem, folder = locate(self._uri)
        return filesystem, f"{folder.rstrip('/')}/_delta_log/{version:020}.json"

    def _next(self, file: _File, number: int, row: int) -> pa.RecordBatch | None:
        """Return the rows of a file from `row` on, at most `batch_rows`, or None at its end."""
        batch = self._file.next(number, row, partial(self._opened, file))
        if batch is None:
            return None
        return pa.RecordBatch.from_arrays(
            [_column(column, batch, file.values) for column in self.columns], schema=self.columns
        )

    def _opened(self, file: _File) -> tuple[pq.ParquetFile, Sequence[str]]:
        filesystem, folder = locate(self._uri)
        parquet = pq.ParquetFile(filesystem.open_input_file(f"{folder.rstrip('/')}/{unquote(file.path)}"))
        names = [name for name in self.columns.names if name in parquet.schema_arrow.names]
        return parquet, needed_names(names, lambda name: self.needed is None or name in self.needed)

    def close(self) -> None:
        """Close the file that is open."""
        self._file.close()

    def _table(self, version: int | None = None) -> Any:
        return delta_library().DeltaTable(self._uri, version=version, storage_options=self._storage_options)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (delta_library().exceptions.DeltaError, OSError, pa.ArrowException) as error:
            raise SourceError(
                f"{self.what}: {delta_error(error)}; check the path, and that the version is there"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None, "_file": OpenFile(self._file.batch_rows)}


def _column(column: pa.Field, batch: pa.RecordBatch, values: Mapping[str, Any]) -> pa.Array:
    """Return a column of a file: from its rows, or from its partition. A column that the file lacks is null."""
    if column.name in batch.schema.names:
        return batch.column(column.name).cast(column.type)
    value = values.get(column.name)
    if value is None or value == "":  # in the log, an empty text is a null
        return pa.nulls(batch.num_rows, column.type)
    if isinstance(value, str) and pa.types.is_timestamp(column.type) and column.type.tz and not _ZONE.search(value):
        value += "Z"  # in the log, times without a zone are in UTC
    return pa.repeat(pa.scalar(value).cast(column.type), batch.num_rows)
