"""Side outputs: rows that a function puts aside are a stream of their own, with the time of the rest."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from tests.pipelines.pipeline_rig import SCHEMA, assert_same, expected, stream_of

NAMES = pa.schema({"ts": pa.timestamp("us"), "name": pa.string()})


def environment(parallelism: int, processes: bool = False) -> hg.StreamEnvironment:
    deployment = hg.LocalDeployment(taskmanagers=2, processes=processes)
    return hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(paranoid=True), deployment=deployment)


def split(batch: pa.RecordBatch) -> Any:
    """Rows with a number go on; of the others the names go aside, and of those without a name also the times."""
    without = batch.filter(pc.is_null(batch["number"]))
    nameless = without.filter(pc.is_null(without["name"])).select(["ts"])
    names = hg.SideOutput("names", without.select(["ts", "name"]))
    return [batch.filter(pc.is_valid(batch["number"])), names, hg.SideOutput("nameless", nameless)]


def split_stream(env: hg.StreamEnvironment) -> hg.DataStream:
    sides = {"names": NAMES, "nameless": pa.schema({"ts": pa.timestamp("us")})}
    return stream_of(env).map_batches(split, schema=SCHEMA, side_outputs=sides)


@pytest.mark.turns(2)
@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_row_goes_its_way(parallelism: int, processes: bool) -> None:
    env = environment(parallelism, processes)
    stream = split_stream(env)
    outputs = [hg.sinks.collect() for _ in range(3)]
    stream.filter("number > 0").sink_to(outputs[0])
    stream.side_output("names").rebalance().filter("name <> 'a'").sink_to(outputs[1])
    stream.side_output("nameless").sink_to(outputs[2])
    env.execute()
    assert_same(outputs[0].to_table(), expected("select * from events where number > 0"))
    assert_same(outputs[1].to_table(), expected("select ts, name from events where number is null and name <> 'a'"))
    assert_same(outputs[2].to_table(), expected("select ts from events where number is null and name is null"))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_event_time_goes_along(parallelism: int) -> None:
    names = split_stream(environment(parallelism)).side_output("names")
    counts = names.key_by("name").window(hg.tumble("20 s")).aggregate(rows=hg.count()).collect()
    wanted = """
        select name, time_bucket(interval 20 seconds, ts, timestamp '1970-01-01') as window_start,
            window_start + interval 20 seconds as window_end, count(*) as rows
        from events where number is null group by all
    """
    assert_same(counts, expected(wanted))


def test_a_side_output_alone_runs_its_operator() -> None:
    """Nobody reads the main rows, nor one of the sides."""
    names = split_stream(environment(2)).side_output("names").select("name")
    assert_same(names.collect(), expected("select name from events where number is null"))


def test_functions_on_rows_put_rows_aside() -> None:
    def sort(row: dict[str, Any]) -> Any:
        return {"n": row["number"]} if row["number"] is not None else hg.SideOutput("none", {"name": row["name"]})

    def sort_both(row: dict[str, Any]) -> Any:
        yield sort(row)
        yield hg.SideOutput("all", {"n": row["number"]})

    numbers, name = pa.schema({"n": pa.int64()}), pa.schema({"name": pa.string()})
    stream = stream_of(environment(2)).map(sort, schema=numbers, side_outputs={"none": name})
    assert_same(stream.collect(), expected("select number as n from events where number is not null"))
    assert_same(stream.side_output("none").collect(), expected("select name from events where number is null"))
    both = stream_of(environment(2)).flat_map(sort_both, schema=numbers, side_outputs={"none": name, "all": numbers})
    assert_same(both.side_output("all").collect(), expected("select number as n from events"))
    assert_same(both.collect(), expected("select number as n from events where number is not null"))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (
            hg.SideOutput("other", None),
            r"SideOutput\('other', ...\), which side_outputs=.* does not declare; declared are 'names",
        ),
        (hg.SideOutput("names", pa.record_batch({"x": [1]})), "other columns than schema= declares"),
        (hg.SideOutput("names", {"name": "a"}), "must return a pyarrow RecordBatch.*returned dict"),
    ],
)
def test_wrong_side_rows_are_errors(part: hg.SideOutput, words: str) -> None:
    stream = stream_of(environment(1)).map_batches(lambda batch: part, schema=SCHEMA, side_outputs={"names": NAMES})
    with pytest.raises(hg.UserFunctionError, match=rf"(?s)map_batches\[0\]: .*<lambda> .*{words}"):
        stream.collect()


def test_a_row_function_without_side_outputs_says_so() -> None:
    stream = stream_of(environment(1)).map(lambda row: hg.SideOutput("x", row), schema=SCHEMA)
    with pytest.raises(hg.UserFunctionError, match=r"returned a SideOutput\('x', ...\).* does not declare$"):
        stream.collect()


def test_plans_name_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    env = environment(2)
    stream = split_stream(env)
    with pytest.raises(hg.PlanError, match="'map_batches' has no side output 'name'; it has 'names', 'nameless'"):
        stream.side_output("name")
    with pytest.raises(hg.PlanError, match="'filter' has no side output 'names'; it has none; functions declare"):
        stream.filter("number > 0").side_output("names")
    with pytest.raises(hg.PlanError, match="this stream is the side output 'names' itself"):
        stream.side_output("names").side_output("nameless")
    for sides in ({"x": "int64"}, {"": SCHEMA}, [SCHEMA], {"x": pa.schema([])}):
        with pytest.raises(hg.PlanError, match="map: "):
            stream.map(dict, schema=SCHEMA, side_outputs=sides)  # type: ignore[arg-type]
    stream.sink_to(hg.sinks.null())
    stream.side_output("names").sink_to(hg.sinks.printer())
    stream.side_output("nameless").rebalance().sink_to(hg.sinks.null())
    env.explain()
    assert capsys.readouterr().out.splitlines() == [
        "1  iterable -> map_batches -> [null, (names) printer]  x2",
        "2  null#2                                              x2",
        "     from 1 (nameless): rebalance",
    ]
