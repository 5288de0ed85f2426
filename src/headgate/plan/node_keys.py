"""The keys by which a checkpoint names nodes, and the check that a checkpoint fits the job that resumes from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from headgate.errors import CheckpointError
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.state.checkpoint_metadata import CheckpointMetadata, ExchangeDescription, NodeDescription

#: Partitionings that forbid another number of consumers while rows are in flight, each with the reason.
_FIXED_SUBTASKS: Final = {
    "broadcast": "each of {} subtasks must get each row once",
    "custom": "partition_by has distributed rows to {} subtasks, and its function may return other subtasks now",
}
#: The partitionings by which any subtask may get any row. A change of the parallelism may change one into another.
_TO_ANY: Final = frozenset({"forward()", "rebalance()", "load_aware()", "rescale()", "shuffle()"})
#: Advice for a checkpoint of version 1 with float64 sums in a place where nothing converts them.
_FLOATS: Final = "the version of Headgate that wrote it stored sums and means of decimals as double. "
_FLOAT_STATE: Final = f"{_FLOATS}Resume with that version, or start without this checkpoint"
_FLOATS_IN_FLIGHT: Final = (
    f"{_FLOATS}Resume with that version, and take a savepoint (job.stop(savepoint=...)) or a checkpoint "
    "without unaligned=True: these hold no data in flight. Then resume from it here"
)


def node_key(node: Node) -> str:
    """Return a node's uid. Without a uid, return its name and number, which may change when the pipeline changes."""
    return node.uid if node.uid is not None else f"{node.name}#{node.id}"


def vertex_key(vertex: JobVertex) -> str:
    """Return the key of a vertex: the node key of its head."""
    return node_key(vertex.head)


def exchange_key(edge: JobEdge, job: JobGraph) -> str:
    """Return the key of an exchange.

    The key names the nodes at both ends, the side output that the exchange reads, and the input that it feeds.
    """
    tag = "" if edge.tag is None else f" ({edge.tag})"
    return f"{node_key(job.source_node(edge))}{tag} -> {vertex_key(job.vertex(edge.target))} [{edge.target_input}]"


def describe_exchange(edge: JobEdge, job: JobGraph) -> ExchangeDescription:
    """Return the facts about an edge that decide which subtask gets its data in flight."""
    keys = ", ".join(edge.partitioning.keys)
    return ExchangeDescription(
        exchange_key(edge, job),
        f"{edge.partitioning.kind}({keys})",
        _columns(job.schema(edge)),
        job.vertex(edge.source).parallelism,
        job.vertex(edge.target).parallelism,
    )


def schema_in_flight(was: ExchangeDescription, edge: JobEdge, job: JobGraph) -> pa.Schema | None:
    """Return the schema of a checkpoint's rows in flight that fit the exchange, or None if they do not fit.

    It is the schema of the exchange, or it has all columns of the rows: earlier versions sent all.
    """
    schemas = job.schema(edge), job.source_node(edge).output_schema(edge.tag)
    return next((schema for schema in schemas if _columns(schema) == was.schema), None)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def describe(node: Node) -> NodeDescription:
    """Return the facts about a node that must not change when a job resumes from a checkpoint with state of this
    node."""
    return NodeDescription(node_key(node), node.name, _kind(node), _columns(node.schema))


def check_fits(metadata: CheckpointMetadata, job: JobGraph, max_parallelism: Mapping[int, int]) -> None:
    """Raise CheckpointError if the state in a checkpoint does not fit the nodes of the job.

    The error names the node. `max_parallelism` has the number of key groups of each vertex, by id. Nodes without state
    in the checkpoint start empty.
    """
    nodes = {node_key(node): node for vertex in job.vertices for node in vertex.nodes}
    for was in metadata.nodes:
        state = f"checkpoint {metadata.id} of job {metadata.job!r} holds state of the {was.kind} {was.name!r}"
        if was.key not in nodes:
            raise CheckpointError(
                f"{state} under the key {was.key!r}, which this job does not have: give that node its old name and "
                f"place, or .uid({was.key!r}); keys of this job: " + ", ".join(map(repr, nodes))
            )
        now = describe(nodes[was.key])
        if now.kind != was.kind:
            raise CheckpointError(
                f"{state}; in this job {was.key!r} is a {now.kind}: give that node another uid, or start without this "
                "checkpoint"
            )
        if now.schema != was.schema and not _floats_became_decimals(metadata, was, nodes[was.key], job):
            rows = f"with rows of ({was.schema}), which now are ({now.schema})"
            undo = "change them back, or start without this checkpoint"
            remedy = _FLOAT_STATE if _has_float_sums(metadata, nodes[was.key], job) else undo
            raise CheckpointError(f"{state} {rows}: {remedy}")
    _check_key_groups(metadata, job, max_parallelism)
    _check_exchanges(metadata, job)


def changed_sinks(metadata: CheckpointMetadata, job: JobGraph) -> list[str]:
    """Return a sentence for each sink whose columns have other types than in the checkpoint.

    `check_fits` has allowed these changes.
    """
    were = {node.key: node.schema for node in metadata.nodes if node.kind == "sink"}
    sinks = [node for vertex in job.vertices for node in vertex.nodes if node.sink is not None]
    return [
        f"sink {node.name!r} wrote ({were[node_key(node)]}) and now writes ({_columns(node.schema)})"
        for node in sinks
        if were.get(node_key(node), _columns(node.schema)) != _columns(node.schema)
    ]


