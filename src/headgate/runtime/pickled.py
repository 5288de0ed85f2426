"""Pickles the values that are sent to TaskManagers.

Batches and tables are written in Arrow's format. Pyarrow's own pickle of a slice contains the data outside the slice,
too. Each batch of a table would therefore contain the whole table.
"""

from __future__ import annotations

import io
from collections import ChainMap
from typing import Any, ClassVar

import cloudpickle
import pyarrow as pa


def pickled(value: object) -> bytes:
    """Return a value as bytes. Functions of the script, lambdas and nested functions are pickled by value, with the
    variables that they close over. Functions that can be imported are pickled by name.

    Raises any error of the pickling.
    """
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        {pa.RecordBatch: lambda batch: _reduced(batch), pa.Table: lambda table: _reduced(table)},
        cloudpickle.Pickler.dispatch_table,
    )


def _reduced(rows: pa.RecordBatch | pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    try:
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write(rows)
    except pa.ArrowException:  # a type that Arrow cannot write
        return rows.__reduce__()
    load = _load_batch if isinstance(rows, pa.RecordBatch) else _load_table
    return load, (sink.getvalue().to_pybytes(),)


def _load_batch(stream: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(stream).read_next_batch()


def _load_table(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
