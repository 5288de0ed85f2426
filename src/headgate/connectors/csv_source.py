"""CSV files as a source: byte-range splits, read in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headgate.connectors.base import ReaderContext, Source, SourceReader
from headgate.connectors.csv_lines import BLOCK_BYTES, first_line, line_blocks
from headgate.connectors.csv_parser import BadLine, CsvDialect, CsvParser
from headgate.connectors.files import DataFile, Paths, absolute_all, expand, reading
from headgate.connectors.splits import SplitReader, check_split_size
from headgate.errors import ConfigError, SourceError

_BOM = b"\xef\xbb\xbf"
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_MOST_ROWS = 65_536
_NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A split: the lines of `file` from `start` to `end` (bytes), as `line_blocks` deals them."""

    file: DataFile
    start: int
    end: int


class CsvSource(Source):
    """Rows of CSV files; see `headgate.connectors.sources.csv`."""

    def __init__(self, paths: Paths, schema: pa.Schema | None, dialect: CsvDialect, *, header: bool,
                 split_size: int | str) -> None:  # fmt: skip
        if len(dialect.delimiter) != 1 or dialect.delimiter in '"\r\n':
            raise ConfigError(f"delimiter={dialect.delimiter!r} must be one character, not a quote or a line break")
        self._paths = absolute_all(paths)
        self._format = CsvFiles(dialect, header)
        self._split_size = check_split_size(split_size)
        self._splits: list[ByteRange] = []
        self.schema = (self._infer() if schema is None else schema).remove_metadata()
        self._format.check(self.schema)

    def prepare(self) -> None:
        """List the files and cut them into splits. Raises SourceError."""
        self._splits = [split for file in expand(self._paths) for split in _cut(file, self._split_size)]

    def files(self) -> list[DataFile]:
        """What a job that starts now reads."""
        return expand(self._paths)

    def reader(self, context: ReaderContext) -> SourceReader:
        """Reads this subtask's splits."""
        return SplitReader(self._splits, lambda split: self._format.batches(split, self.schema), context)

    def _infer(self) -> pa.Schema:
        file = next((file for file in expand(self._paths) if file.size), None)
        if file is None:
            raise SourceError(f"{', '.join(self._paths)}: all files are empty, so the types are unknown; give schema=")
        return self._format.infer(file)


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """How to read the files, whichever part of them."""

    dialect: CsvDialect
    header: bool

    def check(self, schema: pa.Schema) -> None:
        """Raises ConfigError for a schema that no CSV file can have."""
        if not len(schema) or len(set(schema.names)) < len(schema):
            raise ConfigError(f"schema={schema.names} must have columns, and no name twice")
        for field in schema:
            try:
                self.dialect.read(b"x\n", [field.name], {field.name: field.type})
            except pa.ArrowNotImplementedError:
                raise ConfigError(f"schema: column {field.name!r} cannot be read from CSV as {field.type}") from None
            except pa.ArrowInvalid:
                pass  # the type is fine, the x is not

    def infer(self, file: DataFile) -> pa.Schema:
        """Types guessed from the file's first block; a column that is all null there is text."""
        names = self._columns(file, None)
        for _, lines in self._blocks(ByteRange(file, 0, BLOCK_BYTES)):
            with reading(file.path):
                guessed = self.dialect.read(lines, names).schema
            return pa.schema([(field.name, _or_text(field.type)) for field in guessed])
        raise SourceError(f"{file.path}: has no rows to guess the types from; give schema=")

    def batches(self, split: ByteRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The split's rows, some 1 MiB of text or 65,536 rows at a time. Raises SourceError for the first bad line."""
        parser = CsvParser(schema, self._columns(split.file, schema), self.dialect)
        for offset, lines in self._blocks(split):
            try:
                batch = parser.parse(lines)
            except BadLine as bad:
                raise SourceError(
                    f"{split.file.path}: bad line at byte {offset + bad.position}: {bad.reason}. "
                    f"The line is: {bad.text!r}. Correct it, or give a schema= and null_values= that fit"
                ) from None
            for start in range(0, batch.num_rows, _MOST_ROWS):
                yield batch.slice(start, _MOST_ROWS)

    def _columns(self, file: DataFile, schema: pa.Schema | None) -> Sequence[str]:
        """The names of the file's columns in order. Raises SourceError unless they hold all of the schema's."""
        if not self.header and schema is not None:
            return list(schema.names)
        with _open(file, 0) as read:
            line = first_line(read).removeprefix(_BOM)
            if not line.strip():
                raise SourceError(f"{file.path}: the first line is blank; the column names should be there")
            if b"\r" in line.rstrip():
                raise SourceError(f"{file.path}: its lines end in \\r alone; end them in \\n or \\r\\n")
            try:
                names = self.dialect.values(line)
            except UnicodeDecodeError as error:
                raise SourceError(f"{file.path}: the first line is not UTF-8 ({error}); convert the file") from None
        if not self.header:
            return [f"f{number}" for number in range(len(names))]
        for name in names if schema is None else schema.names:
            if names.count(name) != 1:
                what = "has two columns" if name in names else "has no column"
                raise SourceError(f"{file.path}: {what} {name!r}; its header is: {', '.join(names)}")
        return names

    def _blocks(self, split: ByteRange) -> Iterator[tuple[int, bytes]]:
        """The split's lines without the header."""
        with _open(split.file, split.start) as read:
            for offset, lines in line_blocks(read, split.start, split.end):
                skip = 0
                if offset == 0:
                    skip = lines.find(b"\n") + 1 if self.header else len(_BOM) * lines.startswith(_BOM)
                if skip < len(lines):
                    yield offset + skip, lines[skip:]


def _cut(file: DataFile, split_size: int) -> list[ByteRange]:
    """Byte ranges of `split_size`; a compressed file cannot be entered in the middle and is one."""
    if file.path.endswith(_COMPRESSED):
        return [ByteRange(file, 0, _NO_END)]
    return [ByteRange(file, at, min(at + split_size, file.size)) for at in range(0, file.size, split_size)]


@contextmanager
def _open(file: DataFile, start: int) -> Iterator[Callable[[int], bytes]]:
    """Gives a `read(n)` of the file's text from byte `start` on, and no further than the size it had at first."""
    with reading(file.path):
        if file.path.endswith(_COMPRESSED):
            with file.filesystem.open_input_stream(file.path) as stream:
                yield stream.read
            return
        with file.filesystem.open_input_file(file.path) as stream:
            stream.seek(start)

            def read(most: int) -> bytes:
                wanted = min(most, file.size - stream.tell())
                data: bytes = stream.read(wanted)
                if wanted and not data:
                    raise SourceError(f"{file.path}: became shorter while the job ran; run it again on files at rest")
                return data

            yield read


def _or_text(type_: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(type_) else type_
