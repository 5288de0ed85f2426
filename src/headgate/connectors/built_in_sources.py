"""The functions of `hg.sources`, except for `dataframe`. Each call checks its arguments before a job runs.

The subtasks of a job together read every row once. Give files as a path, a glob (`* ? [..] **`), a folder, a URI of
`pyarrow.fs`, or a list of these. A relative path starts at the driver's working folder. Folders and globs skip files
whose name begins with `_` or `.`. A file source cuts files into splits of about `split_size` bytes. It numbers the
splits in the order of names and offsets. Split i goes to subtask i mod parallelism, and a subtask reads its splits one
after the other.

After a restart, a source resumes at the position that the checkpoint holds. `socket_lines`, and an `iterable` with
`replayable=False`, cannot resume: rows in flight are lost, and rows that such a source reads again count twice. Files
must not change while a job may still resume. A file source reads only the files that exist when the job starts.
`hg.sources.files` with `watch` also reads files that come later.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from headgate.connectors.arguments import FLAG, SCHEMA_OR_NONE, TEXT, check, check_texts
from headgate.connectors.connector import Source
from headgate.connectors.file_sources.csv_parser import CsvDialect
from headgate.connectors.file_sources.csv_source import CsvSource
from headgate.connectors.file_sources.json_source import JsonLinesSource
from headgate.connectors.file_sources.line_source import LineSource
from headgate.connectors.file_sources.parquet_source import ParquetSource
from headgate.connectors.file_sources.paths import Paths
from headgate.connectors.file_sources.text_source import TextSource
from headgate.connectors.file_sources.watched_files import WatchedFiles
from headgate.connectors.frames import SPARK_REMEDY, batches, is_frame, is_of_spark
from headgate.connectors.generate_source import GenerateSource, RowFunction
from headgate.connectors.iterable_source import Factory, FactorySource, Item, ListSource, batch_of_dicts
from headgate.connectors.poll_source import PollFunction, PollSource
from headgate.connectors.socket_source import SocketLinesSource
from headgate.errors import ConfigError

__all__ = ["csv", "files", "generate", "iterable", "json_lines", "parquet", "poll", "socket_lines", "text"]


def csv(path: Paths, *, schema: pa.Schema | None = None, delimiter: str = ",", header: bool = True,
        null_values: Sequence[str] = ("",), split_size: int | str = "64 mb") -> Source:  # fmt: skip
    """Read the rows of CSV files in UTF-8.

    `path` is a path, a glob (`* ? [..] **`), a folder, a URI of `pyarrow.fs`, or a list of these. Folders and globs
    skip files whose name begins with `_` or `.`. The source cuts files into splits of about `split_size` bytes, and the
    subtasks share the splits.

    With `schema`, the source reads the columns of the schema and skips the file's other columns. It finds columns by
    name, or by position if there is no header. Without `schema`, the source guesses the types from the first 1 MiB of
    the first file. A value in `null_values` is null if it is not quoted. Timestamps are ISO 8601. If a column has a
    zone, its timestamps without a zone are UTC. Quoted values may hold delimiters and doubled quotes, but no line
    breaks. Files whose name ends in .gz, .bz2, .zst or .lz4 are decompressed, each as one split.

    Raises SourceError for a file that cannot be read, lacks a column, has more than 16,384 columns, or has a bad line.
    The error about a bad line has the file, the byte offset in the decompressed text, the line, and the reason. Raises
    ConfigError for impossible arguments.

    If the job reads the stream's `side_output("bad")`, bad lines go to this side output and do not fail the job. This
    side output has the columns `file, offset, line, text, error`. `offset` is in bytes, and the first `line` is 1. A
    line of more than 64 MiB is a bad line, of which only the first 1,000 bytes are kept.

    ```python
    with open("flights.csv", "w") as file:
        file.write("carrier,delay\\nUA,5\\nAA,NA\\n")
    source = hg.sources.csv("flights.csv", null_values=["", "NA"])
    print(hg.StreamEnvironment().from_source(source).filter("delay > 0").collect().to_pylist())
    # [{'carrier': 'UA', 'delay': 5}]
    ```
    """
    check(TEXT, delimiter=delimiter)
    check(FLAG, header=header)
    check_texts(null_values=null_values)
    return CsvSource(path, schema, CsvDialect(delimiter, tuple(null_values)), header=header, split_size=split_size)


def json_lines(path: Paths, *, schema: pa.Schema | None = None, split_size: int | str = "64 mb") -> Source:
    """Read the rows of files in UTF-8 with one JSON object on each line. Blank lines are skipped.

    With `schema`, the source reads the object members that the schema names. It skips other members, and a missing
    member is null. Without `schema`, the source guesses the types from the first 1 MiB of the first file. A string with
    a date and a time is then a timestamp. Times are ISO 8601. If a column has a zone, its timestamps without a zone are
    UTC. `path`, `split_size`, compressed files and bad lines are as in `hg.sources.csv`.

    Raises SourceError for a file that cannot be read or has a bad line, and ConfigError for impossible arguments.

    ```python
    with open("gauges.jsonl", "w") as file:
        file.write('{"gauge": "weir", "level": 1.5}\\n{"gauge": "lock"}\\n')
    print(hg.StreamEnvironment().from_source(hg.sources.json_lines("gauges.jsonl")).collect().to_pylist())
    # [{'gauge': 'weir', 'level': 1.5}, {'gauge': 'lock', 'level': None}]
    ```
    """
    return JsonLinesSource(path, schema, split_size=split_size)


def text(path: Paths, *, split_size: int | str = "64 mb") -> Source:
    """Read the lines of files in UTF-8 as a column `value`, without line ends. A blank line is a row too.

    A bad line is a line that is not UTF-8 or is too long. `path`, `split_size`, compressed files and bad lines are as
    in `hg.sources.csv`.

    ```python
    with open("notes.txt", "w") as file:
        file.write("one\\ntwo\\n")
    print(hg.StreamEnvironment().from_source(hg.sources.text("notes.txt")).collect().to_pylist())
    # [{'value': 'one'}, {'value': 'two'}]
    ```
    """
    return TextSource(path, split_size=split_size)


def files(path: str | os.PathLike[str], *, format: Literal["csv", "json_lines", "parquet", "text"] = "text",
          watch: bool = False, interval: float | str = "1 s", **options: Any) -> Source:  # fmt: skip
    """Read the files of a folder or a glob in the given format. With `watch`, wait for more files.

    `options` are the options of the format's own function: `files("in/", format="csv", schema=S)` is the same as
    `csv("in/", schema=S)`.

    With `watch`, the source has no end. Every `interval` (seconds, or a string with a unit) it looks for new files, and
    one subtask reads each file once, as a whole. The name of the file decides which subtask reads it. A subtask reads
    the files that it finds at the same time in the order of their names. Rename finished files into the folder: the
    source reads each file only up to the size that the file has when the source finds it. It ignores an empty file.
    Give a `schema` if the folder may be empty at first. A subtask without a file does not hold back the watermark; see
    docs/concepts/time.md.

    Raises SourceError as the format's own function does, and ConfigError for an unknown format or option.

    ```python
    schema = pa.schema({"carrier": pa.string(), "delay": pa.int64()})
    source = hg.sources.files("*.csv", format="csv", schema=schema, watch=True, interval="500 ms")
    print(source.schema.names)  # ['carrier', 'delay']
    ```
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
    """Read lines of text in UTF-8 from a TCP server at `host:port`, as a column `value`.

    One subtask connects and reads. The stream ends when the server closes the connection. When the job restarts, the
    lines that it has read since the checkpoint are lost: the server does not send these lines again.

    Raises SourceError if the connection fails or a line is not UTF-8, and ConfigError for an impossible host or port.

    ```python
    import socket
    import threading

    def serve():
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"one\\ntwo\\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve).start()
        source = hg.sources.socket_lines("127.0.0.1", server.getsockname()[1])
        print(hg.StreamEnvironment().from_source(source).collect(limit=2).to_pylist())
    # [{'value': 'one'}, {'value': 'two'}]
    ```
    """
    return SocketLinesSource(host, port)


