"""Plans of three vertices, as the coordinator sees them: read, work and write."""

from __future__ import annotations

from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import REBALANCE
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex


def three_vertices(readers: int = 1, workers: int = 1, writers: int = 1, *, branches: bool = False) -> ExecutionPlan:
    """All tasks of one vertex are joined with all of the next, and where it branches readers with writers, too."""
    sizes = {"read": readers, "work": workers, "write": writers}
    vertices = tuple(JobVertex(number, name, size, ()) for number, (name, size) in enumerate(sizes.items()))
    edges = [JobEdge(0, 0, 0, 1, 0, REBALANCE), JobEdge(1, 1, 1, 2, 0, REBALANCE)]
    if branches:
        edges.append(JobEdge(2, 0, 0, 2, 1, REBALANCE))
    return ExecutionPlan(JobGraph(vertices, tuple(edges)), 1)
