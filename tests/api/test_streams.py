"""What each call on a stream adds to the plan, and the arguments that it refuses."""

from __future__ import annotations

import pickle
import time

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.api.checks import check_schema
from headgate.plan.graph import BROADCAST, FORWARD, LOAD_AWARE, REBALANCE, RESCALE, SHUFFLE, TO_ONE, Partitioning

SEATS = pa.table({"origin": ["JFK", "EWR"], "gates": [120, 95]})


def names(graph):
    return [node.name for node in graph.nodes]


def test_a_chain_of_calls_is_a_chain_of_nodes(plans):
    stream = plans.stream().filter("delay > 5").select("carrier", late="delay - 5")
    graph = plans.graph(stream)
    assert names(graph) == ["paper", "filter", "select", "project", "null"]
    assert [node.inputs[0].source for node in graph.nodes[1:]] == [node.id for node in graph.nodes[:-1]]
    assert graph.nodes[-1].schema == pa.schema({"carrier": pa.string(), "late": pa.int64()})


def test_operators_can_be_pickled(plans):
    stream = plans.stream().filter("delay > 5").with_columns(half="delay / 2").select("carrier", "half")
    for node in plans.graph(stream).nodes:
        if node.operator is not None:
            pickle.loads(pickle.dumps(node.operator))()


def test_streams_are_immutable_and_used_more_than_once(plans):
    stream = plans.stream()
    before = stream.schema
    graph = plans.graph(stream.filter("delay > 1"), stream.with_columns(x="delay + 1"))
    assert stream.schema == before
    assert len([node for node in graph.nodes if node.source is not None]) == 1
    assert len(graph.consumers(graph.nodes[0].id)) == 2


def test_a_second_operator_of_a_name_gets_a_number(plans):
    stream = plans.stream().filter("delay > 1").filter("delay > 2").filter("delay > 3").name("filter#2")
    assert names(plans.graph(stream)) == ["paper", "filter", "filter#3", "filter#2", "null"]


def test_name_uid_and_chaining_belong_to_the_last_operator(plans):
    stream = plans.stream().filter("delay > 1").name("slow ones").uid("f").disable_chaining()
    node = plans.node(stream, "slow ones")
    assert (node.uid, node.chaining) == ("f", False)


def test_a_uid_belongs_to_one_operator(plans):
    stream = plans.stream().uid("a").filter("delay > 1").uid("a")
    with pytest.raises(hg.PlanError, match="'paper' and 'filter' have the same uid 'a'"):
        plans.graph(stream)


@pytest.mark.parametrize("label", ["", "  ", 3, None])
def test_a_name_must_be_a_string_that_is_not_empty(plans, label):
    with pytest.raises(hg.PlanError, match="must be a string"):
        plans.stream().name(label)


@pytest.mark.parametrize("what", ["name", "uid", "the job's name"])
def test_a_name_must_be_text_that_utf_8_can_encode(plans, what):
    """The name of a file may have a surrogate, and people name operators by files."""
    call = {
        "name": lambda label: plans.stream().name(label),
        "uid": lambda label: plans.stream().uid(label),
        "the job's name": lambda label: plans.stream().sink_to(hg.sinks.null()) and plans.env.execute(label),
    }[what]
    with pytest.raises(hg.PlanError, match=rf"{what} 'caf\\udce9\.csv' has .*; use 'caf\?\.csv'"):
        call("caf\udce9.csv")


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.select("carier"),
        lambda s: s.key_by("carier"),
        lambda s: s.filter("carier = 'AA'"),
        lambda s: s.with_columns(x="carier"),
        lambda s: s.lookup(SEATS, on="carier"),
    ],
)
def test_an_unknown_column_lists_those_that_exist(plans, call):
    with pytest.raises(hg.PlanError, match=r"(?s)carier.*delay") as error:
        call(plans.stream())
    assert "__event_time__" not in str(error.value)


def test_select_needs_columns_with_different_names(plans):
    for wrong in [lambda s: s.select(), lambda s: s.select("delay", delay="1"), lambda s: s.select("delay", "delay")]:
        with pytest.raises(hg.PlanError):
            wrong(plans.stream())


