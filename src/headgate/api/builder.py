"""`GraphBuilder`: the graph while the user's program writes it.

Nodes are immutable; the builder replaces a node when the user changes it. If the user does not choose a partitioning,
`GraphBuilder.graph` chooses one, after the user has set the parallelism of all nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import PlanError
from headgate.exchange.combiner import CombinerFactory
from headgate.plan.graph import FORWARD, REBALANCE, Edge, Node, Partitioning, StreamGraph, Upserts


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The node that rows come from, and the partitioning of these rows.

    A `partitioning` of None means forward if both nodes have the same parallelism, and rebalance otherwise. `source` is
    the id of the node. `tag` names one of its side outputs; None means its main output. All outputs of a node are of
    the same kind: append-only or upserting.
    """

    source: int
    partitioning: Partitioning | None = None
    tag: str | None = None
    #: The input of the operator, for an operator with two inputs: 0 or 1.
    port: int = 0
    #: Whether each change of an upserting node counts as a row of its own. The rows are then append-only.
    as_changes: bool = False
    #: The columns that the next operator gets. None: all columns.
    columns: tuple[str, ...] | None = None
    #: Leaves out rows that the next operator does not need. None: it gets all rows.
    combiner: CombinerFactory | None = None


class GraphBuilder:
    """All nodes that the user's program has added so far, by id. The inputs of a node have smaller ids than the node.

    `parallelism` is the default parallelism of a node.
    """

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self._nodes: dict[int, Node] = {}
        self._inputs: dict[int, tuple[Upstream, ...]] = {}

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    def add(
        self, name: str, inputs: Iterable[Upstream] = (), *, upserts_by: Sequence[str] | None = None, **fields: Any
    ) -> int:
        """Add a node and return its id. `fields` are fields of `Node`. Raises PlanError if a forward edge is wrong.

        With `upserts_by`, the node's rows replace earlier rows with the same values in these columns. Otherwise its
        rows are of the same kind as its inputs.
        """
        number, inputs = len(self._nodes), tuple(inputs)
        upserts = self.upserts(inputs) if upserts_by is None else Upserts(tuple(upserts_by), number)
        node = Node(id=number, name=name, upserts=upserts, **fields)
        self._nodes[node.id] = node
        self._inputs[node.id] = inputs
        self._check_forward(node.id)
        return node.id

    def change(self, node_id: int, **fields: Any) -> None:
        """Change fields of a node. If a forward edge would no longer fit, change nothing and raise PlanError."""
        before = self._nodes[node_id]
        self._nodes[node_id] = dataclasses.replace(before, **fields)
        try:
            for other, inputs in self._inputs.items():
                if other == node_id or any(part.source == node_id for part in inputs):
                    self._check_forward(other)
        except PlanError:
            self._nodes[node_id] = before
            raise

    def inputs(self, node_id: int) -> tuple[Upstream, ...]:
        """Return the inputs of a node, in their order."""
        return self._inputs[node_id]

    def upserts(self, inputs: Iterable[Upstream]) -> Upserts | None:
        """Return the kind of the rows of these inputs, or None for append-only rows. All parts of a union are of one
        kind."""
        kinds = (self.kind(part) for part in inputs)
        return next((kind for kind in kinds if kind is not None), None)

    def kind(self, part: Upstream) -> Upserts | None:
        """Return how the rows of this input replace one another, or None for append-only rows."""
        if part.as_changes:
            return None
        kind = self._nodes[part.source].upserts
        if part.tag is not None and kind is not None and kind.origin == part.source:
            return self.upserts(self._inputs[part.source])  # late rows are rows that came in
        return kind

    def with_all_above(self, node_ids: Iterable[int]) -> list[int]:
        """Return these nodes and all nodes that their rows come from, in topological order."""
        reached: set[int] = set()
        waiting = list(node_ids)
        while waiting:
            node_id = waiting.pop()
            if node_id not in reached:
                reached.add(node_id)
                waiting.extend(part.source for part in self._inputs[node_id])
        return sorted(reached)  # a node's id is greater than the ids of its inputs

    def graph(self, sinks: Iterable[int]) -> StreamGraph:
        """Return the part of the graph that `sinks` need. Raises PlanError if two of its nodes share a uid."""
        nodes = [self._finished(node_id) for node_id in self.with_all_above(sinks)]
        _check_uids(nodes)
        return StreamGraph(tuple(_with_unique_names(nodes)))

    def _finished(self, node_id: int) -> Node:
        node = self._nodes[node_id]
        edges = tuple(
            Edge(
                part.source,
                self.partitioning(part, node),
                part.tag,
                part.port,
                columns=part.columns,
                combiner=part.combiner,
            )
            for part in self._inputs[node_id]
        )
        return dataclasses.replace(node, inputs=edges)

    def partitioning(self, part: Upstream, node: Node) -> Partitioning:
        """Return the partitioning of `part`, an input of `node`."""
        if part.partitioning is not None:
            return part.partitioning
        return FORWARD if self._nodes[part.source].parallelism == node.parallelism else REBALANCE

    def _check_forward(self, node_id: int) -> None:
        node = self._nodes[node_id]
        for part in self._inputs[node_id]:
            source = self._nodes[part.source]
            if part.partitioning == FORWARD and source.parallelism != node.parallelism:
                raise PlanError(
                    f"forward from {source.name!r} (parallelism {source.parallelism}) to {node.name!r} "
                    f"(parallelism {node.parallelism}): forward sends the rows of subtask i to subtask i, so "
                    "both need the same parallelism; use rebalance() instead"
                )


def _with_unique_names(nodes: list[Node]) -> list[Node]:
    """Return the nodes with unique names: the second `filter` becomes `filter#2`.

    Users find an operator by its name in metrics and errors.
    """
    given_names = {node.name for node in nodes}
    used: set[str] = set()
    renamed = []
    for node in nodes:
        name, number = node.name, 1
        while name in used:
            number += 1
            candidate = f"{node.name}#{number}"
            name = candidate if candidate not in given_names else name
        used.add(name)
        renamed.append(node if name == node.name else dataclasses.replace(node, name=name))
    return renamed


def _check_uids(nodes: list[Node]) -> None:
    owners: dict[str, Node] = {}
    for node in nodes:
        if node.uid is not None and owners.setdefault(node.uid, node) is not node:
            raise PlanError(
                f"the operators {owners[node.uid].name!r} and {node.name!r} have the same uid {node.uid!r}; give each "
                "operator another uid"
            )
