"""Aggregates of no rows: SQL's answer, for one global key; nothing for keys and windows."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

import headgate as hg

SCHEMA = pa.schema(
    {
        "key": pa.int64(),
        "n": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "d": pa.decimal128(9, 2),
        "at": pa.timestamp("us"),
    }
)
NOTHING = pa.table({field.name: pa.array([], field.type) for field in SCHEMA})
AGGREGATES = {
    "rows": (hg.count(), "count(*)"),
    "some": (hg.count("n"), "count(n)"),
    "different": (hg.count_distinct("s"), "count(distinct s)"),
    "total": (hg.sum("n"), "sum(n)::bigint"),
    "float": (hg.sum("f"), "sum(f)"),
    "exact": (hg.sum("d"), "sum(d)"),
    "mean": (hg.mean("n"), "avg(n)"),
    "least": (hg.min("s"), "min(s)"),
    "most": (hg.max("at"), 'max("at")'),
    "first": (hg.first("n"), 'first(n order by "at")'),
}


def nothing(**options: Any) -> hg.DataStream:
    threads = hg.LocalDeployment(processes=False)
    env = hg.StreamEnvironment(parallelism=2, deployment=threads, config=hg.Config(**options))
    return env.from_source(hg.sources.iterable([], schema=SCHEMA), watermark=hg.Watermark("at"))


def aggregates() -> dict[str, Any]:
    return {name: aggregate for name, (aggregate, _) in AGGREGATES.items()}


@pytest.mark.parametrize("mode", ["streaming", "batch"])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("final", [True, False])
def test_a_global_aggregate_is_that_of_duckdb(final: bool, parallelism: int, mode: str) -> None:
    found = nothing(execution_mode=mode).key_by().aggregate(final=final, **aggregates()).set_parallelism(parallelism)
    with duckdb.connect() as database:
        database.register("nothing", NOTHING)
        columns = ", ".join(f"{sql} as {name}" for name, (_, sql) in AGGREGATES.items())
        wanted = database.sql(f"select {columns} from nothing").to_arrow_table()
    assert found.collect().to_pylist() == wanted.to_pylist()


def test_a_list_of_no_rows_is_empty() -> None:
    assert nothing().key_by().aggregate(final=True, all=hg.collect_list("n")).collect().to_pylist() == [{"all": []}]


def test_rows_that_are_all_filtered_out_are_no_rows() -> None:
    rows = [pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}])]
    env = hg.StreamEnvironment(parallelism=2)
    stream = env.from_source(hg.sources.iterable(rows)).filter("n > 5").key_by()
    assert stream.aggregate(final=True, rows=hg.count(), total=hg.sum("n")).collect().to_pylist() == [
        {"rows": 0, "total": None}
    ]


def test_keys_and_windows_have_no_row() -> None:
    assert nothing().key_by("key").aggregate(final=True, **aggregates()).collect().num_rows == 0
    for keys in ((), ("key",)):
        windows = nothing().key_by(*keys).window(hg.tumble("1 s"))
        assert windows.aggregate(**aggregates()).collect().num_rows == 0
