"""A source reads only the columns that the operators of its task need, and the answers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.errors import DataError
from headgate.plan.job_graph import build_job_graph
from headgate.plan.used_columns import with_used_columns

TABLE = pa.table(
    {
        "a": list(range(10)),
        "b": [2**62] * 10,
        "c": [f"text {number}" for number in range(10)],
        "day": pa.array(["x", "y"] * 5).dictionary_encode(),
        "t": pa.array(range(10), pa.timestamp("us")),
        "parts": [[number] for number in range(10)],
    }
)
EVERYTHING = set(TABLE.column_names)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(TABLE.slice(0, 7), tmp_path / "1.parquet", row_group_size=3)
    pq.write_table(TABLE.slice(7), tmp_path / "2.parquet")
    return str(tmp_path)


def stream(folder: str, parallelism: int = 1, watermark: hg.Watermark | None = None) -> hg.DataStream:
    env = hg.StreamEnvironment(parallelism=parallelism, deployment=hg.LocalDeployment(processes=False))
    return env.from_source(hg.sources.parquet(folder, batch_rows=4), watermark=watermark)


def reads(rows: hg.DataStream) -> set[str]:
    """Return the columns that the source of the stream reads."""
    sink = rows.sink_to(hg.sinks.null())
    graph = with_used_columns(build_job_graph(rows._rows.graph.graph([sink._node_id])))
    return set(graph.vertices[0].head.attributes.get("reads", EVERYTHING))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda rows: rows.select("a"), {"a"}),
        (lambda rows: rows.select(x="a + 1", y="upper(c)"), {"a", "c"}),
        (lambda rows: rows.filter("a > 3 and c like 't%'").select("t"), {"a", "c", "t"}),
        (lambda rows: rows.select(n="1"), {"a"}),  # a batch needs a column to have rows
        (lambda rows: rows.select("a", "b", "c").select("b"), {"b"}),
        (lambda rows: rows.with_columns(x="length(c)").select("a"), {"a", "c"}),  # x is computed: it may be an error
        (lambda rows: rows.filter("a > 3"), EVERYTHING),
        (lambda rows: rows.filter(pc.field("a") > 3).select("a"), EVERYTHING),
        (lambda rows: rows.filter(lambda batch: pc.greater(batch["a"], 3)).select("a"), EVERYTHING),
        (lambda rows: rows.map_batches(lambda batch: batch, schema=rows.schema).select("a"), EVERYTHING),
        (lambda rows: rows.rebalance().select("a"), EVERYTHING),  # rows that leave the task are whole
        (lambda rows: rows.select("a").key_by("a").aggregate(n=hg.count()), {"a"}),
        (lambda rows: rows.key_by("a").aggregate(n=hg.count()), EVERYTHING),
        (lambda rows: rows.select("a").union(rows.select(a="b")), {"a", "b"}),
    ],
)
def test_the_operators_of_the_task_decide(folder: str, build: Any, expected: set[str]) -> None:
    assert reads(build(stream(folder))) == expected


def test_the_watermarks_need_their_column_and_so_does_a_later_window(folder: str) -> None:
    rows = stream(folder, watermark=hg.Watermark("t"))
    assert reads(rows.select("a")) == {"a", "t"}


def test_two_consumers_need_the_columns_of_both(folder: str) -> None:
    rows = stream(folder)
    one, two = rows.select("a").sink_to(hg.sinks.null()), rows.select("c").sink_to(hg.sinks.null())
    graph = with_used_columns(build_job_graph(rows._rows.graph.graph([one._node_id, two._node_id])))
    assert graph.vertices[0].head.attributes["reads"] == ["a", "c"]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", TABLE.column_names)
def test_the_answer_is_the_same(folder: str, name: str, parallelism: int) -> None:
    found = stream(folder, parallelism).filter("a % 3 = 1").select("a", name if name != "a" else "b").collect()
    expected = TABLE.filter(pc.equal(pc.field("a") - pc.field("a"), 0)).select(found.column_names)
    expected = expected.filter(pa.array([number % 3 == 1 for number in range(10)]))
    assert found.sort_by("a").to_pylist() == expected.to_pylist()


def test_an_error_in_a_column_that_nobody_needs_stays_an_error(folder: str) -> None:
    with pytest.raises(DataError, match="64 bits"):
        stream(folder).with_columns(x="b * 4").select("a").collect()


def test_a_watched_folder_of_parquet_files_reads_them_too(folder: str) -> None:
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(hg.sources.files(folder, format="parquet", watch=True)).filter("a >= 5").select("c")
    assert reads(rows) == {"a", "c"}
    assert sorted(rows.collect(limit=5)["c"].to_pylist()) == [f"text {number}" for number in range(5, 10)]


def test_the_source_of_the_program_stays_as_it_is(folder: str) -> None:
    source = hg.sources.parquet(folder)
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(source)
    assert rows.select("a").collect().num_rows == 10
    assert rows.collect().sort_by("a") == TABLE.set_column(3, "day", rows.collect().sort_by("a")["day"])


def test_explain_says_what_is_read(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    env.from_source(hg.sources.parquet(folder)).filter("a > 1").select("c").sink_to(hg.sinks.null())
    env.explain()
    assert "parquet (reads a, c) -> filter -> select" in capsys.readouterr().out
