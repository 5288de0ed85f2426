"""Finds the columns that a task needs from its source. The source then reads only these columns.

Only the operators of the source's own task count, and the columns that its exchanges send. An exchange sends all
columns, except to an aggregation, which says what it reads: a checkpoint may store the rows of the exchange, and a job
that resumes from the checkpoint may need other columns than this job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.plan.graph import ColumnUse, Node
from headgate.plan.job_graph import JobGraph, JobVertex


def with_used_columns(graph: JobGraph) -> JobGraph:
    """Return the job graph with sources that read only the columns that their tasks need."""
    return replace(graph, vertices=tuple(_with_used_columns(graph, vertex) for vertex in graph.vertices))


def _with_used_columns(graph: JobGraph, vertex: JobVertex) -> JobVertex:
    head = vertex.head
    if head.source is None or head.sides:
        return vertex
    leaving = _leaving(graph, vertex)
    used = _used(vertex, head, leaving)
    if head.watermark is not None:
        used |= {head.watermark.column}
    used = used or frozenset(head.schema.names[:1])  # a batch without a column has no number of rows
    if used >= set(head.schema.names):
        return vertex
    source = head.source.reading(used)
    if source is head.source:
        return vertex
    attributes = {**head.attributes, "reads": [name for name in head.schema.names if name in used]}
    return replace(vertex, nodes=(replace(head, source=source, attributes=attributes), *vertex.nodes[1:]))


def _leaving(graph: JobGraph, vertex: JobVertex) -> dict[int, frozenset[str]]:
    """Return the columns that leave the task, by the id of the node whose rows they are."""
    leaving: dict[int, frozenset[str]] = {}
    for edge in graph.edges:
        if edge.source == vertex.id:
            sent = graph.schema(edge).names
            leaving[edge.source_node] = leaving.get(edge.source_node, frozenset()).union(sent)
    return leaving


def _used(vertex: JobVertex, node: Node, leaving: Mapping[int, frozenset[str]]) -> frozenset[str]:
    """Return the columns of a node's output that its consumers need. `leaving` has the columns that leave the task."""
    everything = frozenset(node.schema.names)
    used = leaving.get(node.id, frozenset())
    for consumer in vertex.chained_consumers(node.id, None):
        if consumer.uses is None:
            return everything
        used |= _needed(consumer.uses, _used(vertex, consumer, leaving))
    return used


def _needed(uses: ColumnUse, of_output: frozenset[str]) -> frozenset[str]:
    return uses.read | {name for output, name in uses.passed.items() if output in of_output}
