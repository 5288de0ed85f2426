"""A source of Parquet files. A split is one or more whole row groups of a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from headgate.connectors.arguments import WHOLE, check, check_texts
from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.paths import Paths, absolute_all, expand, expand_again, known_by, reading
from headgate.connectors.file_sources.splits import SplitReader, check_split_size, prepared_files
from headgate.connectors.schemas import shown
from headgate.connectors.share import share_shape
from headgate.errors import ConfigError, SourceError
from headgate.records.arrow import is_text
from headgate.records.canonical import null_mask
from headgate.state import shapes

#: The size of the pieces, in bytes, in which each column of a local file is read.
_PIECE: Final = 1 << 20
#: A row group has a dictionary for a column of texts, and not each text, if a row takes fewer bytes than this: without
#: a dictionary, the length of a text alone takes as many.
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class RowGroups:
    """A split: consecutive row groups of a file, given by their numbers."""

    file: DataFile
    numbers: tuple[int, ...]


class ParquetSource(Source):
    """A source of the rows of Parquet files; see `hg.sources.parquet`."""

    def __init__(self, paths: Paths, columns: Sequence[str] | None, *, batch_rows: int,
                 split_size: int | str) -> None:  # fmt: skip
        check(WHOLE, batch_rows=batch_rows)
        if batch_rows < 1:
            raise ConfigError(f"batch_rows={batch_rows} must be at least 1")
        if columns is not None:
            check_texts(columns=columns)
            if not len(columns) or len(set(columns)) < len(columns):
                raise ConfigError(f"columns={columns!r} must be a list of column names without repetition")
        self._paths = absolute_all(paths)
        self._columns = None if columns is None else list(columns)
        self._batch_rows = int(batch_rows)
        self._split_size = check_split_size(split_size)
        self._splits: list[RowGroups] = []
        self._model = expand(self._paths)[0]
        #: The columns as they are in the files.
        self._read = self._footer(self._model)[0]
        self.schema = self._read
        #: The columns whose values the job needs.
        self._needed = self.schema.names

    def prepare(self) -> None:
        """List the files, compare their schemas and pack row groups into splits. Raises SourceError."""
        self._splits = [split for file in expand(self._paths) for split in self._cut(file)]

    def prepared(self) -> Any:
        """Return the files and the split size."""
        return {"files": known_by(split.file for split in self._splits), "split_size": self._split_size}

    def restore(self, prepared: Any) -> None:
        """Cut the files of the checkpoint's job into the same splits. Raises SourceError for a file that is gone or has
        changed."""
        self._split_size, known = prepared_files(prepared)
        files = expand_again(self._paths, known)
        self._splits = [split for file in files for split in self._cut(file)]

    @property
    def place(self) -> shapes.Shape:
        """The shape of a place in a checkpoint: a number of rows."""
        return shapes.count

    def check_position(self, position: Any) -> None:
        """Raise ValueError if no reader of numbered splits can return `position`."""
        share_shape(self.place)(position, "the position")

    def files(self) -> list[DataFile]:
        """List the files that a job would read if it started now."""
        return expand(self._paths)

    def reading(self, columns: Collection[str]) -> ParquetSource:
        """Return a source that reads only these columns from the files. The values of the others are null."""
        other = copy(self)
        other._needed = [name for name in self.schema.names if name in columns]
        return other

    def with_dictionaries(self, columns: Collection[str]) -> ParquetSource:
        """Return a source that gives these columns of texts with the dictionaries of the files."""
        other = copy(self)
        other.schema = schema_with_dictionaries(self.schema, columns)
        return other

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's splits."""
        read = partial(read_row_groups, schema=self.schema, batch_rows=self._batch_rows, needed=self._needed)
        return SplitReader(self._splits, read, context)

    def read_file(self, file: DataFile, place: int | None, bad: object) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows of one file from a place on. `bad` is not used, because Parquet has no bad lines."""
        whole = RowGroups(file, tuple(range(len(self._row_group_sizes(file)))))
        return read_row_groups(whole, place, self.schema, self._batch_rows, self._needed)

    def _cut(self, file: DataFile) -> list[RowGroups]:
        return pack_row_groups(file, self._row_group_sizes(file), self._split_size)

    def _row_group_sizes(self, file: DataFile) -> list[int]:
        """Return the size of each row group in bytes. Raises SourceError if the file does not have the source's
        columns."""
        schema, sizes = self._footer(file)
        if not schema.equals(self._read):
            raise SourceError(
                f"{file.path}: its columns ({shown(schema)}) differ from the columns of {self._model.path} "
                f"({shown(self._read)}); all files must agree, at least in the columns named by columns="
            )
        return sizes

    def _footer(self, file: DataFile) -> tuple[pa.Schema, list[int]]:
        """Return the schema of the columns that the source reads, and the size of each row group in bytes."""
        schema, sizes = read_footer(file)
        if self._columns is None:
            return schema, sizes
        for name in self._columns:
            if schema.get_field_index(name) < 0:
                raise SourceError(f"{file.path}: has no column {name!r}; it has: {', '.join(schema.names)}")
        return pa.schema([schema.field(name) for name in self._columns]), sizes


def read_footer(file: DataFile) -> tuple[pa.Schema, list[int]]:
    """Return the schema of a file, and the size of each row group in bytes, uncompressed."""
    with reading(file.path), file.filesystem.open_input_file(file.path) as stream:
        parquet = pq.ParquetFile(stream)
        schema, footer = parquet.schema_arrow.remove_metadata(), parquet.metadata
    if len(set(schema.names)) < len(schema):
        raise SourceError(f"{file.path}: has two columns with the same name; its columns are ({shown(schema)})")
    return schema, [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]


def schema_with_dictionaries(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """Return the schema with dictionaries for these columns of texts."""
    given = {field.name for field in schema if field.name in columns and is_text(field.type)}
    return pa.schema(
        [field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in given else field for field in schema]
    )


def pack_row_groups(file: DataFile, sizes: Sequence[int], split_size: int) -> list[RowGroups]:
    """Return splits of consecutive row groups. A split has up to `split_size` bytes, or one larger row group."""
    splits: list[RowGroups] = []
    packed: list[int] = []
    packed_size = 0
    for number, nbytes in enumerate(sizes):
        if packed and packed_size + nbytes > split_size:
            splits.append(RowGroups(file, tuple(packed)))
            packed, packed_size = [], 0
        packed.append(number)
        packed_size += nbytes
    return [*splits, RowGroups(file, tuple(packed))] if packed else splits


def read_row_groups(split: RowGroups, place: int | None, schema: pa.Schema, batch_rows: int,
                    needed: Sequence[str] | None = None) -> Iterator[tuple[pa.RecordBatch, int]]:  # fmt: skip
    """Yield the rows of a split from a place on, at most `batch_rows` at a time. Each batch comes with the place after
    it.

    A place is the number of rows of the split that were read, or None for 0. The batches have the columns of `schema`.
    The values of columns that are not `needed` are null. If `needed` is None, all columns are needed.
    """
    file, needed = split.file, schema.names if needed is None else needed
    nulls = {field.name: pa.nulls(batch_rows, field.type) for field in schema if field.name not in needed}
    given, at = place or 0, 0
    with reading(file.path), file.filesystem.open_input_file(file.path) as stream:
        # Without pre_buffer, memory holds the chunks of columns that are being read instead of a whole row group. A
        # local file is read in small pieces, so memory holds no chunk. An object store would answer each piece late.
        # Spark writes timestamps as INT96. By default Arrow reads INT96 as nanoseconds, which overflow after 2262.
        piece = _PIECE if isinstance(file.filesystem, fs.LocalFileSystem) else 0
        footer = pq.read_metadata(stream)
        parquet = pq.ParquetFile(
            stream, metadata=footer, read_dictionary=_with_dictionaries(footer, split.numbers, schema, needed),
            pre_buffer=False, buffer_size=piece, coerce_int96_timestamp_unit="us",
        )  # fmt: skip
        numbers = deque(split.numbers)
        while numbers and at + parquet.metadata.row_group(numbers[0]).num_rows <= given:
            at += parquet.metadata.row_group(numbers.popleft()).num_rows
        for batch in parquet.iter_batches(batch_rows, list(numbers), list(needed), use_threads=False):
            columns = [
                nulls[field.name][: batch.num_rows]
                if field.name in nulls
                else _as(field.type, batch.column(field.name))
                for field in schema
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema).slice(max(given - at, 0))
            at += batch.num_rows
            yield rows, max(given, at)


def _with_dictionaries(
    footer: pq.FileMetaData, numbers: Sequence[int], schema: pa.Schema, needed: Sequence[str]
) -> list[str]:
    """Return the columns to give with dictionaries for which all of these row groups have some."""
    wanted = {field.name for field in schema if field.name in needed and pa.types.is_dictionary(field.type)}
    groups = [footer.row_group(number) for number in numbers]
    paths = {index: footer.schema.column(index).path for index in range(footer.num_columns)}
    return [
        path
        for index, path in paths.items()
        if path in wanted
        and all(group.column(index).total_uncompressed_size < _LENGTH_BYTES * group.num_rows for group in groups)
    ]


def _as(type_: pa.DataType, column: pa.Array) -> pa.Array:
    """Return a column with this type. Without a dictionary in the file, the texts themselves are the dictionary."""
    if pa.types.is_dictionary(type_) and not pa.types.is_dictionary(column.type):
        places = pa.array(np.arange(len(column), dtype=np.int32), mask=null_mask(column))
        return pa.DictionaryArray.from_arrays(places, column.cast(type_.value_type))
    return column.cast(type_)
