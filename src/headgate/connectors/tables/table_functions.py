"""The functions `delta` and `iceberg` of `hg.sinks` and `hg.sources`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from headgate.connectors.arguments import FLAG, TEXT, WHOLE, check, check_texts
from headgate.connectors.connector import Sink, Source
from headgate.connectors.file_sinks.file_writer import file_bytes
from headgate.connectors.tables.table_columns import NewColumns, ReadNewColumns
from headgate.connectors.tables.table_sink import TableMode
from headgate.errors import ConfigError
from headgate.filesystems import absolute


def delta(
    uri: str | os.PathLike[str],
    *,
    mode: TableMode = "append",
    partition_by: str | Sequence[str] = (),
    new_columns: NewColumns = "refuse",
    storage_options: Mapping[str, str] | None = None,
    target_file_size: int | str = "128 mb",
) -> Sink:
    """Append rows to a Delta table, each exactly once. See docs/how-to/tables.md.

    `uri` is the path or URI of the table's folder, which all machines of the job must share. If there is no table, the
    sink creates it when the job starts, with `partition_by`. With `mode="error"`, a job fails if the table has rows
    when it starts without resume. The subtasks write Parquet files. When a file has about
    `target_file_size`, a subtask begins the next one; every checkpoint ends all files. When a checkpoint is complete,
    one commit of the table adds its files, and records the checkpoint's number. Readers see rows then. Without
    checkpoints, they see them at the end of the job.

    Columns go to the columns with the same names; columns that the rows lack are null. Types must be the same, apart
    from the width of whole numbers. Structs have no fields that the table lacks; nullable ones that they lack are null.
    Numbers and times within structs, lists and maps are converted. With `new_columns="add"`, the job first adds the
    columns that the table lacks.
    `storage_options` are those of the library deltalake, which makes the commits; `pyarrow.fs` writes the data files.

    Raises ConfigError for impossible arguments, and without the package deltalake. When the job starts, raises
    SinkError if the table cannot be read or written, and PlanError for columns that do not fit.

    >>> env = hg.StreamEnvironment()
    >>> rows = env.from_source(hg.sources.iterable([{"city": "Rome", "km": 7}]))
    >>> sink = rows.sink_to(hg.sinks.delta("lake/trips", partition_by="city"))
    """
    from headgate.connectors.tables.delta_sink import DeltaSink

    names = [partition_by] if isinstance(partition_by, str) else partition_by
    check_texts(partition_by=names)
    _check_choice(TableMode, mode=mode)
    _check_choice(NewColumns, new_columns=new_columns)
    return DeltaSink(
        uri, names, mode=mode, new_columns=new_columns, file_bytes=file_bytes(target_file_size),
        storage_options=_options("storage_options", storage_options),
    )  # fmt: skip


def iceberg(
    table: str,
    catalog: str = "default",
    *,
    mode: TableMode = "append",
    new_columns: NewColumns = "refuse",
    options: Mapping[str, str] | None = None,
    target_file_size: int | str = "128 mb",
) -> Sink:
    """Append rows to an Iceberg table, each exactly once. See docs/how-to/tables.md.

    `table` is `namespace.name`. `catalog` is the name of a catalog in pyiceberg's configuration, and `options` are
    further properties of the catalog, such as `{"type": "sql", "uri": ...}`. If there is no table, the sink creates it
    when the job starts, without partitions. An existing table may have partitions by identity, year, month, day or
    hour. Files, commits, `mode`, `new_columns` and `target_file_size` are as for `hg.sinks.delta`.

    Raises ConfigError for impossible arguments, and without the package pyiceberg. When the job starts, raises
    SinkError if the catalog does not answer or there is no namespace, and PlanError for columns that do not fit.

    >>> env = hg.StreamEnvironment()
    >>> rows = env.from_source(hg.sources.iterable([{"city": "Rome", "km": 7}]))
    >>> sink = rows.sink_to(hg.sinks.iceberg("lake.trips", "main", options={"type": "in-memory"}))
    """
    from headgate.connectors.tables.iceberg_sink import IcebergSink

    check(TEXT, table=table, catalog=catalog)
    if not all(table.split(".")) or "." not in table:
        raise ConfigError(f"iceberg: table={table!r} must be namespace.name")
    _check_choice(TableMode, mode=mode)
    _check_choice(NewColumns, new_columns=new_columns)
    return IcebergSink(
        table, catalog, mode=mode, new_columns=new_columns, options=_options("options", options),
        file_bytes=file_bytes(target_file_size),
    )  # fmt: skip


def delta_source(
    uri: str | os.PathLike[str],
    *,
    start: int | None = None,
    interval: float | str = "1 s",
    bounded: bool = False,
    batch_rows: int = 65_536,
    columns: Sequence[str] | None = None,
    new_columns: ReadNewColumns = "ignore",
    storage_options: Mapping[str, str] | None = None,
) -> Source:
    """Read the rows of a Delta table, and later those that new versions add. See docs/how-to/tables.md.

    `uri` is the path or URI of the table's folder, which all machines of the job must share. The source reads all rows
    of the newest version, then the files that each later version adds. While there is no later version, it looks again
    after each `interval`; with `bounded`, the input ends. `start` is a version: the source then reads only the rows
    that later versions add. The place is kept in checkpoints, so each row is read once, also after a failure.

    One subtask reads, `batch_rows` at a time. The columns are those of the table when the source is made, or `columns`.
    A job that resumes must read the same columns as before. Columns that the table gets later are not read; with
    `new_columns="refuse"`, they fail the job. A version that only rewrites files, as `OPTIMIZE` does, adds no rows.
    `storage_options` are those of the library deltalake, which reads the table's log; `pyarrow.fs` reads the data
    files.

    Raises ConfigError for impossible arguments, and without the package deltalake. Raises PlanError if the table lacks
    one of `columns`. Raises SourceError if there is no table, for a version that removes or changes rows, for a version
    whose files or log are gone, and for new columns that are refused.

    ```python
    import deltalake

    deltalake.write_deltalake("lake/numbers", pa.table({"n": [1, 2]}))
    numbers = hg.StreamEnvironment().from_source(hg.sources.delta("lake/numbers", bounded=True))
    print(numbers.collect()["n"].to_pylist())  # [1, 2]
    ```
    """
    from headgate.connectors.tables.delta_source import DeltaSource

    _check_reading("delta", start, bounded, batch_rows, columns)
    _check_choice(ReadNewColumns, new_columns=new_columns)
    return DeltaSource(
        absolute(uri), start=start, batch_rows=batch_rows, interval=interval, bounded=bounded,
        columns=columns, new_columns=new_columns, storage_options=_options("storage_options", storage_options),
    )  # fmt: skip


def iceberg_source(
    table: str,
    catalog: str = "default",
    *,
    start: int | None = None,
    interval: float | str = "1 s",
    bounded: bool = False,
    batch_rows: int = 65_536,
    columns: Sequence[str] | None = None,
    new_columns: ReadNewColumns = "ignore",
    options: Mapping[str, str] | None = None,
) -> Source:
    """Read the rows of an Iceberg table, and later those that new snapshots add. See docs/how-to/tables.md.

    `table`, `catalog` and `options` are as for `hg.sinks.iceberg`. The source reads all rows of the newest snapshot,
    then the files that each later snapshot adds. While there is no later snapshot, it looks again after each
    `interval`; with `bounded`, the input ends. `start` is the ID of a snapshot: the source then reads only the rows
    that later snapshots add; 0 is the beginning of the history. The place is kept in checkpoints, so each row is read
    once, also after a failure.

    One subtask reads, `batch_rows` at a time. The columns are those of the table when the source is made, or `columns`;
    a column that gets another name later is still found. A job that resumes must read the same columns as before.
    Columns that the table gets later are not read; with `new_columns="refuse"`, they fail the job. A snapshot that only
    rewrites files adds no rows.

    Raises ConfigError for impossible arguments, and without the package pyiceberg. Raises PlanError if the table lacks
    one of `columns`. Raises SourceError if there is no table, or a snapshot has expired. Also raises it for a snapshot
    that removes or changes rows, for deleted rows, for files that are not Parquet, and for new columns that are
    refused.

    ```python
    import pathlib

    options = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": f"file://{pathlib.Path.cwd()}/lake"}
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("here", **options)
    catalog.create_namespace("lake")
    catalog.create_table("lake.numbers", pa.schema({"n": pa.int64()})).append(pa.table({"n": [1, 2]}))
    source = hg.sources.iceberg("lake.numbers", "here", options=options, bounded=True)
    print(hg.StreamEnvironment().from_source(source).collect()["n"].to_pylist())  # [1, 2]
    ```
    """
    from headgate.connectors.tables.iceberg_source import IcebergSource

    check(TEXT, table=table, catalog=catalog)
    _check_reading("iceberg", start, bounded, batch_rows, columns)
    _check_choice(ReadNewColumns, new_columns=new_columns)
    return IcebergSource(
        table, catalog, start=start, batch_rows=batch_rows, interval=interval, bounded=bounded,
        columns=columns, new_columns=new_columns, options=_options("options", options),
    )  # fmt: skip


def _check_reading(name: str, start: int | None, bounded: bool, batch_rows: int, columns: Sequence[str] | None) -> None:
    if columns is not None:
        check_texts(columns=columns)
        if not columns or len(set(columns)) < len(columns):
            raise ConfigError(f"{name}: columns={columns!r} must name one or more columns, none twice")
    check(FLAG, bounded=bounded)
    check(WHOLE, batch_rows=batch_rows)
    if batch_rows < 1:
        raise ConfigError(f"{name}: batch_rows= must be at least 1")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int) or start < 0):
        raise ConfigError(f"{name}: start={start!r} must be a version of the table, a whole number from 0")


def _check_choice(choices: Any, **argument: str) -> None:
    [(name, value)] = argument.items()
    if value not in get_args(choices):
        raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, get_args(choices)))}")


def _options(name: str, given: Mapping[str, str] | None) -> Mapping[str, str]:
    options = {} if given is None else given
    if not isinstance(options, Mapping) or not all(isinstance(text, str) for pair in options.items() for text in pair):
        raise ConfigError(f"{name}= must be a dict of strings")
    return options
