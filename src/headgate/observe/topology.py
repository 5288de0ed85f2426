"""The shape of a job for its page and its diagnosis: vertices, operators and exchanges, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.plan.graph import Node
from headgate.plan.job_graph import JobGraph


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """One operator of a chain. `kind` is "source", "sink", or what the operator does, for example "window".

    `timed` is True for an operator that waits for event time, and for a source that sends watermarks.
    `static_throttle` is a source's throttle, as text, if its rate does not depend on the job; otherwise it is empty.
    """

    id: int
    name: str
    kind: str
    timed: bool = False
    static_throttle: str = ""


@dataclass(frozen=True, slots=True)
class VertexShape:
    """A chain of operators that run in one task, with the number of its subtasks."""

    id: int
    name: str
    parallelism: int
    operators: tuple[OperatorShape, ...]


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """An exchange from the vertex `source` to the vertex `target`. `name` is the name of its counters.

    `operator` is the id of the operator in `source` whose rows the exchange carries.
    """

    name: str
    source: int
    operator: int
    target: int
    partitioning: str


@dataclass(frozen=True, slots=True)
class Topology:
    """The vertices of a job in topological order, and the exchanges between them. A vertex's id is its position."""

    job: str
    vertices: tuple[VertexShape, ...]
    edges: tuple[EdgeShape, ...]

    def producers(self, vertex: int) -> list[int]:
        """Return the vertices that send to `vertex`."""
        return sorted({edge.source for edge in self.edges if edge.target == vertex})

    def consumers(self, vertex: int) -> list[int]:
        """Return the vertices to which `vertex` sends."""
        return sorted({edge.target for edge in self.edges if edge.source == vertex})

    def upstream(self, vertex: int) -> set[int]:
        """Return all vertices whose rows reach `vertex`, without `vertex` itself."""
        return _reached(vertex, self.producers)

    def downstream(self, vertex: int) -> set[int]:
        """Return all vertices that rows of `vertex` reach, without `vertex` itself."""
        return _reached(vertex, self.consumers)

    def operator(self, operator_id: int) -> OperatorShape:
        """Return the operator with the id `operator_id`."""
        return next(each for vertex in self.vertices for each in vertex.operators if each.id == operator_id)


def _reached(vertex: int, neighbours: Callable[[int], Sequence[int]]) -> set[int]:
    reached: set[int] = set()
    waiting = [vertex]
    while waiting:
        for each in neighbours(waiting.pop()):
            if each not in reached:
                reached.add(each)
                waiting.append(each)
    return reached


def topology_of(job: str, graph: JobGraph) -> Topology:
    """Return the topology of a job graph."""
    vertices = tuple(
        VertexShape(vertex.id, vertex.name, vertex.parallelism, tuple(_operator(node) for node in vertex.nodes))
        for vertex in graph.vertices
    )
    edges = tuple(
        EdgeShape(graph.edge_name(edge), edge.source, edge.source_node, edge.target, edge.partitioning.kind)
        for edge in graph.edges
    )
    return Topology(job, vertices, edges)


def _operator(node: Node) -> OperatorShape:
    if node.source is not None:
        throttle = str(node.throttle) if node.throttle is not None and node.throttle.is_static else ""
        return OperatorShape(node.id, node.name, "source", node.watermark is not None, throttle)
    kind = "sink" if node.sink is not None else node.attributes.get("kind", "")
    return OperatorShape(node.id, node.name, kind, "by_time" in node.attributes)
