"""A source reads only the columns that the operators of its task need, and the answers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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


def counted(rows: hg.DataStream) -> hg.DataStream:
    return rows.key_by("a").aggregate(n=hg.count(), final=True)


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
        (lambda rows: rows.key_by("a").aggregate(n=hg.count()), {"a"}),
        (lambda rows: rows.key_by("a").aggregate(n=hg.count(), most=hg.max("b")), {"a", "b"}),
        (lambda rows: rows.key_by("a").aggregate(n=hg.count(where="c = 'x' and b > 3")), {"a", "b", "c"}),
        (lambda rows: rows.key_by("a").aggregate(n=hg.count(where=pc.field("b") > 3)), EVERYTHING),  # it hides names
        (lambda rows: rows.key_by("a").window(hg.count_window(3)).aggregate(n=hg.sum("b")), {"a", "b"}),
        (lambda rows: rows.key_by("a").window(hg.count_window(3)).top(1, by="b"), EVERYTHING),
        (lambda rows: rows.key_by("a").top(1, by="b"), EVERYTHING),
        (lambda rows: rows.key_by().aggregate(n=hg.count()), {"a"}),
        (lambda rows: rows.filter("b > 3").select("a", "c", "t").key_by("a").aggregate(n=hg.count()), {"a", "b"}),
        (lambda rows: counted(rows).union(rows.select("a", n="1").rebalance()), {"a"}),
        (lambda rows: rows.select("a").union(rows.select(a="b")), {"a", "b"}),
    ],
)
def test_the_operators_of_the_task_decide(folder: str, build: Any, expected: set[str]) -> None:
    assert reads(build(stream(folder))) == expected


def test_the_watermarks_need_their_column_and_so_does_a_later_window(folder: str) -> None:
    rows = stream(folder, watermark=hg.Watermark("t"))
    assert reads(rows.select("a")) == {"a", "t"}


def test_a_window_needs_the_time_and_its_late_rows_need_all_columns(folder: str) -> None:
    by_day = stream(folder, watermark=hg.Watermark("t")).key_by("day").window(hg.tumble("1 h"))
    assert reads(by_day.aggregate(n=hg.count(), most=hg.max("b"))) == {"day", "t", "b"}
    assert reads(by_day.late_output("late").aggregate(n=hg.count())) == EVERYTHING
    timed = stream(folder, watermark=hg.Watermark("t")).key_by("day")
    assert reads(timed.aggregate(newest=hg.last("a"))) == {"day", "t", "a"}


def test_each_exchange_sends_what_its_aggregation_reads(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(hg.sources.parquet(folder), watermark=hg.Watermark("t"))
    sums = rows.select("day", "b").key_by("day").aggregate(total=hg.max("b"))
    counts = rows.key_by("c").aggregate(n=hg.count())
    timed = rows.select("day", "a").key_by("day").window(hg.tumble("1 h")).aggregate(n=hg.count())
    for result in (sums, counts, timed):
        result.sink_to(hg.sinks.null())
    env.explain()
    explained = capsys.readouterr().out
    assert "(reads b, c, day, t)" in explained  # the window does not read "a", which the select passes on
    assert "by key group of c (sends c)" in explained
    assert "by key group of day (sends day)" in explained  # and the hidden time
    assert "by key group of day\n" in explained


class Longest(hg.AggregateFunction):
    state = pa.schema({"length": pa.int64()})
    type = pa.int64()

    def create(self, count: int) -> dict[str, Any]:
        return {"length": np.zeros(count, np.int64)}

    def accumulate(self, values: pa.RecordBatch, groups: Any, count: int) -> dict[str, Any]:
        lengths = np.zeros(count, np.int64)
        np.maximum.at(
            lengths, groups, pc.binary_length(values["c"]).to_numpy().astype(np.int64) + values["a"].to_numpy()
        )
        return {"length": lengths}

    def merge(self, states: pa.RecordBatch, others: pa.RecordBatch) -> dict[str, Any]:
        return {"length": pc.max_element_wise(states["length"], others["length"])}

    def result(self, states: pa.RecordBatch) -> Any:
        return states["length"]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda rows: rows.select("a", x="upper(c)"), {"c"}),
        (lambda rows: rows.select("a", "c"), set()),  # nothing is computed
        (lambda rows: rows.select("c", x="concat(day, c)"), {"c", "day"}),
        (lambda rows: rows.filter("c like '%1'").select("day"), {"c"}),
        (lambda rows: rows.filter("a > 1").select(x="upper(c)"), set()),  # only the first operator takes them
        (lambda rows: rows.filter(lambda batch: pc.greater(batch["a"], 3)), set()),
        (lambda rows: rows.rebalance().select(x="upper(c)"), set()),
        (lambda rows: rows.key_by("c").aggregate(n=hg.count()), set()),
        (lambda rows: rows.select(x="upper(c)").union(rows.select(x="lower(day)")), {"c", "day"}),
        (lambda rows: rows.select(x="upper(c)").union(rows.select(x="day").rebalance()), {"c"}),
        (lambda rows: rows.select(x="upper(c)").union(rows.rebalance().select(x="c")), set()),
    ],
)
def test_texts_have_dictionaries_if_all_operators_take_them(folder: str, build: Any, expected: set[str]) -> None:
    rows = build(stream(folder))
    graph = with_used_columns(build_job_graph(rows._rows.graph.graph([rows.sink_to(hg.sinks.null())._node_id])))
    assert graph.vertices[0].head.with_dictionaries == expected


@pytest.mark.parametrize("parallelism", [1, 2])
def test_texts_with_dictionaries_give_the_same_answer(folder: str, parallelism: int) -> None:
    rows = stream(folder, parallelism, hg.Watermark("t"))
    found = rows.select("day", "a", x="concat(upper(day), c)").collect().sort_by("a").to_pylist()
    assert found == [
        {"day": day, "a": a, "x": f"{day.upper()}text {a}"}
        for day, a in zip(TABLE["day"].to_pylist(), range(10), strict=True)
    ]
    kept = rows.filter("day = 'x' and c <> 'text 2'").collect().sort_by("a")
    assert kept["c"].to_pylist() == ["text 0", "text 4", "text 6", "text 8"]
    assert kept.schema.field("day").type == pa.string()


@pytest.mark.parametrize("processes", [False, True])
def test_aggregates_of_few_columns_have_the_answers_of_all(folder: str, processes: bool) -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=processes))
    rows = env.from_source(hg.sources.parquet(folder, batch_rows=2), watermark=hg.Watermark("t"))
    found = (
        rows.rebalance()
        .key_by("day")
        .aggregate(n=hg.count(where="length(c) = 6"), total=hg.sum("a"), newest=hg.last("c"),
                   longest=Longest()("c", "a"), odd=hg.count(where="a % 2 = 1 and t is not null"), final=True)
    ).collect()  # fmt: skip
    assert found.sort_by("day").to_pylist() == [
        {"day": "x", "n": 5, "total": 20, "newest": "text 8", "longest": 14, "odd": 0},
        {"day": "y", "n": 5, "total": 25, "newest": "text 9", "longest": 15, "odd": 5},
    ]
    windows = rows.key_by("day").window(hg.tumble("1 s")).aggregate(most=hg.max("a")).collect()
    assert windows.sort_by("day").select(["day", "most"]).to_pylist() == [
        {"day": "x", "most": 8},
        {"day": "y", "most": 9},
    ]


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
    upper = env.from_source(hg.sources.files(folder, format="parquet", watch=True)).select(x="upper(c)", y="day")
    assert sorted(upper.collect(limit=10)["x"].to_pylist()) == [f"TEXT {number}" for number in range(10)]


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
