"""Joins in the plan: their columns and event time, and the arguments that they refuse."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg

BIDS = pa.schema(
    {"bid_at": pa.timestamp("us"), "origin": pa.string(), "carrier": pa.string(), "price": pa.int64(), "n": pa.int32()}
)


@pytest.fixture
def bids(plans: Any) -> hg.DataStream:
    stream: hg.DataStream = plans.read(hg.Watermark("bid_at"), BIDS)
    return stream


def test_a_join_has_the_columns_of_both_streams(plans: Any, bids: hg.DataStream) -> None:
    joined = plans.stream().join(bids, on=["carrier", "origin"], within=("-1 min", "1 min"))
    assert joined.schema.names == ["ts", "carrier", "origin", "delay", "air", "bid_at", "price", "n"]
    renamed = plans.stream().join(bids, on={"carrier": "origin"}, within=("0 s", "1 min"), suffix="_bid")
    assert renamed.schema.names == ["ts", "carrier", "origin", "delay", "air", "bid_at", "carrier_bid", "price", "n"]
    windowed = plans.stream().join(bids, on=["carrier", "origin"], window=hg.tumble("1 h"))
    assert windowed.schema.names[-2:] == ["window_start", "window_end"]
    assert windowed.schema.field("window_end").type == pa.timestamp("us")


@pytest.mark.parametrize("options", [{"within": ("-1 min", 60)}, {"window": hg.tumble("1 h")}, {"ttl": "1 h"}])
def test_a_join_is_planned_by_key_with_two_inputs(plans: Any, bids: hg.DataStream, options: Any) -> None:
    node = plans.node(plans.stream().join(bids, on={"origin": "origin"}, **options, suffix="_"), "join")
    assert [(edge.port, edge.partitioning.keys) for edge in node.inputs] == [(0, ("origin",)), (1, ("origin",))]
    assert node.parallelism == 2
    operator = pickle.loads(pickle.dumps(node.operator))()
    assert operator.schema == node.schema


def test_the_streams_may_be_unions_and_the_same_stream(plans: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stream = plans.stream().name("flights")
    both = stream.union(plans.stream().name("more"))
    joined = both.join(stream, on="carrier", within=("0 s", "0 s"), suffix="_2")
    joined.sink_to(hg.sinks.null())
    plans.env.explain()
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "3  join (inner, within (0 d, 0 d)) -> null  x2",
        "     left from 1: by key group of carrier",
        "     left from 2: by key group of carrier",
        "     right from 1: by key group of carrier",
    ]


@pytest.mark.parametrize(
    ("how", "options", "column"),
    [
        ("inner", {"within": ("0 s", "1 min")}, "ts"),
        ("left", {"within": ("0 s", "1 min")}, "ts"),
        ("right", {"within": ("0 s", "1 min")}, "bid_at"),
        ("full", {"within": ("0 s", "1 min")}, None),
        ("inner", {"within": ("ts", "ts")}, "bid_at"),
        ("left", {"within": ("ts", "ts")}, None),
        ("full", {"window": hg.tumble("1 min")}, "window_end"),
        ("inner", {"ttl": "1 min"}, None),
    ],
)
def test_the_event_time_of_a_join(plans: Any, bids: hg.DataStream, how: Any, options: Any, column: str | None) -> None:
    joined = plans.stream().join(bids, on=["carrier", "origin"], how=how, **options)
    event_time = plans.node(joined, "join").event_time
    assert (None if event_time is None else event_time.column) == column
    if column is None:
        with pytest.raises(hg.PlanError, match="there is no event time; it was lost at 'join'"):
            joined.key_by().window(hg.tumble("1 h"))


def test_a_hidden_event_time_stays_hidden(plans: Any, bids: hg.DataStream) -> None:
    joined = plans.stream().select("carrier").join(bids.select("carrier"), on="carrier", within=("0 s", "0 s"))
    assert joined.schema.names == ["carrier"]
    joined.key_by("carrier").window(hg.tumble("1 h")).aggregate(rows=hg.count())


@pytest.mark.parametrize(("how", "nullable"), [
    ("inner", (False, False)), ("left", (False, True)), ("right", (True, False)), ("full", (True, True)),
])  # fmt: skip
def test_columns_of_rows_that_may_lack_are_nullable(plans: Any, how: Any, nullable: tuple[bool, bool]) -> None:
    left, right = (
        plans.read(hg.Watermark("ts"), pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns]))
        for columns in (
            [("k", pa.int64()), ("a", pa.int64()), ("ts", pa.timestamp("us"))],
            [("k", pa.int64()), ("b", pa.int64()), ("ts", pa.timestamp("us"))],
        )
    )
    schema = left.join(right, on="k", within=("0 s", "0 s"), how=how, suffix="_2").schema
    assert (schema.field("a").nullable, schema.field("b").nullable) == nullable
    assert not schema.field("k").nullable


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"on": "nothing"}, "join: on: there is no column 'nothing'; the columns are 'ts', 'carrier'"),
    ({"on": "delay"}, "join: on, in the other stream: there is no column 'delay'"),
    ({"on": {"delay": "n"}}, "key column 'delay' is int64, and 'n' of the other stream is int32; make the types equal"),
    ({"on": []}, "on= needs at least one column"),
    ({"on": "carrier"}, "both streams have 'origin'; give suffix="),
    ({"on": "carrier", "suffix": 3}, "suffix=3 must be a string"),
    ({"within": None}, "give one of within=, window= and ttl=: without a bound of time"),
    ({"ttl": "1 h"}, "given: within, ttl"),
    ({"within": ("1 min", "0 s")}, "the lower bound is above the upper bound"),
    ({"within": ("soon", "0 s")}, "within: 'soon' is not a duration"),
    ({"within": "1 min"}, "must be a pair: the lower bound, and the upper bound"),
    ({"within": ("0 s", "delay")}, "within: column 'delay' is int64, and a bound must be a timestamp"),
    ({"within": ("delay", "1 s")}, "the lower bound of within= is a duration, or the event-time column 'ts'"),
    ({"within": None, "window": hg.hop("2 h", every="1 h")}, r"must be hg.tumble\(size\); for other ranges"),
    ({"within": None, "window": hg.tumble("1 h", time="processing")}, "must go by event time; .* use ttl="),
    ({"within": None, "ttl": 0}, "ttl=0 must be above 0"),
    ({"within": None, "ttl": "-1 s"}, "ttl='-1 s' must be above 0"),
    ({"within": None, "ttl": "1 h", "how": "left"}, "with ttl=, how='left' is not possible"),
    ({"how": "outer"}, "how='outer' must be 'inner', 'left', 'right' or 'full'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_impossible_joins_are_refused(plans: Any, bids: hg.DataStream, options: Any, words: str) -> None:
    right: dict[str, Any] = {"on": ["carrier", "origin"], "within": ("0 s", "1 min")}
    with pytest.raises(hg.PlanError, match=words):
        plans.stream().join(bids, **{**right, **options})


def test_joins_by_time_need_watermarks_on_both_sides(plans: Any, bids: hg.DataStream) -> None:
    untimed = plans.stream(timed=False).name("untimed")
    with pytest.raises(hg.PlanError, match="join: there is no event time; source 'untimed' has no watermark"):
        untimed.join(bids, on=["carrier", "origin"], within=("0 s", "1 s"))
    with pytest.raises(hg.PlanError, match="join: the other stream: there is no event time; source 'untimed'"):
        bids.join(untimed, on=["carrier", "origin"], window=hg.tumble("1 s"))
    with pytest.raises(hg.PlanError, match="join_as_of: the other stream: there is no event time"):
        bids.join_as_of(untimed, on=["carrier", "origin"])
    bids.join(untimed, on=["carrier", "origin"], ttl="1 h")


def test_joins_refuse_streams_whose_rows_replace_one_another(plans: Any, bids: hg.DataStream) -> None:
    totals = bids.key_by("carrier").aggregate(total=hg.sum("price"))
    for left, right in ((totals, plans.stream()), (plans.stream(), totals)):
        with pytest.raises(hg.PlanError, match="join: the rows of 'aggregate' replace one another"):
            left.join(right, on="carrier", ttl="1 h")
    plans.stream().join(totals.changes(), on="carrier", ttl="1 h")


def test_a_join_needs_a_stream_of_the_same_environment(bids: hg.DataStream) -> None:
    other = hg.StreamEnvironment().from_source(hg.sources.iterable([[{"carrier": "UA"}]]))
    for wrong in (other, None, pa.table({"carrier": ["UA"]})):
        with pytest.raises(hg.PlanError, match="is not a stream of this environment"):
            bids.join(wrong, on="carrier", ttl="1 h")  # type: ignore[arg-type]
        with pytest.raises(hg.PlanError, match="is not a stream of this environment"):
            bids.join_as_of(wrong, on="carrier")  # type: ignore[arg-type]


def test_an_as_of_join_is_left_or_inner_and_keeps_the_event_time(plans: Any, bids: hg.DataStream) -> None:
    joined = plans.stream().join_as_of(bids, on=["carrier", "origin"])
    assert joined.schema.names == ["ts", "carrier", "origin", "delay", "air", "bid_at", "price", "n"]
    assert plans.node(joined, "join_as_of").event_time.column == "ts"
    with pytest.raises(hg.PlanError, match="join_as_of: how='full' must be 'left' or 'inner'"):
        plans.stream().join_as_of(bids, on="carrier", how="full", suffix="_")
