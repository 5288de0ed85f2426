"""Whether a checkpoint fits a job. The error names what is missing or has changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import CheckpointError
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.node_keys import changed_sinks, check_fits, describe, describe_exchange, node_key, vertex_key
from headgate.state.checkpoint_metadata import CheckpointMetadata, VertexState


def job(*, uid: str = "per-n", **aggregates: Any) -> JobGraph:
    env = hg.StreamEnvironment(parallelism=2)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": pa.array([1])})])).name("numbers")
    counted = rows.key_by("n").aggregate(**(aggregates or {"rows": hg.count()})).uid(uid)
    counted.filter("rows > 1").sink_to(hg.sinks.null())
    return build_job_graph(env._jobs.graph.graph(env._jobs.pending))


def checkpoint(of: JobGraph, groups: int = 128) -> CheckpointMetadata:
    with_state = [node for vertex in of.vertices for node in vertex.nodes if "filter" not in node.name]
    vertices = tuple(VertexState(vertex_key(vertex), vertex.name, groups, ()) for vertex in of.vertices)
    return CheckpointMetadata(
        id=3,
        timestamp=0.0,
        duration=0.0,
        job="delays",
        attempt=0,
        vertices=vertices,
        nodes=tuple(map(describe, with_state)),
    )


def partitioned(by: str, parallelism: int) -> JobGraph:
    env = hg.StreamEnvironment(parallelism=parallelism)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": pa.array([1])})])).rebalance()
    rows = rows.filter("n > 0").name("positive").uid("positive")
    (rows.broadcast() if by == "broadcast" else rows.partition_by(at_random)).sink_to(hg.sinks.null()).uid("null")
    return build_job_graph(env._jobs.graph.graph(env._jobs.pending))


def at_random(batch: pa.RecordBatch, subtasks: int) -> np.ndarray:
    return np.random.default_rng().integers(0, subtasks, batch.num_rows)  # type: ignore[no-any-return]


def groups(of: JobGraph) -> dict[int, int]:
    return {vertex.id: 128 for vertex in of.vertices}


def test_the_same_job_fits_and_so_does_one_with_more() -> None:
    check_fits(checkpoint(job()), job(), groups(job()))
    fewer = dataclasses.replace(checkpoint(job()), nodes=(), vertices=())
    check_fits(fewer, job(), groups(job()))


def test_the_key_of_a_node_without_uid_is_its_name_and_number() -> None:
    source, counted = job().vertices[0].head, job().vertices[1].head
    assert (node_key(source), node_key(counted)) == (f"numbers#{source.id}", "per-n")


def test_the_error_names_a_missing_node() -> None:
    with pytest.raises(CheckpointError, match=r"state of the .* under the key 'per-n', which this job does not .*uid"):
        check_fits(checkpoint(job()), job(uid="other"), groups(job()))


def test_the_error_names_what_has_changed() -> None:
    changed = job(rows=hg.count(), most=hg.max("n"))
    with pytest.raises(
        CheckpointError, match=r"with rows of \(n: int64, rows: int64\), which now are \(n: int64, rows: .*most"
    ):
        check_fits(checkpoint(job()), changed, groups(changed))
    metadata = checkpoint(job())
    nodes = tuple(dataclasses.replace(node, kind="window") for node in metadata.nodes)
    with pytest.raises(CheckpointError, match="state of the window 'numbers'; in this job 'numbers#0' is a source"):
        check_fits(dataclasses.replace(metadata, nodes=nodes), job(), groups(job()))


def prices(
    kind: pa.DataType,
    *,
    window: bool = False,
    most: pa.DataType | None = None,
    again: bool = False,
    aggregated: bool = False,
) -> JobGraph:
    """Return a job that sums prices of this type, renames the sums and writes them; another sink is beside the sums.

    With `again` an exchange is before the sink of the sums, with `aggregated` a maximum of them.
    """
    env = hg.StreamEnvironment(parallelism=2)
    schema = pa.schema({"n": pa.int64(), "at": pa.timestamp("us"), "price": kind, "other": most or pa.float64()})
    rows = env.from_source(hg.sources.iterable(lambda _i, _n: iter(()), schema), watermark=hg.Watermark("at"))
    rows.uid("source").select("other").sink_to(hg.sinks.null()).uid("beside")
    keyed = rows.key_by("n").window(hg.tumble("1 s")) if window else rows.key_by("n")
    specs = {"rows": hg.count(), "total": hg.sum("price"), "average": hg.mean("price"), "most": hg.max("other")}
    sums = keyed.aggregate(**specs).uid("sums")  # type: ignore[arg-type]
    if aggregated:
        sums = sums.changes().key_by("n").aggregate(greatest=hg.max("total")).uid("greatest")
        sums = sums.with_columns(total="greatest")
    (sums.rebalance() if again else sums).with_columns(grand="total").sink_to(hg.sinks.null()).name("grand").uid("sink")
    return build_job_graph(env._jobs.graph.graph(env._jobs.pending))


def only(metadata: CheckpointMetadata, *uids: str) -> CheckpointMetadata:
    return dataclasses.replace(metadata, nodes=tuple(node for node in metadata.nodes if node.key in uids))


FLOATS, DECIMALS = pa.float64(), pa.decimal128(20, 2)


@pytest.mark.parametrize("window", [False, True])
def test_sums_of_decimals_were_floats_in_version_1(window: bool) -> None:
    was, now = prices(FLOATS, window=window), prices(DECIMALS, window=window)
    metadata = only(checkpoint(was), "sums", "sink")
    check_fits(metadata, now, groups(now))
    [sentence] = changed_sinks(metadata, now)
    assert sentence.startswith("sink 'grand' wrote (n: int64, ")
    assert "total: double, average: double, most: double, grand: double) and now writes (n: int64, " in sentence
    assert sentence.endswith(
        "total: decimal128(30, 2), average: decimal128(24, 6), most: double, grand: decimal128(30, 2))"
    )
    assert changed_sinks(checkpoint(now), now) == []
    with pytest.raises(CheckpointError, match=r"with rows of \(.*total: double.* which now are \(.*total: decimal128"):
        check_fits(dataclasses.replace(metadata, run="a run"), now, groups(now))


@pytest.mark.parametrize(
    ("was", "now", "key"),
    [
        (prices(DECIMALS), prices(FLOATS), "sums"),  # the other way round
        (prices(pa.decimal128(21, 2)), prices(DECIMALS), "sums"),
        (prices(pa.int64()), prices(DECIMALS), "sums"),
        (prices(FLOATS, most=FLOATS), prices(DECIMALS, most=DECIMALS), "sums"),  # the maximum is of another type
        (prices(FLOATS, most=FLOATS), prices(FLOATS, most=DECIMALS), "sink"),  # no decimals are summed above it
        (prices(FLOATS, most=FLOATS), prices(DECIMALS, most=DECIMALS), "beside"),
        (prices(FLOATS), prices(DECIMALS), "source"),
    ],
)
def test_no_other_change_of_types_is_allowed(was: JobGraph, now: JobGraph, key: str) -> None:
    with pytest.raises(CheckpointError, match=r"which now are \("):
        check_fits(only(checkpoint(was), key), now, groups(now))


def test_float_sums_in_flight_are_refused() -> None:
    """The data in flight have no decimals, and nothing converts them."""
    was, now = prices(FLOATS, again=True), prices(DECIMALS, again=True)
    [edge] = [edge for edge in was.edges if node_key(was.vertex(edge.source).head) == "sums"]
    metadata = dataclasses.replace(checkpoint(was), nodes=(), exchanges=(describe_exchange(edge, was),))
    what = r"in flight at 'sums -> .*total: double.* is .*total: decimal128.*: "
    todo = "the version of Headgate that wrote it stored sums and means of decimals as double. Resume with that version"
    with pytest.raises(CheckpointError, match=f"{what}{todo}, and take a savepoint.* Then resume from it here"):
        check_fits(metadata, now, groups(now))
    with pytest.raises(CheckpointError, match=f"{what}resume from a savepoint"):  # it was not the version that changed
        check_fits(dataclasses.replace(metadata, run="a run"), now, groups(now))


def test_rows_in_flight_without_a_column_that_the_job_now_reads_are_refused() -> None:
    def sums(*columns: str) -> JobGraph:
        env = hg.StreamEnvironment(parallelism=2)
        batch = pa.record_batch({"n": pa.array([1]), "a": pa.array([1]), "b": pa.array([1])})
        rows = env.from_source(hg.sources.iterable([batch])).uid("source").key_by("n")
        rows.aggregate(final=False, **{name: hg.sum(name) for name in columns}).uid("sums").sink_to(hg.sinks.null())
        return build_job_graph(env._jobs.graph.graph(env._jobs.pending))

    was, now = sums("a"), sums("b")
    metadata = dataclasses.replace(checkpoint(was), nodes=(), exchanges=(describe_exchange(was.edges[0], was),))
    check_fits(metadata, was, groups(was))
    with pytest.raises(
        CheckpointError, match=r"of \(n: int64, a: int64\) and is now .* of \(n: int64, b: int64\): resume"
    ):
        check_fits(metadata, now, groups(now))


def test_state_made_of_float_sums_is_refused() -> None:
    was, now = prices(FLOATS, aggregated=True), prices(DECIMALS, aggregated=True)
    todo = (
        "the version of Headgate that wrote it stored sums and means of decimals as double. "
        "Resume with that version, or start"
    )
    with pytest.raises(CheckpointError, match=rf"state of the aggregate 'aggregate#2' with rows of \(.*\): {todo}"):
        check_fits(only(checkpoint(was), "greatest"), now, groups(now))


def test_other_key_groups_are_refused() -> None:
    with pytest.raises(CheckpointError, match="into 64 groups, and this job into 128: set the option"):
        check_fits(checkpoint(job(), 64), job(), groups(job()))


def test_more_subtasks_than_key_groups_are_refused_with_the_only_remedy() -> None:
    says = "checkpoint 3 has 1 key groups for 'per-n', so at most 1 subtasks; the parallelism is 2: lower it"
    with pytest.raises(CheckpointError) as caught:
        check_fits(checkpoint(job(), 1), job(), groups(job()))
    assert caught.value.message == says


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("broadcast", "each of 2 subtasks must get each row once"),
        (
            "partition_by",
            "partition_by has distributed rows to 2 subtasks, and its function may return other subtasks",
        ),
    ],
)
def test_some_rows_in_flight_need_the_same_number_of_subtasks(by: str, why: str) -> None:
    """Each subtask would distribute rows in flight for itself: a function that draws at random would lose and double
    them."""
    was = partitioned(by, 2)
    exchange = next(each for each in was.edges if each.target == was.vertices[-1].id)
    metadata = dataclasses.replace(checkpoint(was), nodes=(), exchanges=(describe_exchange(exchange, was),))
    check_fits(metadata, partitioned(by, 2), groups(was))
    with pytest.raises(CheckpointError, match=f"'positive -> null .*{why}.*this job has 3: resume from a savepoint"):
        check_fits(metadata, partitioned(by, 3), groups(was))


def test_rows_that_any_subtask_may_get_fit_another_number_of_subtasks() -> None:
    """Whether an exchange is forward or rebalance comes from the parallelism, if the program does not say."""
    two, three = (widening(parallelism, chains=False) for parallelism in (2, 3))
    for was, now in ((two, three), (three, two)):
        exchanges = (describe_exchange(was.edges[0], was),)
        check_fits(dataclasses.replace(checkpoint(was), nodes=(), exchanges=exchanges), now, groups(was))
    assert [job.edges[0].partitioning.kind for job in (two, three)] == ["forward", "rebalance"]


def widening(parallelism: int, *, again: bool = False, chains: bool = True) -> JobGraph:
    """A filter with two subtasks behind a source with as many as the job: an exchange only where that is not two, or
    the filter does not chain."""
    env = hg.StreamEnvironment(parallelism=parallelism)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": pa.array([1])})])).uid("source")
    filtered = (rows.rebalance() if again else rows).filter("n > 0").name("positive").uid("positive")
    filtered = filtered if chains else filtered.disable_chaining()
    filtered.set_parallelism(2).sink_to(hg.sinks.null()).set_parallelism(2)
    return build_job_graph(env._jobs.graph.graph(env._jobs.pending))


def test_the_error_names_an_exchange_that_chaining_removed_and_a_remedy() -> None:
    was = widening(3)
    [exchange] = was.edges
    metadata = dataclasses.replace(checkpoint(was), nodes=(), exchanges=(describe_exchange(exchange, was),))
    check_fits(metadata, widening(4), groups(was))
    now = widening(2)
    says = (
        r"in flight at 'source -> positive \[0\]', and this job chains these two nodes: they need no exchange, because "
        r"both have 2 subtasks; put .rebalance\(\) before 'positive' .*, or resume from a savepoint"
    )
    with pytest.raises(CheckpointError, match=says):
        check_fits(metadata, now, groups(now))
    check_fits(metadata, widening(2, again=True), groups(was))
