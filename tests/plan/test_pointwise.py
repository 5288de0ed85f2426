"""Pointwise edges: both ends compute the same channels, every subtask has one, and shares are even."""

from __future__ import annotations

import pytest

from headgate.plan.execution import Channel, ExecutionPlan, neighbours
from headgate.plan.graph import FORWARD, REBALANCE, RESCALE, Partitioning
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex

PARALLELISMS = [(mine, others) for mine in range(1, 9) for others in range(1, 9)]


def plan(partitioning: Partitioning, producers: int, consumers: int) -> tuple[ExecutionPlan, JobEdge]:
    edge = JobEdge(id=0, source=0, source_node=0, target=1, target_input=0, partitioning=partitioning)
    vertices = (JobVertex(0, "producer", producers, ()), JobVertex(1, "consumer", consumers, ()))
    return ExecutionPlan(JobGraph(vertices, (edge,)), 1), edge


@pytest.mark.parametrize(("mine", "others"), PARALLELISMS)
def test_both_ends_see_the_same_neighbours(mine: int, others: int) -> None:
    from_here = {(one, other) for one in range(mine) for other in neighbours(one, mine, others)}
    from_there = {(one, other) for other in range(others) for one in neighbours(other, others, mine)}
    assert from_here == from_there
    counts = [len(neighbours(one, mine, others)) for one in range(mine)]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1
    assert len(from_here) == max(mine, others), "no more channels than it takes"


@pytest.mark.parametrize(("producers", "consumers"), PARALLELISMS)
def test_every_subpartition_of_a_rescale_has_one_reader(producers: int, consumers: int) -> None:
    execution, edge = plan(RESCALE, producers, consumers)
    read = [channel for consumer in range(consumers) for channel in execution.channels(edge, consumer)]
    counts = [len(execution.consumers(edge, producer)) for producer in range(producers)]
    written = [Channel(producer, index) for producer, count in enumerate(counts) for index in range(count)]
    assert sorted(read, key=repr) == sorted(written, key=repr)


def test_forward_joins_equal_numbers_and_rebalance_joins_all() -> None:
    execution, edge = plan(FORWARD, 3, 3)
    assert [execution.channels(edge, consumer) for consumer in range(3)] == [[Channel(n, 0)] for n in range(3)]
    execution, edge = plan(REBALANCE, 2, 3)
    assert execution.consumers(edge, 1) == range(3)
    assert execution.channels(edge, 2) == [Channel(0, 2), Channel(1, 2)]
