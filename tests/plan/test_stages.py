"""When vertices may run: all at once, or each after all its producers."""

from __future__ import annotations

import pyarrow as pa

import headgate as hg
from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stages import Stages, at_once


def plan() -> ExecutionPlan:
    """Return a plan of two sources, a filter of one of them, a keyed vertex that reads both, and a sink behind it."""
    env = hg.StreamEnvironment(parallelism=2)
    batch = pa.record_batch({"n": pa.array([1])})
    first, second = (env.from_source(hg.sources.iterable([batch])) for _ in range(2))
    counted = first.rebalance().filter("n > 0").union(second).key_by("n").aggregate(rows=hg.count())
    counted.select("n").rebalance().sink_to(hg.sinks.null())
    return ExecutionPlan(build_job_graph(env._jobs.graph.graph(env._jobs.pending)), 2)


def test_in_streaming_mode_all_vertices_run_at_once() -> None:
    stages = Stages(plan(), batch=False)
    everything = [vertex.id for vertex in plan().job.vertices]
    assert stages.first == everything
    assert [stages.finished(vertex) for vertex in everything] == [[]] * len(everything)


def test_in_batch_mode_a_vertex_runs_after_all_its_producers() -> None:
    job = plan().job
    stages = Stages(plan(), batch=True)
    running = list(stages.first)
    assert {job.vertices[vertex].head.source is not None for vertex in running} == {True}
    done: list[int] = []
    while running:
        vertex = running.pop(0)
        assert all(edge.source in done for edge in job.inputs(job.vertices[vertex]))
        done.append(vertex)
        assert stages.finished(vertex) == [], "one of two subtasks"
        running += stages.finished(vertex)
    assert sorted(done) == [vertex.id for vertex in job.vertices]


def test_the_sets_hold_the_vertices_that_may_run_at_one_time() -> None:
    job = plan().job
    everything = {vertex.id for vertex in job.vertices}
    assert at_once(job, batch=False) == [everything]
    sets = at_once(job, batch=True)
    sources = {vertex.id for vertex in job.vertices if vertex.head.source is not None}
    assert all(vertex in together for vertex, together in zip(sorted(everything), sets, strict=True))
    assert all(sources <= sets[source] for source in sources)
    for edge in job.edges:
        assert edge.target not in sets[edge.source]
        assert edge.source not in sets[edge.target]
    last = job.vertices[-1].id
    assert sets[last] == {last}, "it waits for all others, though not for all of them directly"
