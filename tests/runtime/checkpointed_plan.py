"""Plans of three vertices, as the coordinator sees them: read, work and write."""

from __future__ import annotations

import pyarrow as pa

from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import REBALANCE, Node
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex


def _node(number: int, name: str, size: int) -> Node:
    return Node(id=number, name=name, parallelism=size, schema=pa.schema([]))


def three_vertices(readers: int = 1, workers: int = 1, writers: int = 1, *, branches: bool = False) -> ExecutionPlan:
    """All tasks of one vertex are joined with all of the next, and where it branches readers with writers, too."""
    sizes = {"read": readers, "work": workers, "write": writers}
    vertices = tuple(
        JobVertex(number, name, size, (_node(number, name, size),)) for number, (name, size) in enumerate(sizes.items())
    )
    edges = [
        JobEdge(id=0, source=0, source_node=0, target=1, target_input=0, partitioning=REBALANCE),
        JobEdge(id=1, source=1, source_node=1, target=2, target_input=0, partitioning=REBALANCE),
    ]
    if branches:
        edges.append(JobEdge(id=2, source=0, source_node=0, target=2, target_input=1, partitioning=REBALANCE))
    return ExecutionPlan(JobGraph(vertices, tuple(edges)), 1)
