"""Windows agree with DuckDB and with a plain dict: with disorder, nulls, NaN, hops, strings and several columns."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.operators.aggregates import aggregates as hg
from headgate.operators.operator import MAX_TIME
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_kinds import Windows
from tests.examples import examples
from tests.operators.window_rig import attach, multiset, rows_of

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("carrier", pa.string()),
        ("grade", pa.float64()),
        ("t", pa.timestamp("us")),
        ("seats", pa.int64()),
        ("delay", pa.float64()),
        ("tail", pa.string()),
    ]
)
AGGREGATES = {
    "rows": (hg.count(), "count(*)"),
    "known": (hg.count("tail"), "count(tail)"),
    "total": (hg.sum("seats"), "sum(seats)::bigint"),
    "delay": (hg.sum("delay"), "sum(delay)"),
    "mean_seats": (hg.mean("seats"), "avg(seats)"),
    "mean": (hg.mean("delay"), "avg(delay)"),
    "least": (hg.min("delay"), "min(delay)"),
    "most": (hg.max("delay"), "max(delay)"),
    "least_seats": (hg.min("seats"), "min(seats)"),
    "least_tail": (hg.min("tail"), "min(tail)"),
    "most_tail": (hg.max("tail"), "max(tail)"),
    "latest_t": (hg.max("t"), "max(t)"),
    "first_tail": (hg.first("tail"), "arg_min_null(tail, t)"),
    "last_delay": (hg.last("delay"), "arg_max_null(delay, t)"),
    "tails": (hg.count_distinct("tail"), "count(distinct tail)"),
    "delays": (hg.count_distinct("delay"), "count(distinct delay)"),
    "spread": (hg.stddev("seats"), "stddev_samp(seats)"),
    "variance": (hg.var("seats"), "var_samp(seats)"),
    "many": (hg.count(where="seats > 100"), "count(*) filter (where seats > 100)"),
    "of_many": (hg.sum("seats", where="seats > 100"), "(sum(seats) filter (where seats > 100))::bigint"),
    "named": (hg.max("delay", where=pc.field("tail") != ""), "max(delay) filter (where tail <> '')"),
    "last_of_many": (hg.last("tail", where="seats > 100"), "arg_max_null(tail, t) filter (where seats > 100)"),
    "different": (hg.count_distinct("tail", where="seats > 100"), "count(distinct tail) filter (where seats > 100)"),
    "least_named": (hg.min("tail", where="seats > 100"), "min(tail) filter (where seats > 100)"),
    "listed": (
        hg.collect_list("seats", where="seats > 900"),
        "coalesce(list(seats) filter (where seats > 900), [])",
    ),
    "all_seats": (hg.collect_list("seats"), "coalesce(list(seats) filter (where seats is not null), [])"),
}
SPECS = tuple((name, spec) for name, (spec, _) in AGGREGATES.items())


def flights(rows: int, seed: int, distinct: int) -> pa.Table:
    """Return rows out of order by up to ten seconds, with nulls, NaN and both zeros in keys and values."""
    random = np.random.default_rng(seed)
    carriers = np.array(["AA", "", None, *(f"carrier number {i}" for i in range(distinct))], object)
    grades = np.array([0.0, -0.0, math.nan, None, 1.5], object)
    delays = np.array([math.nan, None, *np.round(random.normal(0, 50, 200), 3)], object)
    tails = np.array([None, "", *(f"N{i:0{1 + i % 30}}" for i in range(100))], object)
    times = np.arange(rows) * 50_000 - 20 * SECOND
    shuffled = np.argsort(times + random.integers(0, 10 * SECOND, rows), kind="stable")
    columns = [
        pa.array(random.choice(carriers, rows), pa.string()),
        pa.array(random.choice(grades, rows), pa.float64(), from_pandas=False),
        pa.array(times[shuffled], pa.timestamp("us")),
        pa.array(random.integers(-1000, 1000, rows), mask=random.random(rows) < 0.2),
        pa.array(random.choice(delays, rows), pa.float64(), from_pandas=False),
        pa.array(random.choice(tails, rows), pa.string()),
    ]
    return pa.table(columns, schema=SCHEMA)


def run(table: pa.Table, keys: tuple[str, ...], windows: Windows, bound: int, batch: int) -> list[tuple[Any, ...]]:
    operator = WindowAggregate(
        keys, time_column="t", time_offset=0, windows=windows, aggregates=SPECS, input_schema=table.schema
    )
    kept = attach(operator)
    largest = -(1 << 62)
    for part in table.to_batches(max_chunksize=batch):
        operator.process(part)
        largest = max(largest, *part.column("t").cast(pa.int64()).to_pylist())
        operator.process_watermark(largest - bound)
    assert kept.rows, "windows fire before the input ends"
    operator.process_watermark(MAX_TIME)
    operator.end_input()
    assert operator.late_rows == 0
    return kept.rows


def ask_duckdb(table: pa.Table, keys: tuple[str, ...], windows: Windows) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"{sql} as {name}" for name, (_, sql) in AGGREGATES.items())
    names = "".join(f"{key}, " for key in keys)
    with duckdb.connect() as connection:
        connection.execute("set threads=1")
        connection.register("flights", table)
        return rows_of(
            connection.sql(f"""
                with numbered as (select *, epoch_us(t) as us from flights),
                windowed as (
                    select *, unnest(range(
                        cast(floor((us - {windows.size}) / {windows.every}) as bigint) + 1,
                        cast(floor(us / {windows.every}) as bigint) + 1)) as number
                    from numbered)
                select {names} make_timestamp(number * {windows.every}) as window_start,
                    make_timestamp(number * {windows.every} + {windows.size}) as window_end, {columns}
                from windowed group by {names} number
            """).to_arrow_table()
        )


@pytest.mark.turns(3)
@pytest.mark.parametrize("keys", [("carrier",), ("grade", "carrier"), ("seats",), ()], ids=str)
@pytest.mark.parametrize(
    "windows",
    [Windows(5 * SECOND, 5 * SECOND), Windows(7 * SECOND, 2 * SECOND), Windows(10 * SECOND, 2 * SECOND)],
    ids=["tumbling", "a hop that is no divisor", "in panes"],
)
def test_windows_agree_with_duckdb(keys: tuple[str, ...], windows: Windows) -> None:
    table = flights(3000, seed=len(keys), distinct=20)
    expected = multiset(ask_duckdb(table, keys, windows))
    assert multiset(run(table, keys, windows, 10 * SECOND, batch=257)) == expected


def test_many_windows_in_a_batch_and_dictionary_columns() -> None:
    windows = Windows(SECOND // 10, SECOND // 10)
    plain = flights(6000, seed=7, distinct=1000)
    encoded = plain
    for name in ("carrier", "tail"):
        index = plain.schema.get_field_index(name)
        encoded = encoded.set_column(index, name, plain.column(name).dictionary_encode())
    expected = multiset(ask_duckdb(plain, ("carrier",), windows))
    assert multiset(run(encoded, ("carrier",), windows, 10 * SECOND, batch=2000)) == expected


ROW = st.tuples(st.sampled_from(["a", "b", "", None]), st.integers(-60, 60), st.one_of(st.none(), st.integers(-5, 5)))
STEPS = st.lists(st.one_of(st.lists(ROW, min_size=1, max_size=12), st.integers(-80, 80)), max_size=12)


@settings(max_examples=examples(150))
@given(STEPS, st.integers(1, 20), st.integers(1, 6), st.sampled_from([0, 0, 1, 7, 20]), st.integers(-3, 3))
def test_late_rows_and_windows_agree_with_a_plain_dict(
    steps: list[list[tuple[str | None, int, int | None]] | int], every: int, hops: int, more: int, offset: int
) -> None:
    windows = Windows(every * hops + more, every)
    schema = pa.schema([("key", pa.string()), ("t", pa.timestamp("us")), ("value", pa.int64())])
    operator = WindowAggregate(
        ("key",),
        time_column="t",
        time_offset=offset,
        windows=windows,
        aggregates=(("n", hg.count()), ("total", hg.sum("value"))),
        input_schema=schema,
    )
    kept = attach(operator)
    held: dict[tuple[str | None, int], list[int | None]] = defaultdict(list)
    expected: list[tuple[Any, ...]] = []
    watermark, late = -(1 << 63), 0
    for step in [*steps, MAX_TIME]:
        if isinstance(step, int):
            operator.process_watermark(step)
            watermark = max(watermark, step)
            for key, start in sorted(held, key=lambda entry: entry[1]):
                if start + windows.size <= watermark:
                    values = [value for value in held[key, start] if value is not None]
                    expected.append((key, start, len(held.pop((key, start))), sum(values) if values else None))
            continue
        columns = [pa.array([row[i] for row in step], field.type) for i, field in enumerate(schema)]
        operator.process(pa.record_batch(columns, schema=schema))
        for key, time, value in step:
            last = (time + offset) // every * every
            late += last + windows.size <= watermark
            for start in range(last, time + offset - windows.size, -every):
                if start + windows.size > watermark:
                    held[key, start].append(value)
    table = pa.Table.from_batches(kept.batches, operator.schema)
    starts = table.column("window_start").cast(pa.int64()).to_pylist()
    rows = list(zip(table["key"].to_pylist(), starts, table["n"].to_pylist(), table["total"].to_pylist(), strict=True))
    assert multiset(rows) == multiset(expected)
    assert [row[1] for row in rows] == [row[1] for row in expected], "windows come in the order of their ends"
    assert operator.late_rows == late


@settings(max_examples=examples(150))
@given(STEPS, st.integers(1, 10), st.integers(1, 6), st.sampled_from([0, 0, 3]), st.integers(0, 60))
def test_with_lateness_a_changed_window_is_emitted_whole_while_it_is_retained(
    steps: list[list[tuple[str | None, int, int | None]] | int], every: int, hops: int, more: int, lateness: int
) -> None:
    windows = Windows(every * hops + more, every)
    schema = pa.schema([("key", pa.string()), ("t", pa.timestamp("us")), ("value", pa.int64())])
    aggregates = (("n", hg.count()), ("total", hg.sum("value")))
    operator = WindowAggregate(
        ("key",),
        time_column="t",
        time_offset=0,
        windows=windows,
        aggregates=aggregates,
        input_schema=schema,
        allowed_lateness=lateness,
    )
    kept = attach(operator)
    held: dict[tuple[str | None, int], list[int | None]] = defaultdict(list)
    watermark, late = -(1 << 62), 0
    for step in [*steps, MAX_TIME]:
        before, kept.events = watermark, []
        if isinstance(step, int):
            operator.process_watermark(step)
            watermark = max(watermark, step)
            changed = {entry for entry in held if before < entry[1] + windows.size <= watermark}
        else:
            columns = [pa.array([row[i] for row in step], field.type) for i, field in enumerate(schema)]
            operator.process(pa.record_batch(columns, schema=schema))
            changed = set()
            for key, time, value in step:
                last = time // every * every
                late += last + windows.size + lateness <= watermark
                for start in range(last, time - windows.size, -every):
                    if start + windows.size + lateness > watermark:
                        held[key, start].append(value)
                        changed |= {(key, start)} if start + windows.size <= watermark else set()
        expected = []
        for key, start in changed:
            values = [value for value in held[key, start] if value is not None]
            expected.append((key, start, len(held[key, start]), sum(values) if values else None))
        table = pa.Table.from_batches(kept.batches, operator.schema)
        starts = table.column("window_start").cast(pa.int64()).to_pylist()
        counted = [table["key"].to_pylist(), starts, table["n"].to_pylist(), table["total"].to_pylist()]
        assert multiset(list(zip(*counted, strict=True))) == multiset(expected)
        assert starts == sorted(starts), "windows come in the order of their ends"
    assert operator.late_rows == late
