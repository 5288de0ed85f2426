"""The sources: `hg.sources.csv("flights/*.csv")` and so on. Each call checks what can be checked without running.

Every row is read once by the whole job. Files are given as a path, a glob (`* ? [..] **`), a folder or a list of
these, or as URIs that `pyarrow.fs` knows; relative paths are the driver's. Files whose name begins with `_` or `.` are
passed over unless named. Files are cut into splits of about `split_size`; split i, in the order of names and offsets,
goes to subtask i mod parallelism, and a subtask reads its splits one after the other.

Sources are read on from where a checkpoint was, except `socket_lines` and what is given as not `replayable`, which are
begun anew: what was on its way is lost, and what they give again counts twice. Files must not change until then; a
folder's files that came since the job began are not read, unless it is watched.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from headgate.connectors.arguments import FLAG, SCHEMA_OR_NONE, TEXT, check, check_texts
from headgate.connectors.connector import Source
from headgate.connectors.csv_parser import CsvDialect
from headgate.connectors.csv_source import CsvSource
from headgate.connectors.files import Paths
from headgate.connectors.frames import SPARK_REMEDY, batches, is_frame, is_of_spark
from headgate.connectors.generate_source import GenerateSource, RowFunction
from headgate.connectors.iterable_source import Factory, FactorySource, Item, ListSource, batch_of_dicts
from headgate.connectors.json_source import JsonLinesSource
from headgate.connectors.line_source import LineSource
from headgate.connectors.parquet_source import ParquetSource
from headgate.connectors.socket_source import SocketLinesSource
from headgate.connectors.text_source import TextSource
from headgate.connectors.watched_files import WatchedFiles
from headgate.errors import ConfigError

__all__ = ["csv", "files", "generate", "iterable", "json_lines", "parquet", "socket_lines", "text"]


def csv(path: Paths, *, schema: pa.Schema | None = None, delimiter: str = ",", header: bool = True,
        null_values: Sequence[str] = ("",), split_size: int | str = "64 mb") -> Source:  # fmt: skip
    """Rows of CSV files in UTF-8.

    With `schema` its columns are read, by name if there is a header, else by position; other columns of the file are
    passed over. Without, the types are guessed from the first 1 MiB of the first file. Values in `null_values` are
    null unless they are quoted. Timestamps are ISO 8601; one without a zone is UTC in a column that has one. Quoted
    values may hold delimiters and doubled quotes, but no line breaks. Files ending in .gz .bz2 .zst .lz4 are
    decompressed, each one split.

    Raises SourceError for files that cannot be read, lack a column, or have a bad line: with file, byte offset (in
    the decompressed text), the line's text and what is wrong. Raises ConfigError for impossible arguments. Bad lines
    go aside instead, and the job goes on, where the stream's `side_output("bad")` is read: columns `file, offset,
    line, text, error`, lines counted from 1. A line of more than 64 MiB is a bad line of which the first 1,000 bytes
    are kept. Files of more than 16,384 columns are refused.
    """
    check(TEXT, delimiter=delimiter)
    check(FLAG, header=header)
    check_texts(null_values=null_values)
    return CsvSource(path, schema, CsvDialect(delimiter, tuple(null_values)), header=header, split_size=split_size)


def json_lines(path: Paths, *, schema: pa.Schema | None = None, split_size: int | str = "64 mb") -> Source:
    """Rows of files with a JSON object on each line, in UTF-8; blank lines are none.

    With `schema` its members are read: others are passed over, missing ones are null. Without, the types are guessed
    from the first 1 MiB of the first file, where a string with a date and time is a timestamp. Times are ISO 8601; a
    timestamp without a zone is UTC in a column that has one. Compressed files and bad lines are treated as by `csv`.

    Raises SourceError for files that cannot be read or have a bad line, ConfigError for impossible arguments.
    """
    return JsonLinesSource(path, schema, split_size=split_size)


def text(path: Paths, *, split_size: int | str = "64 mb") -> Source:
    """Lines of files in UTF-8, blank ones too, in a column `value`, without line ends. Compressed files and bad lines
    (what is not UTF-8, or is too long) are treated as by `csv`."""
    return TextSource(path, split_size=split_size)


def files(path: str | os.PathLike[str], *, format: Literal["csv", "json_lines", "parquet", "text"] = "text",
          watch: bool = False, interval: float | str = "1 s", **options: Any) -> Source:  # fmt: skip
    """Rows of the files in a folder (or of a glob), in a format with its options: `files("in/", format="csv",
    schema=S)` is `csv("in/", schema=S)`.

    With `watch` the source has no end: it looks every `interval` for files that are new, and each is read once, in the
    order of names among those found together, whole by the subtask that its name falls to. Put files there whole, by
    renaming them: a file is read as it is when it is first seen, unless it is empty. Give a `schema` where the folder
    may be empty at first. A subtask for which there is no file holds back no watermark; see docs/concepts/time.md.
    """
    check(FLAG, watch=watch)
    if format not in tuple(_FORMATS):
        raise ConfigError(f"files: format={format!r} is not one of {', '.join(_FORMATS)}")
    known = [name for name in inspect.signature(_FORMATS[format]).parameters if name != "path"]
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"files: {format} has no option {unknown[0]}=; its options are {', '.join(known) or 'none'}")
    source = _FORMATS[format](path, **options)
    assert isinstance(source, (LineSource, ParquetSource))
    return WatchedFiles(path, source, interval) if watch else source


def socket_lines(host: str, port: int) -> Source:
    """Lines of text that a server at `host:port` sends, in a column `value`; one subtask dials and reads, and the
    stream ends when the server closes. Lines of a job that fails are lost: the server does not send them again.

    Raises SourceError when there is no connection, or it sends what is not UTF-8; ConfigError for an impossible port.
    """
    return SocketLinesSource(host, port)


def parquet(path: Paths, *, columns: Sequence[str] | None = None, batch_rows: int = 16_384,
            split_size: int | str = "64 mb") -> Source:  # fmt: skip
    """Rows of Parquet files; `columns` are read (None: all), in that order, at most `batch_rows` at a time.

    Splits are whole row groups, packed up to `split_size` bytes (uncompressed). The schema is the first file's.
    Raises SourceError for files that cannot be read, lack a column or differ in their columns.
    """
    return ParquetSource(path, columns, batch_rows=batch_rows, split_size=split_size)


def iterable(items: Sequence[Item] | Factory, schema: pa.Schema | None = None, *, bounded: bool = True,
             replayable: bool = True) -> Source:  # fmt: skip
    """Batches from a list, or from a function that is called in each subtask as `factory(subtask, subtasks)`.

    An item is a RecordBatch, a list of dicts, or a frame: a pandas or polars DataFrame, a pyarrow Table. A single frame
    or RecordBatch, or rows as dicts (`[{"n": 1}, {"n": 2}]`), may stand for the list; they are cut into batches of 8192
    rows. Give a `schema` for several frames of pandas whose integers may be missing: pandas makes floats of them.

    The index of pandas becomes columns if it has a name, as by `reset_index()`. An index of integers without a name
    numbers the rows and is left out; any other without a name is a SourceError, unless a `schema` names the columns.

    Item i of a list goes to subtask i mod parallelism. A factory returns an iterator, which may block, and must give
    the same batches whenever it is called with the same arguments; say `replayable=False` if it cannot (a job that
    starts again then takes what it gives from its beginning), and `bounded=False` if it has no end. Without `schema`
    the first item's is taken: for that a factory is also called here, with (0, 1). Raises SourceError for an item of
    another schema, ConfigError if the schema cannot be known.
    """
    check(SCHEMA_OR_NONE, schema=schema)
    check(FLAG, bounded=bounded, replayable=replayable)
    if callable(items):
        return FactorySource(items, schema, bounded=bounded, replayable=replayable)
    if isinstance(items, pa.RecordBatch) or is_frame(items):
        items = batches(pa.table(items) if isinstance(items, pa.RecordBatch) else items, schema)
    elif isinstance(items, (list, tuple)) and items and all(isinstance(row, dict) for row in items):
        items = batches(pa.table(batch_of_dicts(items, schema, "the rows")), schema)
    if not isinstance(items, (list, tuple)):
        raise ConfigError(f"iterable: {_not_a_list(items)}")
    if not bounded or not replayable:
        raise ConfigError("iterable: a list has an end and stays; bounded=False and replayable=False are for functions")
    return ListSource(items, schema)


def generate(fn: RowFunction, rows: int | None = None, rate: float | None = None, schema: pa.Schema | None = None,
             time: str | None = None, *, batch_rows: int = 8192,
             batch_time: str | float = "1 ms") -> Source:  # fmt: skip
    """Rows 0 to `rows` (None: without end), computed by `fn(start, n) -> RecordBatch`.

    `fn` is pure, and row i depends on i alone, however the cuts fall; `fn(0, 0)` gives the schema unless `schema` does.
    Rows are dealt in blocks, block b to subtask b mod parallelism; a block is `batch_rows`, or with `rate` the rows of
    `batch_time` where that is fewer (at least 1): a longer one costs a row up to so much time, and saves work. With
    `rate` (rows per second of the whole source) row i is due at t0 + i / rate, t0 being the job's start: a source that
    is held up catches up and never slips. `time` names a timestamp[us, UTC] column to add: each row's due time, or,
    without `rate`, when its batch was made.

    Raises UserFunctionError if `fn` raises or returns something else, ConfigError for impossible arguments.
    """
    return GenerateSource(fn, rows=rows, rate=rate, schema=schema, time=time, batch_rows=batch_rows,
                          batch_time=batch_time)  # fmt: skip


def _not_a_list(given: object) -> str:
    """Why something cannot be the items of `iterable`, and what to give instead."""
    kind = type(given).__name__
    if is_of_spark(given):
        return SPARK_REMEDY
    if hasattr(given, "collect") and hasattr(given, "lazy"):
        return f"a {kind} is not computed yet; give frame.collect()"
    if isinstance(given, Mapping):
        return f"a {kind} is not a list; for columns give pa.table(columns)"
    problem = "cannot be read again" if isinstance(given, Iterator) else "is not a list"
    return f"a {kind} {problem}; give a list, a frame, or a function of (subtask, subtasks)"


_FORMATS: dict[str, Callable[..., Source]] = {"csv": csv, "json_lines": json_lines, "parquet": parquet, "text": text}
