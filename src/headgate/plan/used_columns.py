"""Finds the columns that a task needs from its source. The source then reads only these columns.

If SQL expressions compute something from texts, the source may give these texts with dictionaries: an expression is
then evaluated once for each different text, and not for each row.

Only the operators of the source's own task count, and the columns that its exchanges send. An exchange sends all
columns, except to an aggregation, which says what it reads: a checkpoint may store the rows of the exchange, and a job
that resumes from the checkpoint may need other columns than this job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.connectors.connector import Source
from headgate.plan.graph import ColumnUse, Node
from headgate.plan.job_graph import JobGraph, JobVertex
from headgate.records.arrow import is_text


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
    texts = _texts_to_compute_with(vertex, head) if head.id not in leaving else frozenset()
    given = head.source.with_dictionaries(texts) if texts else head.source
    if given is not head.source:
        head = replace(head, source=given, with_dictionaries=texts)
    if not used >= set(head.schema.names):
        head = _reading(head, given, used)
    return replace(vertex, nodes=(head, *vertex.nodes[1:]))


def _reading(head: Node, given: Source, used: frozenset[str]) -> Node:
    source = given.reading(used)
    if source is given:
        return head
    attributes = {**head.attributes, "reads": [name for name in head.schema.names if name in used]}
    return replace(head, source=source, attributes=attributes)


def _texts_to_compute_with(vertex: JobVertex, head: Node) -> frozenset[str]:
    """Return the columns of texts that the source's consumers compute something from, if all of them take
    dictionaries."""
    uses = [consumer.uses for consumer in vertex.chained_consumers(head.id, None)]
    computed = set[str]()
    for each in uses:
        if each is None:
            return frozenset()
        computed |= each.read
    return frozenset(field.name for field in head.schema if field.name in computed and is_text(field.type))


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