def parquet(path: Paths, *, columns: Sequence[str] | None = None, batch_rows: int = 16_384,
            split_size: int | str = "64 mb") -> Source:  # fmt: skip
    """Read the rows of Parquet files, at most `batch_rows` rows at a time.

    The source reads the `columns` in the given order, or all columns if `columns` is None. `path` is as in
    `hg.sources.csv`. A split is one or more whole row groups, up to `split_size` bytes uncompressed. The schema is the
    schema of the first file. If a `filter` in SQL, a `select` or a `with_columns` follows the source, the job reads
    only the columns that it needs; `explain` shows which. Raises SourceError for files that cannot be read, lack a
    column or differ in their columns. Raises ConfigError for impossible arguments.

    ```python
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": [1, 2], "s": ["x", "y"]}), "table.parquet")
    source = hg.sources.parquet("table.parquet", columns=["n"])
    print(hg.StreamEnvironment().from_source(source).collect().to_pylist())  # [{'n': 1}, {'n': 2}]
    ```
    """
    return ParquetSource(path, columns, batch_rows=batch_rows, split_size=split_size)


def iterable(items: Item | Sequence[Item] | Factory, schema: pa.Schema | None = None, *, bounded: bool = True,
             replayable: bool = True) -> Source:  # fmt: skip
    """Read batches from a list, or from a function that each subtask calls as `factory(subtask, subtasks)`.

    An item of the list is a RecordBatch, a list of dicts, or a frame: a pandas or polars DataFrame or a pyarrow Table.
    Instead of a list of items you can give one frame, one RecordBatch or rows as dicts (`[{"n": 1}, {"n": 2}]`). The
    source then cuts the rows into batches of 8192 rows. Give a `schema` for several pandas frames with missing
    integers, because pandas turns such a column into floats.

    A pandas index with a name becomes columns, as with `reset_index()`. An index of integers without a name is left
    out, because such an index only numbers the rows. Any other index without a name is a SourceError. With a `schema`,
    the source takes only the columns of the schema.

    Item i of a list goes to subtask i mod parallelism. A factory returns an iterator, which may block. A factory must
    return the same batches whenever it is called with the same arguments. If your factory cannot do so, give
    `replayable=False`: after a restart, the source then reads a new iterator from its beginning. Give `bounded=False`
    if the iterator has no end. Without `schema`, the source takes the schema of the first item. To get the first item
    of a factory, this function calls `factory(0, 1)`. Raises SourceError for an item of another schema, and ConfigError
    if the schema is unknown.

    ```python
    def numbers(subtask, subtasks):
        for start in range(subtask, 4, subtasks):
            yield [{"n": start}]

    for items in ([{"n": 5}], numbers):
        print(hg.StreamEnvironment().from_source(hg.sources.iterable(items)).collect().column("n").to_pylist())
    # [5]
    # [0, 1, 2, 3]
    ```
    """
    check(SCHEMA_OR_NONE, schema=schema)
    check(FLAG, bounded=bounded, replayable=replayable)
    if callable(items):
        return FactorySource(items, schema, bounded=bounded, replayable=replayable)
    if isinstance(items, pa.RecordBatch) or is_frame(items):
        items = batches(pa.table(items) if isinstance(items, pa.RecordBatch) else items, schema)
    elif isinstance(items, (list, tuple)) and items and all(isinstance(row, dict) for row in items):
        items = batches(pa.table(batch_of_dicts(items, schema, "iterable: the rows")), schema)
    if not isinstance(items, (list, tuple)):
        raise ConfigError(f"iterable: {_not_a_list(items)}")
    if not bounded or not replayable:
        raise ConfigError(
            "iterable: a list has an end and can be read again; bounded=False and replayable=False are for functions"
        )
    return ListSource(items, schema)