def test_the_hidden_column_name_is_reserved(plans):
    reserved = pa.schema({"__event_time__": pa.timestamp("us"), "ts": pa.timestamp("us")})
    for wrong in [
        lambda: plans.stream(reserved),
        lambda: plans.stream().with_columns(__event_time__="ts"),
        lambda: plans.stream().select(__event_time__="ts"),
        lambda: plans.stream().map_batches(lambda batch: batch, schema=reserved),
    ]:
        with pytest.raises(hg.PlanError, match="reserved"):
            wrong()


def test_functions_need_a_schema_and_a_function(plans):
    stream = plans.stream()
    with pytest.raises(TypeError, match="schema"):
        stream.map(lambda row: row)
    with pytest.raises(hg.PlanError, match=r"schema= must be a pyarrow\.Schema"):
        stream.map_batches(lambda batch: batch, schema={"a": "int64"})
    with pytest.raises(hg.PlanError, match="must be a function"):
        stream.flat_map("split", schema=stream.schema)
    with pytest.raises(hg.PlanError, match="two columns named 'a'"):
        stream.map(dict, schema=pa.schema([("a", pa.int64()), ("a", pa.int64())]))


def test_a_wide_schema_is_checked_in_linear_time():
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(10_000)])
    began = time.process_time()
    check_schema("map", schema)
    assert time.process_time() - began < 2.0, "a fifth of a second; with a search for each name, many seconds"


def test_a_filter_takes_sql_an_expression_or_a_function(plans):
    stream = plans.stream().filter("delay > 1").filter(pc.field("delay") > 2)
    assert stream.filter(lambda batch: pc.greater(batch["delay"], 3)).schema == stream.schema
    for wrong in [3, "delay + 1", None]:
        with pytest.raises(hg.PlanError):
            stream.filter(wrong)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_lookup_takes_a_frame(plans, kind):
    frame = kind({"carrier": ["AA", "UA"], "name": ["American", "United"]})
    assert plans.stream().lookup(frame, on="carrier").schema.field("name").type in (pa.string(), pa.large_string())


def test_lookup_adds_columns(plans):
    stream = plans.stream().lookup(SEATS, on="origin", columns=["gates"])
    assert stream.schema.field("gates").type == pa.int64()
    assert stream.schema.names[:-1] == plans.stream().schema.names
    with pytest.raises(hg.PlanError, match="how="):
        stream.lookup(SEATS, on="origin", how="outer")
    with pytest.raises(hg.PlanError, match="gates"):
        stream.lookup(SEATS, on="origin")


def test_explain_shows_the_keys_of_a_lookup_and_when_it_reads_again(plans, capsys, tmp_path):
    pq.write_table(SEATS, tmp_path / "seats.parquet")
    stream = plans.stream()
    schema = pa.schema({"name": pa.string()})
    looked_up = [
        stream.lookup(SEATS, on="origin", columns=["gates"]),
        stream.lookup(tmp_path / "seats.parquet", on="origin", columns=["gates"], how="inner", refresh="600 s"),
        stream.lookup(lambda keys: keys, on=["origin", "carrier"], schema=schema, cache_ttl="90 s"),
    ]
    for each in looked_up:
        each.sink_to(hg.sinks.null())
    plans.env.explain()
    shown = capsys.readouterr().out
    assert "lookup (left, by origin) -> null" in shown
    assert "lookup#2 (inner, by origin, refresh 10 min) -> null#2" in shown
    assert "lookup#3 (left, by origin, carrier, cache_ttl 90 s) -> null#3" in shown


def test_union_refuses_streams_with_other_columns(plans):
    one, other = plans.stream(), plans.stream().select("ts", "carrier")
    with pytest.raises(hg.PlanError, match="here 'origin' string, there no column"):
        one.union(other)
    with pytest.raises(hg.PlanError, match="not a stream of this environment"):
        one.union(type(plans)().stream())
    graph = plans.graph(one.union(plans.stream(), plans.stream()))
    assert len(graph.nodes[-1].inputs) == 3


def test_a_union_is_no_operator(plans):
    with pytest.raises(hg.PlanError, match="union is not an operator"):
        plans.stream().union(plans.stream()).name("all")


