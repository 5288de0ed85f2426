"""A source of CSV files. `line_source.py` cuts and reads the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from headgate.connectors.arguments import SCHEMA_OR_NONE, check
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.csv_parser import CsvDialect, CsvParser
from headgate.connectors.file_sources.line_source import BOM, MOST_COLUMNS, LineSource, open_text
from headgate.connectors.file_sources.lines import LongLine, first_line
from headgate.connectors.file_sources.paths import Paths, reading
from headgate.errors import ConfigError, SourceError


class CsvSource(LineSource):
    """A source of the rows of CSV files; see `hg.sources.csv`."""

    remedy = "give a schema= and null_values= that fit"

    def __init__(self, paths: Paths, schema: pa.Schema | None, dialect: CsvDialect, *, header: bool,
                 split_size: int | str) -> None:  # fmt: skip
        check(SCHEMA_OR_NONE, schema=schema)
        if len(dialect.delimiter) != 1 or dialect.delimiter in '"\r\n':
            raise ConfigError(f"delimiter={dialect.delimiter!r} must be one character, not a quote or a line break")
        super().__init__(paths, split_size)
        self._dialect = dialect
        self._header = header
        self.schema = (self._infer(self.first_file()) if schema is None else schema).remove_metadata()
        self._check(self.schema)

    def parser(self, file: DataFile) -> CsvParser:
        """Return a parser for the file. Raises SourceError if the file lacks a column of the schema."""
        return CsvParser(self.schema, self._columns(file, self.schema), self._dialect)

    def header_bytes(self, lines: bytes) -> int:
        """Return the length of the header line in bytes, or of the byte order mark if the file has no header."""
        return lines.find(b"\n") + 1 if self._header else super().header_bytes(lines)

    def _check(self, schema: pa.Schema) -> None:
        """Raise ConfigError for a schema that no CSV file can have."""
        if not len(schema) or len(set(schema.names)) < len(schema):
            raise ConfigError(f"schema={schema.names} must have columns, and no name twice")
        for field in schema:
            try:
                self._dialect.read(b"x\n", [field.name], {field.name: field.type})
            except pa.ArrowNotImplementedError:
                raise ConfigError(f"schema: column {field.name!r} cannot be read from CSV as {field.type}") from None
            except pa.ArrowInvalid:
                pass  # CSV can have the type; only the test value "x" does not fit

    def _infer(self, file: DataFile) -> pa.Schema:
        """Guess the types from the file's first block. A column with only nulls in this block becomes text."""
        names = self._columns(file, None)
        lines = self.first_block(file)
        with reading(file.path):
            guessed = self._dialect.read(lines, names).schema
        return pa.schema([(field.name, _or_text(field.type)) for field in guessed])

    def _columns(self, file: DataFile, schema: pa.Schema | None) -> Sequence[str]:
        """Return the names of the file's columns, in order. Raises SourceError if a column of the schema is missing."""
        if not self._header and schema is not None:
            return list(schema.names)
        with open_text(file, 0) as read:
            line = first_line(read)
            if isinstance(line, LongLine) or line.count(self._dialect.delimiter.encode()) >= MOST_COLUMNS:
                raise SourceError(
                    f"{file.path}: the first line has more than {MOST_COLUMNS} values; check that this is a CSV file"
                )
            line = line.removeprefix(BOM)
            if not line.strip():
                raise SourceError(
                    f"{file.path}: the first line is blank; put the column names there, or give header=False"
                )
            if b"\r" in line.rstrip():
                raise SourceError(f"{file.path}: its lines end in \\r alone; end them in \\n or \\r\\n")
            try:
                names = self._dialect.values(line)
            except UnicodeDecodeError as error:
                raise SourceError(f"{file.path}: the first line is not UTF-8 ({error}); convert the file") from None
        if not self._header:
            return [f"f{number}" for number in range(len(names))]
        counts = Counter(names)
        for name in names if schema is None else schema.names:
            if counts[name] != 1:
                problem = "has two columns" if counts[name] else "has no column"
                raise SourceError(f"{file.path}: {problem} {name!r}; its header is: {', '.join(names)}")
        return names


def _or_text(type_: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(type_) else type_
