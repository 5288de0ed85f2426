"""The job graph: stream nodes chained into vertices, and the exchanges between them.

Nodes that need no exchange run in one task and call each other directly. A vertex is a tree of nodes: its head reads
the input or is a source, and each node may have several chained consumers.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.plan.graph import Edge, Node, Partitioning, StreamGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdge:
    """An exchange: rows of `source_node` leave vertex `source` and enter `target` as input `target_input`."""

    id: int
    source: int
    source_node: int
    target: int
    target_input: int
    partitioning: Partitioning
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class JobVertex:
    """A chain; `nodes[0]` is its head. Each other node's one input is a node of the same vertex."""

    id: int
    name: str
    parallelism: int
    nodes: tuple[Node, ...]

    @property
    def head(self) -> Node:
        return self.nodes[0]

    def chained_consumers(self, node_id: int, tag: str | None) -> list[Node]:
        inputs = [(node, node.inputs[0]) for node in self.nodes[1:]]
        return [node for node, edge in inputs if (edge.source, edge.tag) == (node_id, tag)]


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Vertices in topological order."""

    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]

    def inputs(self, vertex: JobVertex) -> list[JobEdge]:
        return sorted((e for e in self.edges if e.target == vertex.id), key=lambda edge: edge.target_input)

    def outputs(self, vertex: JobVertex, node: Node, tag: str | None) -> list[JobEdge]:
        wanted = (vertex.id, node.id, tag)
        return [edge for edge in self.edges if (edge.source, edge.source_node, edge.tag) == wanted]

    def vertex(self, vertex_id: int) -> JobVertex:
        return self.vertices[vertex_id]

    @property
    def parallelism(self) -> int:
        """The largest of any vertex: how many slots the job needs."""
        return max(vertex.parallelism for vertex in self.vertices)


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """Chain what can be chained; everything else becomes an exchange."""
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
