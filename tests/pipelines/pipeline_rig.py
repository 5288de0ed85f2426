"""What the pipeline tests share: rows out of order, jobs over them, and DuckDB's answer to the same question."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import headgate as hg

ROWS, BATCH = 3_000, 250
BOUND = timedelta(seconds=5)
SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"),
        "name": pa.string(),
        "number": pa.int64(),
        "ratio": pa.float64(),
        "score": pa.float64(),
    }
)


def events() -> pa.Table:
    """Rows out of order by less than `BOUND`, with nulls and NaN in all columns that can have them."""
    random = np.random.default_rng(17)
    times = np.arange(ROWS) * 20_000 + random.integers(0, BOUND // timedelta(microseconds=1), ROWS)
    names = np.array(["", "a", "b", "été", "x" * 700, None], dtype=object)[random.integers(0, 6, ROWS)]
    scores = random.normal(size=ROWS).round(3)
    scores[random.random(ROWS) < 0.02] = math.nan
    scores[random.random(ROWS) < 0.02] = -0.0
    return pa.table(
        [
            pa.array(times + 1_700_000_000_000_000).cast(pa.timestamp("us")),
            pa.array(names.tolist(), pa.string()),
            pa.array(random.integers(-50, 50, ROWS), mask=random.random(ROWS) < 0.1),
            pa.array(random.choice([0.0, -0.0, 1.5, math.nan], ROWS), mask=random.random(ROWS) < 0.1),
            pa.array(scores, mask=random.random(ROWS) < 0.2),
        ],
        schema=SCHEMA,
    )


EVENTS = events()


def stream_of(env: hg.StreamEnvironment, bound: timedelta = BOUND) -> hg.DataStream:
    """All of `EVENTS`."""
    batches = EVENTS.to_batches(max_chunksize=BATCH)
    return env.from_source(hg.sources.iterable(batches), watermark=hg.Watermark("ts", out_of_orderness=bound))


def expected(query: str) -> pa.Table:
    """DuckDB's answer over the table `events`."""
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("events", EVENTS)
        return database.sql(query).to_arrow_table()


def assert_same(actual: pa.Table, wanted: pa.Table) -> None:
    """The same rows, in whatever order; floats to 1e-9, and NaN is NaN."""
    assert actual.column_names == wanted.column_names
    pairs = list(zip(_rows(actual, wanted.column_names), _rows(wanted, wanted.column_names), strict=True))
    different = [pair for pair in pairs if not all(map(_same, *pair))]
    assert not different, f"{len(different)} of {len(pairs)} rows differ, first {different[0]}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _rows(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    """Rows in an order that nulls, NaN and rounding do not disturb, with -0.0 as 0.0."""
    rows = zip(*(table[column].to_pylist() for column in columns), strict=True)
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=lambda row: tuple(map(_order, row)))


def _plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _order(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if value != value else (1, round(value, 6) if isinstance(value, float) else value)