def generate(fn: RowFunction, rows: int | None = None, rate: float | None = None, schema: pa.Schema | None = None,
             time: str | None = None, *, batch_rows: int = 16_384,
             batch_time: str | float = "1 ms") -> Source:  # fmt: skip
    """Compute rows with a function: `fn(start, n)` returns rows `start` to `start + n - 1` as a RecordBatch.

    The source has the rows 0 to `rows` - 1. With `rows=None` it has no end. `fn` must be pure: row i must depend only
    on i, not on `start` and `n`. Without `schema`, the schema is the schema of `fn(0, 0)`. Rows come in blocks, and
    block b goes to subtask b mod parallelism. A block has `batch_rows` rows. With `rate`, a block has at most as many
    rows as are due in `batch_time`, but at least 1. A longer `batch_time` saves processor time, but delays a row by up
    to `batch_time`.

    `rate` is in rows per second of the whole source. Row i is due at t0 + i / rate, where t0 is the start of the job.
    Due times do not move: after a delay the source catches up. `time` is the name of a timestamp[us, UTC] column that
    the source adds. This column has the due time of each row. Without `rate`, the column has the time at which the
    row's batch was made.

    Raises UserFunctionError if `fn` raises or returns something else, and ConfigError for impossible arguments.

    ```python
    import numpy as np

    def squares(start, n):
        return pa.record_batch({"square": np.arange(start, start + n, dtype="int64") ** 2})

    rows = hg.StreamEnvironment().from_source(hg.sources.generate(squares, rows=4)).collect()
    print(rows.column("square").to_pylist())  # [0, 1, 4, 9]
    ```
    """
    return GenerateSource(fn, rows=rows, rate=rate, schema=schema, time=time, batch_rows=batch_rows,
                          batch_time=batch_time)  # fmt: skip