def _floats_became_decimals(metadata: CheckpointMetadata, was: NodeDescription, node: Node, job: JobGraph) -> bool:
    """Return whether the columns differ only in sums and means of decimals. Checkpoints of version 1 have float64
    there."""
    if not metadata.is_of_version_1:
        return False
    changed = set(_decimal_sums(node))
    if node.sink is not None and any(map(_decimal_sums, _above(node, job))):
        changed = set(node.schema.names)  # operators above the sink may have renamed the columns
    fields = (_was_text(field, field.name in changed and pa.types.is_decimal(field.type)) for field in node.schema)
    return re.fullmatch(", ".join(fields), was.schema) is not None


def _has_float_sums(metadata: CheckpointMetadata, node: Node, job: JobGraph) -> bool:
    """Return whether the node's rows in the checkpoint may have float64 columns that are decimals in this job."""
    return metadata.is_of_version_1 and any(map(_decimal_sums, [node, *_above(node, job)]))


def _decimal_sums(node: Node) -> tuple[str, ...]:
    """Return the output columns of an aggregation that are sums or means of decimals."""
    return tuple(node.attributes.get("decimal_sums", ()))


def _was_text(field: pa.Field, was_float: bool) -> str:
    """Return a regular expression for the text of a field in `_columns`. With `was_float`, the expression also matches
    the type float64."""
    now = re.escape(f"{field.name}: {field.type}")
    return f"(?:{now}|{re.escape(field.name)}: {pa.float64()})" if was_float else now


def _above(node: Node, job: JobGraph) -> list[Node]:
    """Return all nodes upstream of the node."""
    by_id = {other.id: other for vertex in job.vertices for other in vertex.nodes}
    reached: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        for edge in waiting.pop().inputs:
            if edge.source not in reached:
                reached[edge.source] = by_id[edge.source]
                waiting.append(by_id[edge.source])
    return list(reached.values())


def _check_key_groups(metadata: CheckpointMetadata, job: JobGraph, max_parallelism: Mapping[int, int]) -> None:
    were = {key: vertex.max_parallelism for vertex in metadata.vertices for key in (vertex.key, *vertex.nodes)}
    keyed = {node.key for node in metadata.nodes if node.kind not in ("source", "sink")}
    for vertex in job.vertices:
        now = max_parallelism[vertex.id]
        for key in keyed.intersection(map(node_key, vertex.nodes)):
            was = were.get(key, now)
            if vertex.parallelism > was:
                raise CheckpointError(
                    f"checkpoint {metadata.id} has {was} key groups for {key!r}, so at most {was} subtasks; the "
                    f"parallelism is {vertex.parallelism}: lower it"
                )
            if was != now:
                raise CheckpointError(
                    f"checkpoint {metadata.id} divides the keys of {key!r} into {was} groups, and this job into {now}: "
                    f"set the option max_parallelism to {was}"
                )


def _check_exchanges(metadata: CheckpointMetadata, job: JobGraph) -> None:
    """Check that the data in flight of each exchange in the checkpoint can reach the same subtasks."""
    edges = {exchange_key(edge, job): edge for edge in job.edges}
    ours = {key: describe_exchange(edge, job) for key, edge in edges.items()}
    chained = _chained(job)
    other = "resume from a savepoint, or from a checkpoint that was taken without unaligned=True"
    for was in metadata.exchanges:
        data = f"checkpoint {metadata.id} of job {metadata.job!r} holds data that were in flight at {was.key!r}"
        now = ours.get(was.key)
        if now is None and was.key in chained:
            raise CheckpointError(f"{data}, and this job chains these two nodes: {chained[was.key]}, or {other}")
        if now is None:
            raise CheckpointError(f"{data}, and this job has no such exchange: {other}")
        is_same_way = now.partitioning == was.partitioning or {now.partitioning, was.partitioning} <= _TO_ANY
        if not is_same_way or schema_in_flight(was, edges[was.key], job) is None:
            before, after = f"{was.partitioning} of ({was.schema})", f"{now.partitioning} of ({now.schema})"
            remedy = _FLOATS_IN_FLIGHT if _has_float_sums(metadata, job.source_node(edges[was.key]), job) else other
            raise CheckpointError(f"{data}, which was {before} and is now {after}: {remedy}")
        kind = was.partitioning.partition("(")[0]
        if kind in _FIXED_SUBTASKS and now.consumers != was.consumers:
            reason = _FIXED_SUBTASKS[kind].format(was.consumers)
            raise CheckpointError(f"{data}, where {reason}, and this job has {now.consumers}: {other}")


def _chained(job: JobGraph) -> dict[str, str]:
    """Return advice on how to get an exchange between two chained nodes, by the key of this exchange."""
    remedies: dict[str, str] = {}
    for vertex in job.vertices:
        nodes = {node.id: node for node in vertex.nodes}
        for node in vertex.nodes[1:]:
            edge = node.inputs[0]
            tag = "" if edge.tag is None else f" ({edge.tag})"
            remedies[f"{node_key(nodes[edge.source])}{tag} -> {node_key(node)} [0]"] = (
                f"they need no exchange, because both have {vertex.parallelism} subtasks; put .rebalance() before "
                f"{node.name!r} (.disable_chaining() if it was forward), give them their old numbers of subtasks"
            )
    return remedies


def _kind(node: Node) -> str:
    if node.source is not None:
        return "source"
    return "sink" if node.sink is not None else str(node.attributes.get("kind", "operator"))
