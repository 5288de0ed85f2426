"""A source of files with one JSON object on each line."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pyarrow as pa
from pyarrow import json

from headgate.connectors.arguments import SCHEMA_OR_NONE, check
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.line_parser import BadLine, LineParser
from headgate.connectors.file_sources.line_source import MOST_COLUMNS, LineSource
from headgate.connectors.file_sources.paths import Paths
from headgate.errors import ConfigError, SourceError

#: The pattern of a line that does not begin with an object. Arrow's parser misreads such lines, and crashes on some of
#: them.
_NO_OBJECT = re.compile(rb"^[ \t\r]*[^{\s]", re.MULTILINE)
_NO_END = re.compile(rb"[^}\s][ \t\r]*\n")
_BLANK = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_ROW = re.compile(r"^JSON parse error: | in row \d+$")
_COLUMN = re.compile(r"^Column\(/?(.*?)\)")
#: The most levels of nesting in a file whose types are guessed, because Arrow recurses into each level.
_DEEPEST = 100


class JsonParser(LineParser):
    """A parser of one JSON object per line. It skips members that the schema lacks. A member that an object lacks is
    null."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        # Arrow's JSON reader expects numbers for dates. The parser therefore reads dates as text, and casts the text.
        fields = [field.with_type(pa.string()) if pa.types.is_date(field.type) else field for field in schema]
        self._read_as = pa.schema([field.with_nullable(True) for field in fields])

    def _parse(self, lines: bytes) -> pa.RecordBatch:
        _check_text(lines)
        rows = lines.count(b"\n") - len(_BLANK.findall(lines))
        if not rows:
            return pa.RecordBatch.from_pylist([], self.schema)
        return self.read_objects(lines, rows)

    def read_objects(self, lines: bytes, rows: int) -> pa.RecordBatch:
        """Parse `rows` lines in UTF-8, each of which begins with an object. Raises pa.ArrowInvalid if a line does not
        parse."""
        table = _read(lines, json.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior="ignore"))
        if table.num_rows != rows or not _end_with_objects(lines):
            raise pa.ArrowInvalid("a line must hold one JSON object, whole")
        columns = [_fit(table.column(field.name).combine_chunks(), field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _reason(self, error: pa.ArrowInvalid) -> str:
        return _COLUMN.sub(r"column '\1'", _ROW.sub("", str(error)))


class JsonLinesSource(LineSource):
    """A source of the rows of JSON lines files; see `hg.sources.json_lines`."""

    remedy = "give a schema= that fits"

    def __init__(self, paths: Paths, schema: pa.Schema | None, *, split_size: int | str) -> None:
        check(SCHEMA_OR_NONE, schema=schema)
        super().__init__(paths, split_size)
        self.schema = (self._infer(self.first_file()) if schema is None else schema).remove_metadata()
        check_json_schema(self.schema)

    def parser(self, file: DataFile) -> JsonParser:
        return JsonParser(self.schema)

    def _infer(self, file: DataFile) -> pa.Schema:
        """Guess the types from the file's first block. A member with only nulls in this block becomes text."""
        lines = self.first_block(file)
        try:
            _check_text(lines)
            _check_depth(lines)
            guessed = _read(lines, json.ParseOptions()).schema
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(f"{file.path}: the types cannot be guessed: {error}; give schema=") from None
        if len(guessed) > MOST_COLUMNS:
            raise SourceError(f"{file.path}: its objects have more than {MOST_COLUMNS} members; give schema=")
        if not len(guessed):
            raise SourceError(f"{file.path}: its objects have no members; give schema=")
        return pa.schema([field.with_type(_without_nulls(field.type)) for field in guessed])


def _read(lines: bytes, options: json.ParseOptions) -> pa.Table:
    return json.read_json(pa.py_buffer(lines), json.ReadOptions(use_threads=False, block_size=len(lines)), options)


def _end_with_objects(lines: bytes) -> bool:
    """Return whether each line ends with a brace. Then no object continues on the next line, which begins with one."""
    characters = np.frombuffer(lines, np.uint8)
    last = np.flatnonzero(characters == ord("\n")) - 1
    last -= characters[last] == ord("\r")
    return bool((characters[last] == ord("}")).all()) or _NO_END.search(lines) is None


def _check_text(lines: bytes) -> None:
    """Raise ArrowInvalid for lines that Arrow's parser must not get: lines that are not an object, or not UTF-8."""
    if _NO_OBJECT.search(lines):
        raise pa.ArrowInvalid("a line must hold one JSON object")
    try:
        lines.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"it is not UTF-8: {error.reason}") from None


def _check_depth(lines: bytes) -> None:
    """Raise ArrowInvalid for values that are nested too deeply."""
    characters = np.frombuffer(lines, np.uint8)
    opens, closes = (np.isin(characters, [ord(bracket) for bracket in kind]).view(np.int8) for kind in ("[{", "]}"))
    depth = int(np.cumsum(opens - closes, dtype=np.int32).max())
    if depth > _DEEPEST:
        raise pa.ArrowInvalid(f"{depth} levels of nesting; at most {_DEEPEST} are allowed")


def check_json_schema(schema: pa.Schema) -> None:
    """Raise ConfigError for a schema that no JSON file can have."""
    if not len(schema) or len(set(schema.names)) < len(schema):
        raise ConfigError(f"schema={schema.names} must have columns, and no name twice")
    for field in schema:
        with suppress(BadLine):
            try:
                JsonParser(pa.schema([field.with_nullable(True)])).parse(b"{}\n")
            except pa.ArrowNotImplementedError:
                raise ConfigError(f"schema: column {field.name!r} cannot be read from JSON as {field.type}") from None


def _fit(array: pa.Array, field: pa.Field) -> pa.Array:
    """Convert a column to the schema's type. Raises ArrowInvalid for a null in a column that must not have nulls."""
    try:
        array = array if array.type == field.type else array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from None
    if array.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"column {field.name!r}: null, but the schema does not allow nulls")
    return array


def _without_nulls(type_: pa.DataType) -> pa.DataType:
    """Return the type with text instead of the null type, also within lists and structs."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_without_nulls(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_nulls(field.type)) for field in type_])
    return type_