def poll(fn: PollFunction, schema: pa.Schema, splits: Sequence[str] = ("all",), *, interval: float | str = "1 s",
         bounded: bool = False) -> Source:  # fmt: skip
    """Ask a function for more rows, again and again: `fn(split, position)` returns `(rows, position)`.

    Use it for a source of your own that has a position, such as a page of a web service or the last id of a table.
    `rows` are a RecordBatch, a list of dicts or a frame. The returned position is what the next call gets. It may be
    any JSON value, and is None in the first call. Checkpoints hold the positions, so after a restart `fn` gets the
    position of the checkpoint. For the same split and position, `fn` must return the same rows, or more of them.

    `splits` names parts that can be read independently, such as tables or devices. Split i goes to subtask i mod
    parallelism, also after a restart with another parallelism. Each split has its own watermark. A split ends when `fn`
    returns None. When no split of a subtask has rows, the subtask waits for `interval` before it asks again. Give
    `bounded=True` if every split ends: otherwise the source counts as unbounded. A job may resume with other splits:
    new ones begin with None, and checkpoints keep the positions of those that are left out, in case they come back.

    A subtask calls `fn` on a thread of its own, so `fn` may block. The thread is at most three answers ahead of the
    job; while the job is back-pressured, it does not call `fn`. If `fn` raises, the task fails with UserFunctionError.
    Raises ConfigError for impossible arguments.

    ```python
    table = [{"id": 1}, {"id": 2}, {"id": 3}]

    def newer(split, last):
        rows = [row for row in table if row["id"] > (last or 0)][:2]
        return (rows, rows[-1]["id"]) if rows else None

    source = hg.sources.poll(newer, schema=pa.schema({"id": pa.int64()}), bounded=True)
    print(hg.StreamEnvironment().from_source(source).collect().to_pylist())  # [{'id': 1}, {'id': 2}, {'id': 3}]
    ```
    """
    check(FLAG, bounded=bounded)
    return PollSource(fn, schema, splits, interval=interval, bounded=bounded)


def _not_a_list(given: object) -> str:
    """Return a text that says why `iterable` cannot take `given` as its items, and what to give instead."""
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
