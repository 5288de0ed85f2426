"""What a node is called in a checkpoint, and whether a checkpoint fits the job that is to go on from it."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import CheckpointError
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobGraph, JobVertex
from headgate.state.checkpoint_metadata import CheckpointMetadata, NodeDescription


def node_key(node: Node) -> str:
    """A node's uid or, without one, its name and number: those change when the pipeline does."""
    return node.uid if node.uid is not None else f"{node.name}#{node.id}"


def vertex_key(vertex: JobVertex) -> str:
    """The node key of its head."""
    return node_key(vertex.head)


def describe(node: Node) -> NodeDescription:
    """What must not change when a job goes on from a checkpoint that has something of this node."""
    schema = ", ".join(f"{field.name}: {field.type}" for field in node.schema)
    return NodeDescription(node_key(node), node.name, _kind(node), schema)


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
        if now.schema != was.schema:
            rows = f"of rows ({was.schema}), which now are ({now.schema})"
            raise CheckpointError(f"{what} {rows}: change them back, or start without this checkpoint")
    _check_key_groups(metadata, job, max_parallelism)


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


def _kind(node: Node) -> str:
    if node.source is not None:
        return "source"
    return "sink" if node.sink is not None else str(node.attributes.get("kind", "operator"))
