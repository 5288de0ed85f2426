"""The names of exchanges, by which their counters are kept."""

from __future__ import annotations

import pyarrow as pa

import headgate as hg
from headgate.observe.topology import topology_of
from headgate.plan.job_graph import build_job_graph

SCHEMA = pa.schema({"n": pa.int64(), "at": pa.timestamp("us")})


def numbers(env: hg.StreamEnvironment) -> hg.DataStream:
    rows = pa.RecordBatch.from_pylist([], SCHEMA)
    return env.from_source(hg.sources.iterable([rows]), watermark=hg.Watermark("at")).name("numbers")


def names(env: hg.StreamEnvironment) -> list[str]:
    job = build_job_graph(env._jobs.graph.graph(env._jobs.pending))
    return [edge.name for edge in topology_of("job", job).edges]


def test_two_exchanges_between_the_same_operators_have_two_names() -> None:
    """A second join of this name is `join#2`, so a `#2` behind the name of the operator could mean either."""
    env = hg.StreamEnvironment(parallelism=2)
    rows = numbers(env)
    for _ in range(2):
        rows.join(rows, on="n", within=("0 s", "1 s"), suffix="_then").sink_to(hg.sinks.null())
    both = ["numbers -> join", "numbers -> join (input 2)", "numbers -> join#2", "numbers -> join#2 (input 2)"]
    assert [name for name in names(env) if name.startswith("numbers")] == both


def test_a_union_reads_a_stream_twice_and_another_once() -> None:
    env = hg.StreamEnvironment(parallelism=2)
    twice, other = numbers(env), numbers(env)
    twice.union(other, twice).rebalance().sink_to(hg.sinks.null())
    assert names(env) == ["numbers -> null", "numbers#2 -> null", "numbers -> null (input 3)"]
