"""The stream graph: what the user wrote, as plain frozen data. It builds nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from headgate.connectors.connector import Sink, Source
from headgate.operators.operator import OperatorFactory


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column holds the rows' event time, and what to add to it (microseconds).

    After a window the column is `window_end` and the offset -1: a row of a window belongs to its last microsecond.
    """

    column: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """How a source makes watermarks: the largest time seen per split minus `out_of_orderness` (microseconds)."""

    column: str
    out_of_orderness: int = 0
    idle_timeout: float | None = None
    on_null_time: Literal["error", "late"] = "error"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How an edge distributes rows to the subtasks below it."""

    kind: Literal[
        "forward", "rebalance", "load_aware", "rescale", "shuffle", "broadcast", "to_one", "key_group", "custom"
    ]
    #: The key columns of a key-group exchange; empty = one global key.
    keys: tuple[str, ...] = ()
    #: The user's function of a custom exchange: a batch and the number of channels to each row's channel.
    function: Callable[[pa.RecordBatch, int], Any] | None = None


FORWARD = Partitioning("forward")
REBALANCE = Partitioning("rebalance")
LOAD_AWARE = Partitioning("load_aware")
RESCALE = Partitioning("rescale")
SHUFFLE = Partitioning("shuffle")
BROADCAST = Partitioning("broadcast")
TO_ONE = Partitioning("to_one")


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of node `source` go to the node that holds this edge; those of its side output `tag`, or its main ones."""

    source: int
    partitioning: Partitioning
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """A side output: rows that leave a node another way than its results."""

    schema: pa.Schema
    event_time: EventTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One transformation. Exactly one of `source`, `operator`, `sink` is set."""

    id: int
    name: str
    parallelism: int
    schema: pa.Schema
    inputs: tuple[Edge, ...] = ()
    source: Source | None = None
    watermark: WatermarkSpec | None = None
    operator: OperatorFactory | None = None
    sink: Sink | None = None
    event_time: EventTime | None = None
    #: Side outputs by tag.
    sides: Mapping[str, Side] = field(default_factory=dict)
    chaining: bool = True
    uid: str | None = None
    #: What reports say of it, e.g. {"kind": "window", "bound": "out_of_orderness=5 s, allowed_lateness=0 s"}, and under
    #: "decimal_sums" which columns are sums or means of decimals.
    attributes: dict[str, Any] = field(default_factory=dict)

    def output_schema(self, tag: str | None) -> pa.Schema:
        """Of the rows that go the main way, or to a side."""
        return self.schema if tag is None else self.sides[tag].schema


@dataclass(frozen=True, slots=True)
class StreamGraph:
    """Nodes in topological order; ids are positions in no particular numbering."""

    nodes: tuple[Node, ...]

    def node(self, node_id: int) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def consumers(self, node_id: int) -> list[tuple[Node, Edge]]:
        return [(node, edge) for node in self.nodes for edge in node.inputs if edge.source == node_id]
