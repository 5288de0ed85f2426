"""The rows of a join as tables of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headgate.operators.joins.coded_rows import CodedRows, Codes
from headgate.operators.joins.columns import NO_ROWS
from headgate.operators.joins.sorted_runs import Run
from headgate.records.canonical import Bools, Int64s, as_arrow, null_mask, raw_values
from headgate.records.hashing import key_groups, key_hash
from headgate.state.keys import check_key_groups
from headgate.state.snapshot import KEY_GROUP

#: How many rows of a table are computed, or restored, at once.
_PIECE = 1 << 15


def keyed_rows(rows: pa.RecordBatch, keys: Sequence[int], max_parallelism: int) -> dict[str, pa.Array]:
    """Return rows as columns of a snapshot's table: the key group, the key columns, and then all other columns."""
    names, arrays = rows.schema.names, [rows.column(key) for key in keys]
    groups = key_groups(key_hash(arrays), max_parallelism).astype(np.int32)
    columns = {KEY_GROUP: as_arrow(groups)}
    columns |= {f"key {names[key]}": array for key, array in zip(keys, arrays, strict=True)}
    return columns | {f"row {name}": rows.column(at) for at, name in enumerate(names) if at not in keys}


def rows_of(batch: pa.RecordBatch, schema: pa.Schema, keys: Sequence[int]) -> pa.RecordBatch:
    """Return the rows that `keyed_rows` was given, from a batch of the columns that it returned."""
    names = [f"{'key' if at in keys else 'row'} {name}" for at, name in enumerate(schema.names)]
    return pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)


def table_of(schema: pa.Schema, keys: Sequence[int], runs: Sequence[Run], gone: int, max_parallelism: int) -> pa.Table:
    """Return those rows of `runs` whose span does not end before `gone`, with the span, and whether a row has a
    partner."""

    def piece(rows: pa.RecordBatch, begins: Int64s, ends: Int64s, matched: Bools) -> pa.Table:
        span = {"begin": as_arrow(begins), "end": as_arrow(ends), "matched": as_arrow(matched)}
        return pa.table(keyed_rows(rows, keys, max_parallelism) | span)

    no_rows = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)
    tables = [piece(no_rows, NO_ROWS, NO_ROWS, np.zeros(0, np.bool_))]
    for run in runs:
        living = run.living(gone)
        for batch, at, places in run.rows.split(run.at.take(living)):
            those = living[places]
            for begin in range(0, len(at), _PIECE):
                some = those[begin : begin + _PIECE]
                rows = batch.take(as_arrow(at[begin : begin + _PIECE]))
                tables.append(piece(rows, run.begins.take(some), run.ends.take(some), run.matched.take(some)))
    return pa.concat_tables(tables)


def loaded(
    table: pa.Table, schema: pa.Schema, keys: Sequence[int], codes: Codes, max_parallelism: int
) -> Iterator[Run]:
    """Yield the runs of a table that `table_of` returned. Raises ValueError for rows that no join writes."""
    check_key_groups(table, len(keys), max_parallelism)
    for batch in table.to_batches():
        if not batch.num_rows:
            continue
        columns = [batch.column(name) for name in ("begin", "end", "matched")]
        checked = [*columns, *(batch.column(1 + at) for at in range(len(keys)))]
        if any(null_mask(column) is not None for column in checked):
            raise ValueError("a row of a join has no key or no span")
        begins, ends = (raw_values(column).view(np.int64) for column in columns[:2])
        if (begins == ends).all():
            ends = begins
        matched = raw_values(columns[2]).astype(np.bool_)
        rows = rows_of(batch, schema, keys)
        rows = rows.take(as_arrow(np.arange(len(rows))))  # a slice would keep the whole file in memory
        probe = CodedRows.of(rows, keys, (begins, ends), codes, matched)
        yield Run.of_rows(probe, None)
