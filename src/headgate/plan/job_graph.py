"""The job graph: vertices, and the exchanges between them. A vertex is a chain of stream nodes.

Nodes that need no exchange between them run in one task and call each other directly. The nodes of a vertex form a
tree. The head of the tree reads the inputs or is a source. Each node may have several chained consumers.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.exchange.combiner import CombinerFactory
from headgate.plan.graph import Edge, Node, Partitioning, StreamGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdge:
    """An exchange. The rows of node `source_node` in vertex `source` go to input `target_input` of vertex `target`."""

    id: int
    source: int
    source_node: int
    target: int
    target_input: int
    partitioning: Partitioning
    tag: str | None = None
    port: int = 0
    #: The columns that the exchange sends. None: all columns.
    columns: tuple[str, ...] | None = None
    #: Leaves out rows that the target does not need. None: the exchange sends all rows.
    combiner: CombinerFactory | None = None


@dataclass(frozen=True, slots=True)
class JobVertex:
    """A chain of nodes that run in one task. `nodes[0]` is the head. Each other node has one input, which is in the
    vertex."""

    id: int
    name: str
    parallelism: int
    nodes: tuple[Node, ...]

    @property
    def head(self) -> Node:
        """The node that reads the vertex's inputs, or the source."""
        return self.nodes[0]

    def chained_consumers(self, node_id: int, tag: str | None) -> list[Node]:
        """Return the nodes of the vertex that read a node's side output `tag`, or its main output if `tag` is None."""
        inputs = [(node, node.inputs[0]) for node in self.nodes[1:]]
        return [node for node, edge in inputs if (edge.source, edge.tag) == (node_id, tag)]


@dataclass(frozen=True, slots=True)
class JobGraph:
    """The vertices in topological order, and the edges between them. The id of a vertex is its position."""

    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]

    def inputs(self, vertex: JobVertex) -> list[JobEdge]:
        """Return the edges that a vertex reads, in the order of its inputs."""
        edges = (edge for edge in self.edges if edge.target == vertex.id)
        return sorted(edges, key=lambda edge: edge.target_input)

    def outputs(self, vertex: JobVertex, node: Node, tag: str | None) -> list[JobEdge]:
        """Return the edges that read a node's side output `tag`, or its main output if `tag` is None."""
        output = (vertex.id, node.id, tag)
        return [edge for edge in self.edges if (edge.source, edge.source_node, edge.tag) == output]

    def vertex(self, vertex_id: int) -> JobVertex:
        """Return the vertex with the id `vertex_id`."""
        return self.vertices[vertex_id]

    def source_node(self, edge: JobEdge) -> Node:
        """Return the node whose rows an exchange sends."""
        return next(node for node in self.vertex(edge.source).nodes if node.id == edge.source_node)

    def schema(self, edge: JobEdge) -> pa.Schema:
        """Return the schema of the rows that an exchange sends."""
        schema = self.source_node(edge).output_schema(edge.tag)
        return schema if edge.columns is None else pa.schema([schema.field(name) for name in edge.columns])

    def edge_name(self, edge: JobEdge) -> str:
        """Return the name of an exchange: `operator -> operator`, with the side output that it carries.

        If the operator reads the same rows before, as a join of a stream with itself does, the name has the input's
        number: `operator -> operator (input 2)`. Counters are kept by name.
        """
        vertex = self.vertex(edge.source)
        source = next((node.name for node in vertex.nodes if node.id == edge.source_node), vertex.name)
        side = "" if edge.tag is None else f" ({edge.tag})"
        ends = edge.source_node, edge.tag, edge.target
        inputs = [each.target_input for each in self.edges if (each.source_node, each.tag, each.target) == ends]
        again = f" (input {edge.target_input + 1})" if edge.target_input > min(inputs) else ""
        return f"{source}{side} -> {self.vertex(edge.target).head.name}{again}"

    @property
    def parallelism(self) -> int:
        """The largest parallelism of all vertices. This is the number of slots that the job needs."""
        return max(vertex.parallelism for vertex in self.vertices)


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """Build the job graph: chain nodes where possible, and turn all other edges into exchanges."""
    by_id = {node.id: node for node in graph.nodes}
    heads = [node for node in graph.nodes if not _is_chained(node, by_id)]
    members: dict[int, list[Node]] = {node.id: [node] for node in heads}
    head_of = {node.id: node.id for node in heads}
    for node in graph.nodes:
        if node.id not in head_of:
            head_of[node.id] = head_of[node.inputs[0].source]
            members[head_of[node.id]].append(node)
    vertex_of = {head.id: number for number, head in enumerate(heads)}
    vertices = tuple(_vertex(vertex_of[head.id], members[head.id]) for head in heads)
    edges: list[JobEdge] = []
    for head in heads:
        for number, edge in enumerate(head.inputs):
            source = vertex_of[head_of[edge.source]]
            target = vertex_of[head.id]
            edges.append(
                JobEdge(
                    id=len(edges),
                    source=source,
                    source_node=edge.source,
                    target=target,
                    target_input=number,
                    partitioning=edge.partitioning,
                    tag=edge.tag,
                    port=edge.port,
                    columns=edge.columns,
                    combiner=edge.combiner,
                )
            )
    return JobGraph(vertices, tuple(edges))


def _vertex(number: int, nodes: list[Node]) -> JobVertex:
    return JobVertex(number, " -> ".join(node.name for node in nodes), nodes[0].parallelism, tuple(nodes))


def _is_chained(node: Node, by_id: dict[int, Node]) -> bool:
    if len(node.inputs) != 1:
        return False
    edge: Edge = node.inputs[0]
    upstream = by_id[edge.source]
    return (
        edge.partitioning.kind == "forward"
        and upstream.parallelism == node.parallelism
        and upstream.chaining
        and node.chaining
    )
