"""Parses lines of CSV into record batches of a fixed schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headgate.connectors.file_sources.line_parser import LineParser

_LINE = re.compile(rb"[^\r\n]+")
_ENDS_IN_ZONE = r"[T ]\d{2}.*(?:Z|[+-]\d{2}(?::?\d{2})?)$"
_COLUMN_NUMBER = re.compile(r"In CSV column #(\d+): ")
_TOO_MANY = re.compile(r"(Expected \d+ columns, got \d+): .*", re.DOTALL)
_ROW_NUMBER = re.compile(r"Row #\d+: ")


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The syntax of the values in a CSV file. Only an unquoted value can be null: a quoted "" or "NA" is a text."""

    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)

    def read(self, lines: bytes, names: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
        """Parse lines without a header into a table. `names` are the file's columns.

        The table has the columns of `types`, in the same order. Without `types`, it has all columns, and Arrow guesses
        their types.
        """
        return csv.read_csv(
            pa.py_buffer(lines),
            csv.ReadOptions(use_threads=False, column_names=list(names), block_size=len(lines)),
            csv.ParseOptions(delimiter=self.delimiter),
            csv.ConvertOptions(
                column_types=types,
                include_columns=list(types or ()),
                null_values=list(self.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def values(self, line: bytes) -> list[str]:
        """Return the values of one line as text, for example the column names of a header."""
        options = csv.ParseOptions(delimiter=self.delimiter)
        return [str(name) for name in csv.read_csv(pa.py_buffer(line), parse_options=options).column_names]


class CsvParser(LineParser):
    """A parser for one CSV file. `names` are the names of the file's columns, in order."""

    def __init__(self, schema: pa.Schema, names: Sequence[str], dialect: CsvDialect) -> None:
        self.schema = schema
        self._names = names
        self._dialect = dialect
        # If a column's type has a zone, Arrow refuses times without a zone. The parser therefore reads such a column as
        # text.
        self._types = {field.name: pa.string() if _is_zoned(field.type) else field.type for field in schema}

    def _parse(self, lines: bytes) -> pa.RecordBatch:
        """Parse lines into a batch. A blank line is not a row."""
        if not lines.strip(b"\r\n"):
            return pa.RecordBatch.from_pylist([], self.schema)
        table = self._dialect.read(lines, self._names, self._types)
        if b'"' in lines:
            self._refuse_runaway_quote(lines, table.num_rows)
        columns = [_fit(table.column(field.name).combine_chunks(), field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _refuse_runaway_quote(self, lines: bytes, rows: int) -> None:
        """Raise ArrowInvalid for a quoted value that does not end on its line.

        Without this check, a value with a line break would parse or not, depending on where the file is cut into
        blocks.
        """
        fits = rows == lines.count(b"\n") or rows == len(_LINE.findall(lines))
        text = lines.rstrip(b"\r\n")
        last = text[text.rfind(b"\n") + 1 :] + b"\n"
        if fits and last.count(b'"') % 2:
            # The unpaired quote is either text within a value, or it opens a value that the last line does not close.
            # In the second case, two copies of the line parse as one row.
            fits = self._dialect.read(last + last, self._names, dict.fromkeys(self._types, pa.string())).num_rows == 2
        if not fits:
            raise pa.ArrowInvalid("a quoted value does not end on its line; values with line breaks are not supported")

    def _reason(self, error: pa.ArrowInvalid) -> str:
        reason = _ROW_NUMBER.sub("", str(error)).split(". If these")[0].strip()
        reason = _TOO_MANY.sub(r"\1", reason)
        return _COLUMN_NUMBER.sub(lambda match: f"column {self._names[int(match[1])]!r}: ", reason)


def _is_zoned(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.tz is not None


def _fit(array: pa.Array, field: pa.Field) -> pa.Array:
    """Convert a column to the schema's type. Raises ArrowInvalid for a null in a column that must not have nulls."""
    try:
        array = _instants(array, field.type) if _is_zoned(field.type) else array
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from None
    if array.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"column {field.name!r}: null, but the schema does not allow nulls")
    return array


def _instants(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert texts to timestamps. A text without a zone is UTC."""
    zoneless = pa.timestamp(type_.unit)
    first = pc.fill_null(pc.first(text), "")
    # Usually all times of a column have a zone, or no time has one. The first time decides which cast to try first,
    # because a failing cast takes long.
    with suppress(pa.ArrowInvalid):
        return text.cast(type_) if _has_zone(first).as_py() else text.cast(zoneless).cast(type_)
    has_zone = _has_zone(text)
    none = pa.scalar(None, pa.string())
    utc = pc.if_else(has_zone, none, text).cast(zoneless).cast(type_)
    return pc.coalesce(pc.if_else(has_zone, text, none).cast(type_), utc)


def _has_zone(text: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """Return whether times end in a zone. With this pattern, Arrow's matcher takes linear time, but `re` takes
    quadratic time."""
    return pc.match_substring_regex(text, _ENDS_IN_ZONE)
