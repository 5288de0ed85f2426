"""Shows a plan as text: the operators of each task, the number of its subtasks, and the exchanges between tasks."""

from __future__ import annotations

from headgate.api.event_time import visible
from headgate.operators.operator import function_name
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.plan.graph import Node, Partitioning
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex


def describe(graph: JobGraph) -> str:
    """Return the plan as text. Each task (a chain of operators) has a line, and a further line for each exchange that
    it reads:

    ```
    1  csv -> filter                    x2
    2  window (tumble(1 h)) -> parquet  x2
         from 1: by key group of carrier
    ```
    """
    chains = [_chain(vertex, vertex.head) for vertex in graph.vertices]
    width = max(map(len, chains), default=0)
    lines = []
    for number, (vertex, chain) in enumerate(zip(graph.vertices, chains, strict=True), start=1):
        lines.append(f"{number:<2} {chain:<{width}}  x{vertex.parallelism}")
        for edge in graph.inputs(vertex):
            place = f"{_place(graph, edge.source) + 1} {_side(edge.tag)}".rstrip()
            lines.append(f"     {_port(vertex, edge)}from {place}: {_exchange(edge.partitioning)}{_sent(graph, edge)}")
    return "\n".join(lines)


def _place(graph: JobGraph, vertex_id: int) -> int:
    return next(place for place, vertex in enumerate(graph.vertices) if vertex.id == vertex_id)


def _chain(vertex: JobVertex, node: Node) -> str:
    """Return a chain as text: `a -> b`, or `a -> [b -> c, d]` if two operators read the rows of `a`."""
    tags = (None, *node.sides)
    below = [_side(tag) + _chain(vertex, user) for tag in tags for user in vertex.chained_consumers(node.id, tag)]
    name = node.name + _kind(node)
    if not below:
        return name
    return f"{name} -> {below[0] if len(below) == 1 else '[' + ', '.join(below) + ']'}"


def _port(vertex: JobVertex, edge: JobEdge) -> str:
    """Return which input of a join an exchange feeds, "left " or "right ", or "" for operators with one input."""
    has_two = any(part.port for part in vertex.head.inputs)
    return ("left ", "right ")[edge.port] if has_two else ""


def _kind(node: Node) -> str:
    """Return what the plan says after a node's name: the windows, the condition of a join, the keys of a lookup, or
    which rows are chosen; the columns that a source reads, if these are not all; the key, if rows replace one another
    from this node on."""
    says = [node.attributes["shown"]] if "shown" in node.attributes else []
    if "reads" in node.attributes:
        says.append(f"reads {', '.join(node.attributes['reads'])}")
    if node.upserts is not None and node.upserts.origin == node.id:
        says.append(f"upserts by {', '.join(node.upserts.key) or 'one global key'}")
    return f" ({'; '.join(says)})" if says else ""


def _side(tag: str | None) -> str:
    return "" if tag is None else f"({tag}) "


def _sent(graph: JobGraph, edge: JobEdge) -> str:
    """Return what an exchange sends: the columns, if these are not all that the user knows, and the rows, if these are
    not all."""
    rows = "" if edge.combiner is None else f" (sends {edge.combiner})"
    return _columns(graph, edge) + rows


def _columns(graph: JobGraph, edge: JobEdge) -> str:
    everything = visible(graph.source_node(edge).output_schema(edge.tag)).names
    sent = [name for name in edge.columns or everything if name != HIDDEN_COLUMN]
    return "" if sent == everything else f" (sends {', '.join(sent)})"


def _exchange(partitioning: Partitioning) -> str:
    match partitioning.kind:
        case "key_group":
            return f"by key group of {', '.join(partitioning.keys)}" if partitioning.keys else "one global key"
        case "custom":
            assert partitioning.function is not None
            return f"by function {function_name(partitioning.function)}"
        case "load_aware":
            return "rebalance to the least loaded"
        case "to_one":
            return "to one subtask"
        case kind:
            return kind