def test_edges_forward_where_parallelism_is_equal(plans):
    stream = plans.stream().filter("delay > 1").filter("delay > 2").set_parallelism(3)
    assert [edge.partitioning for node in plans.graph(stream).nodes for edge in node.inputs] == [
        FORWARD, REBALANCE, REBALANCE,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("rebalance", REBALANCE),
        ("broadcast", BROADCAST),
        ("forward", FORWARD),
        ("rescale", RESCALE),
        ("shuffle", SHUFFLE),
        ("to_one", TO_ONE),
    ],
)
def test_a_partitioning_call_sets_that_of_the_next_edge(plans, call, kind):
    stream = getattr(plans.stream(), call)().filter("delay > 1")
    assert plans.node(stream, "filter").inputs[0].partitioning == kind


def test_a_function_or_the_load_can_partition_rows(plans):
    def by_delay(batch, _subtasks):
        return batch["delay"]

    stream = plans.stream().partition_by(by_delay).filter("delay > 1")
    assert plans.node(stream, "filter").inputs[0].partitioning == Partitioning("custom", function=by_delay)
    stream = plans.stream().rebalance(load_aware=True).filter("delay > 1").name("loaded")
    assert plans.node(stream, "loaded").inputs[0].partitioning == LOAD_AWARE
    with pytest.raises(hg.PlanError, match="partition_by: the first argument must be a function"):
        plans.stream().partition_by("delay")
    with pytest.raises(hg.PlanError, match="load_aware='yes' must be True or False"):
        plans.stream().rebalance(load_aware="yes")


def test_to_one_gives_the_next_operator_one_subtask(plans):
    assert plans.node(plans.stream().to_one().filter("delay > 1"), "filter").parallelism == 1


def test_forward_needs_equal_parallelism(plans):
    source = plans.stream().set_parallelism(3)
    forwarded = source.forward().filter("delay > 1")
    assert plans.node(forwarded, "filter").parallelism == 3
    with pytest.raises(hg.PlanError, match="both need the same parallelism"):
        forwarded.set_parallelism(2)
    with pytest.raises(hg.PlanError, match="both need the same parallelism"):
        source.set_parallelism(2)
    assert {node.parallelism for node in plans.graph(forwarded).nodes[:2]} == {3}


def test_key_by_partitions_by_key_groups(plans):
    stream = plans.stream().key_by("carrier", "origin").filter("delay > 1")
    assert plans.node(stream, "filter").inputs[0].partitioning == Partitioning("key_group", ("carrier", "origin"))


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, True, "2", 40_000])
def test_an_impossible_parallelism_is_refused(plans, parallelism):
    with pytest.raises(hg.PlanError, match="parallelism"):
        plans.stream().set_parallelism(parallelism)


def test_the_number_of_key_groups_limits_the_parallelism(plans):
    few = type(plans)(parallelism=4, max_parallelism=4)
    with pytest.raises(hg.PlanError, match="raise the option max_parallelism"):
        few.stream().set_parallelism(5)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda s: s.filter("m > 1"), "filter"),
        (lambda s: s.select("ts", x="m + 1"), "select: x"),
        (lambda s: s.with_columns(x="m + 1"), "with_columns: x"),
    ],
)
def test_the_error_of_wrong_sql_names_the_call(plans, call, where):
    with pytest.raises(hg.PlanError, match=rf"^{where}: SQL at position 1: no column 'm'; the columns are: ts, "):
        call(plans.stream())


def test_arguments_without_their_names_and_lists_are_refused(plans):
    stream, other = plans.stream(), plans.stream()
    with pytest.raises(hg.PlanError, match="join: give '1 h' by name: join"):
        stream.join(other, "carrier", "1 h")
    with pytest.raises(hg.PlanError, match="join: give one of within=, window= and ttl="):
        stream.join(other, "carrier")
    with pytest.raises(hg.PlanError, match="top: give True by name: top"):
        stream.key_by("carrier").top(2, "delay", True)
    assert stream.key_by("carrier").top(2, "delay").schema.names[-1] == "rank"
