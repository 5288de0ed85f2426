"""What a node is called in a checkpoint, and whether a checkpoint fits the job that is to resume from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from headgate.errors import CheckpointError
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.state.checkpoint_metadata import CheckpointMetadata, ExchangeDescription, NodeDescription

#: Rows in flight that cannot be distributed again to another number of subtasks, by the kind of their partitioning, and
#: why.
_DEALT_ONCE: Final = {
    "broadcast": "each of {} subtasks is to get each row once",
    "custom": "partition_by has distributed rows to {} subtasks, and its function may give another answer now",
}
#: Any subtask may get any row. Which of these an exchange has may come from the parallelism alone.
_TO_ANY: Final = frozenset({"forward()", "rebalance()", "load_aware()", "rescale()", "shuffle()"})
#: What to do about sums that version 1 has as float64, where nothing converts them.
_FLOATS: Final = "sums and means of decimals were double in the Headgate that wrote it. "
_FLOAT_STATE: Final = f"{_FLOATS}Go on with that version, or start without this checkpoint"
_FLOATS_IN_FLIGHT: Final = (
    f"{_FLOATS}Resume it with that version, and there take a savepoint (job.stop(savepoint=...)) or a checkpoint "
    "without unaligned=True, which have nothing in flight; resume from that one here"
)


def node_key(node: Node) -> str:
    """A node's uid or, without one, its name and number: those change when the pipeline does."""
    return node.uid if node.uid is not None else f"{node.name}#{node.id}"


def vertex_key(vertex: JobVertex) -> str:
    """The node key of its head."""
    return node_key(vertex.head)


def exchange_key(edge: JobEdge, job: JobGraph) -> str:
    """The node keys at its ends, which output of the one it is of, and which input of the other."""
    tag = "" if edge.tag is None else f" ({edge.tag})"
    return f"{node_key(_source_node(edge, job))}{tag} -> {vertex_key(job.vertex(edge.target))} [{edge.target_input}]"


def describe_exchange(edge: JobEdge, job: JobGraph) -> ExchangeDescription:
    """What decides where data go that are in flight there."""
    keys = ", ".join(edge.partitioning.keys)
    return ExchangeDescription(
        exchange_key(edge, job),
        f"{edge.partitioning.kind}({keys})",
        _columns(_source_node(edge, job).output_schema(edge.tag)),
        job.vertex(edge.source).parallelism,
        job.vertex(edge.target).parallelism,
    )


def _source_node(edge: JobEdge, job: JobGraph) -> Node:
    return next(node for node in job.vertex(edge.source).nodes if node.id == edge.source_node)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def describe(node: Node) -> NodeDescription:
    """What must not change when a job resumes from a checkpoint that has something of this node."""
    return NodeDescription(node_key(node), node.name, _kind(node), _columns(node.schema))


def check_fits(metadata: CheckpointMetadata, job: JobGraph, max_parallelism: Mapping[int, int]) -> None:
    """Raises CheckpointError, naming the node, when the job lacks one that has something in the checkpoint, or has
    another in its place. `max_parallelism` is each vertex's, by id. Nodes that the checkpoint does not have start
    empty."""
    nodes = {node_key(node): node for vertex in job.vertices for node in vertex.nodes}
    for was in metadata.nodes:
        what = f"checkpoint {metadata.id} of job {metadata.job!r} holds what the {was.kind} {was.name!r} kept"
        if was.key not in nodes:
            raise CheckpointError(
                f"{what} under the key {was.key!r}, which this job does not have: give that node its name and place "
                "again, or .uid(...) what it has there; keys of this job: " + ", ".join(map(repr, nodes))
            )
        now = describe(nodes[was.key])
        if now.kind != was.kind:
            raise CheckpointError(f"{what}; in this job {was.key!r} is a {now.kind}: start without this checkpoint")
        if now.schema != was.schema and not _floats_became_decimals(metadata, was, nodes[was.key], job):
            rows = f"of rows ({was.schema}), which now are ({now.schema})"
            back = "change them back, or start without this checkpoint"
            todo = _FLOAT_STATE if _has_float_sums(metadata, nodes[was.key], job) else back
            raise CheckpointError(f"{what} {rows}: {todo}")
    _check_key_groups(metadata, job, max_parallelism)
    _check_exchanges(metadata, job)


def changed_sinks(metadata: CheckpointMetadata, job: JobGraph) -> list[str]:
    """Of each sink whose columns have other types than in the checkpoint, which `check_fits` allows, its name and what
    has changed."""
    were = {node.key: node.schema for node in metadata.nodes if node.kind == "sink"}
    sinks = [node for vertex in job.vertices for node in vertex.nodes if node.sink is not None]
    return [
        f"sink {node.name!r} wrote ({were[node_key(node)]}) and now writes ({_columns(node.schema)})"
        for node in sinks
        if were.get(node_key(node), _columns(node.schema)) != _columns(node.schema)
    ]


