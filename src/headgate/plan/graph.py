"""The stream graph: the user's pipeline as plain, immutable data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import pyarrow as pa

from headgate.connectors.connector import Sink, Source
from headgate.exchange.combiner import CombinerFactory
from headgate.operators.operator import OperatorFactory
from headgate.throttle.mechanism import Mechanism


@dataclass(frozen=True, slots=True)
class EventTime:
    """How an operator gets the event time of rows: the values of a column, plus an offset in microseconds.

    After a window, the column is `window_end` and the offset is -1: the event time of a row is the last microsecond of
    its window.
    """

    column: str
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkSpec:
    """The rule for a source's watermarks: the largest time in a split so far, minus `out_of_orderness`.

    `out_of_orderness` and `max_drift` are in microseconds. After `idle_timeout` seconds without rows, a subtask no
    longer holds back watermarks; with None it always does.
    """

    column: str
    out_of_orderness: int = 0
    idle_timeout: float | None = None
    on_null_time: Literal["error", "late"] = "error"
    #: How far a subtask or a split may be ahead of the slowest one. None means no limit.
    max_drift: int | None = None
    #: The sources whose subtasks wait for each other. None: this source alone.
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The rule by which an edge distributes rows to the subtasks of the next operator."""

    kind: Literal[
        "forward", "rebalance", "load_aware", "rescale", "shuffle", "broadcast", "to_one", "key_group", "custom"
    ]
    #: The key columns of a key-group exchange. Without columns, there is one global key.
    keys: tuple[str, ...] = ()
    #: The user's function of a custom exchange. It gets a batch and the number of channels, and returns the channel of
    #: each row.
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
    """An input of a node. Its rows are those of the node `source`, or of this node's side output `tag` if it is set.

    An operator with two inputs reads the edges with port 0 as its first input, and those with port 1 as its second.
    """

    source: int
    partitioning: Partitioning
    tag: str | None = None
    port: int = 0
    _: KW_ONLY
    #: The columns that the rows have on the edge, in the order of the source's schema. None: all columns.
    columns: tuple[str, ...] | None = None
    #: Leaves out rows that the consumer does not need. None: the edge has all rows.
    combiner: CombinerFactory | None = None


@dataclass(frozen=True, slots=True)
class Upserts:
    """Marks a stream of upserts: a row replaces the previous row with the same values in the columns `key`.

    The node with the id `origin` emits the upserts. A stream without `Upserts` is append-only: no row replaces another.
    """

    key: tuple[str, ...]
    origin: int


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """The columns that an operator needs from its input.

    The operator reads the columns `read`. `passed` has the columns that the operator passes on unchanged: output name
    to input name. The operator needs a passed column only if a later operator needs it.

    Such an operator takes columns of texts with dictionaries, too. What it returns has none.
    """

    read: frozenset[str]
    passed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Side:
    """A side output of a node: an additional output beside the main output."""

    schema: pa.Schema
    event_time: EventTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A source, an operator or a sink. Exactly one of `source`, `operator` and `sink` is set."""

    id: int
    name: str
    parallelism: int
    schema: pa.Schema
    inputs: tuple[Edge, ...] = ()
    source: Source | None = None
    watermark: WatermarkSpec | None = None
    #: The throttle that limits the source, or None.
    throttle: Mechanism | None = None
    operator: OperatorFactory | None = None
    sink: Sink | None = None
    #: The columns of texts that the source's operators take with dictionaries, as the source gives them.
    with_dictionaries: frozenset[str] = frozenset()
    #: The columns that the operator needs. None: all columns.
    uses: ColumnUse | None = None
    event_time: EventTime | None = None
    #: Set if the node emits upserts, or if a sink gets upserts. None for append-only rows.
    upserts: Upserts | None = None
    #: Side outputs by tag.
    sides: Mapping[str, Side] = field(default_factory=dict)
    chaining: bool = True
    uid: str | None = None
    #: Facts for reports, for example {"kind": "window", "bound": "out_of_orderness=5 s, allowed_lateness=0 s"}.
    #: "decimal_sums" has the names of the columns that are sums or means of decimals.
    attributes: dict[str, Any] = field(default_factory=dict)

    def output_schema(self, tag: str | None) -> pa.Schema:
        """Return the schema of the side output `tag`, or of the main output if `tag` is None."""
        return self.schema if tag is None else self.sides[tag].schema


@dataclass(frozen=True, slots=True)
class StreamGraph:
    """The nodes in topological order. The id of a node is unique, but it is not the node's position in this order."""

    nodes: tuple[Node, ...]

    def node(self, node_id: int) -> Node:
        """Return the node with the id `node_id`."""
        return next(node for node in self.nodes if node.id == node_id)

    def consumers(self, node_id: int) -> list[tuple[Node, Edge]]:
        """Return the nodes that read from the node `node_id`, each with the edge by which it reads."""
        return [(node, edge) for node in self.nodes for edge in node.inputs if edge.source == node_id]