def _floats_became_decimals(metadata: CheckpointMetadata, was: NodeDescription, node: Node, job: JobGraph) -> bool:
    """Whether nothing but this has changed: sums and means of decimals were float64 in version 1."""
    if not metadata.is_of_version_1:
        return False
    changed = set(_decimal_sums(node))
    if node.sink is not None and any(map(_decimal_sums, _above(node, job))):
        changed = set(node.schema.names)  # on their way there columns get other names
    fields = (_was_text(field, field.name in changed and pa.types.is_decimal(field.type)) for field in node.schema)
    return re.fullmatch(", ".join(fields), was.schema) is not None


def _has_float_sums(metadata: CheckpointMetadata, node: Node, job: JobGraph) -> bool:
    """Whether its rows may have float64 in the checkpoint, where they have decimals now."""
    return metadata.is_of_version_1 and any(map(_decimal_sums, [node, *_above(node, job)]))


def _decimal_sums(node: Node) -> tuple[str, ...]:
    """Columns that an aggregation makes."""
    return tuple(node.attributes.get("decimal_sums", ()))


def _was_text(field: pa.Field, was_float: bool) -> str:
    """A pattern of what `_columns` says of it."""
    now = re.escape(f"{field.name}: {field.type}")
    return f"(?:{now}|{re.escape(field.name)}: {pa.float64()})" if was_float else now


def _above(node: Node, job: JobGraph) -> list[Node]:
    """All nodes whose rows reach it."""
    by_id = {each.id: each for vertex in job.vertices for each in vertex.nodes}
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        for edge in waiting.pop().inputs:
            if edge.source not in found:
                found[edge.source] = by_id[edge.source]
                waiting.append(by_id[edge.source])
    return list(found.values())


def _check_key_groups(metadata: CheckpointMetadata, job: JobGraph, max_parallelism: Mapping[int, int]) -> None:
    were = {key: vertex.max_parallelism for vertex in metadata.vertices for key in (vertex.key, *vertex.nodes)}
    keyed = {node.key for node in metadata.nodes if node.kind not in ("source", "sink")}
    for vertex in job.vertices:
        now = max_parallelism[vertex.id]
        for key in keyed.intersection(map(node_key, vertex.nodes)):
            if (was := were.get(key, now)) != now:
                raise CheckpointError(
                    f"checkpoint {metadata.id} divides the keys of {key!r} into {was} groups, and this job into {now}: "
                    f"set the option max_parallelism to {was}"
                )


def _check_exchanges(metadata: CheckpointMetadata, job: JobGraph) -> None:
    """Data in flight need their way again."""
    ours = {exchange_key(edge, job): describe_exchange(edge, job) for edge in job.edges}
    sources = {exchange_key(edge, job): _source_node(edge, job) for edge in job.edges}
    chained = _chained(job)
    other = "resume from a savepoint, or from a checkpoint that was taken without unaligned=True"
    for was in metadata.exchanges:
        what = f"checkpoint {metadata.id} of job {metadata.job!r} holds data that were in flight at {was.key!r}"
        now = ours.get(was.key)
        if now is None and was.key in chained:
            raise CheckpointError(f"{what}, and this job chains the two: {chained[was.key]}, or {other}")
        if now is None:
            raise CheckpointError(f"{what}, and this job has no such exchange: {other}")
        goes_as_it_did = now.partitioning == was.partitioning or {now.partitioning, was.partitioning} <= _TO_ANY
        if not goes_as_it_did or now.schema != was.schema:
            were, are = f"{was.partitioning} of ({was.schema})", f"{now.partitioning} of ({now.schema})"
            todo = _FLOATS_IN_FLIGHT if _has_float_sums(metadata, sources[was.key], job) else other
            raise CheckpointError(f"{what}, which was {were} and now is {are}: {todo}")
        kind = was.partitioning.partition("(")[0]
        if kind in _DEALT_ONCE and now.consumers != was.consumers:
            why = _DEALT_ONCE[kind].format(was.consumers)
            raise CheckpointError(f"{what}, where {why}, and this job has {now.consumers}: {other}")


def _chained(job: JobGraph) -> dict[str, str]:
    """By the key that the exchange would have, what makes one between two nodes that are chained."""
    ways: dict[str, str] = {}
    for vertex in job.vertices:
        nodes = {node.id: node for node in vertex.nodes}
        for node in vertex.nodes[1:]:
            edge = node.inputs[0]
            tag = "" if edge.tag is None else f" ({edge.tag})"
            ways[f"{node_key(nodes[edge.source])}{tag} -> {node_key(node)} [0]"] = (
                f"they need no exchange, since both have {vertex.parallelism} subtasks; put .rebalance() before "
                f"{node.name!r} (.disable_chaining() if it was forward), give them as many subtasks again"
            )
    return ways


def _kind(node: Node) -> str:
    if node.source is not None:
        return "source"
    return "sink" if node.sink is not None else str(node.attributes.get("kind", "operator"))
