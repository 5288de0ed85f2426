"""Checks that a sink which replaces rows by key gets the last row of each key as the last one.

Each check goes from the sink up to the operators whose rows replace one another, and follows the names of the sink's
key: a projection may give a column another name, or compute it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate.api import kinds
from headgate.api.builder import GraphBuilder, Upstream
from headgate.plan.graph import Node, Partitioning, Upserts


@dataclass(frozen=True, slots=True)
class _Place:
    """Upserting rows on their way to a sink: the input `part` of `reader`. `key` has the names that the columns of the
    sink's key have here."""

    reader: Node | None
    part: Upstream
    source: Node
    upserts: Upserts
    key: frozenset[str]


def check_key(graph: GraphBuilder, call: str, inputs: Iterable[Upstream], key: tuple[str, ...]) -> None:
    """Raise PlanError if upserting rows of these inputs do not replace one another by `key`, the key of a sink.

    Behind a function that has renamed the key, nothing says which columns these are: check nothing there.
    """
    for place in _places(graph, None, inputs, key, call):
        upserts, origin = place.upserts, graph[place.upserts.origin]
        if not set(upserts.key) <= set(origin.schema.names):
            raise kinds.no_key(call, origin)
        if place.source is origin and place.key != set(upserts.key):
            raise kinds.wrong_key(call, key, upserts, origin)


def check_order(graph: GraphBuilder, sink: Node, key: tuple[str, ...]) -> None:
    """Raise PlanError if an exchange or a union may change the order of a key's rows on their way to `sink`, or if a
    filter or an inner lookup may drop the last one."""
    for place in _places(graph, sink, graph.inputs(sink.id), key, f"sink_to({sink.name})"):
        assert place.reader is not None
        _check_ways(graph, sink, place)
        partitioning = graph.partitioning(place.part, place.reader)
        if place.reader.parallelism > 1 and not _keeps_order(partitioning, place.key):
            raise kinds.overtaken(sink, place.upserts, place.source, place.reader, partitioning)
        if place.source.id != place.upserts.origin and _drops_changes(place.source, place.key):
            raise kinds.dropped(sink, place.upserts, graph[place.upserts.origin], place.source)


def _places(
    graph: GraphBuilder, reader: Node | None, inputs: Iterable[Upstream], key: tuple[str, ...], call: str
) -> Iterator[_Place]:
    """Yield the places from a sink up to the origins of its upserting rows. `reader` is the sink, or None if it is not
    yet in the plan. Raises PlanError if a projection computes a column of the key."""
    waiting = [(reader, tuple(inputs), frozenset(key))]
    seen: set[tuple[int, frozenset[str]]] = set()
    while waiting:
        reader, parts, names = waiting.pop()
        for part in parts:
            upserts, source = graph.kind(part), graph[part.source]
            if upserts is None:
                continue
            yield _Place(reader, part, source, upserts, names)
            if source.id != upserts.origin and (source.id, names) not in seen:
                seen.add((source.id, names))
                waiting.append((source, graph.inputs(source.id), _key_before(graph, part, names, upserts, call)))


def _key_before(
    graph: GraphBuilder, part: Upstream, key: frozenset[str], upserts: Upserts, call: str
) -> frozenset[str]:
    """Return the names that the columns `key` of the output `part` have in the input of its node."""
    node = graph[part.source]
    if node.uses is not None:
        for name in sorted(key):
            if name not in node.uses.passed:
                raise kinds.computed(call, name, node, upserts, graph[upserts.origin])
        return frozenset(node.uses.passed[name] for name in key)
    [before, *_] = graph.inputs(node.id)
    names = graph[before.source].output_schema(before.tag).names
    if key <= set(names):
        return key
    if set(upserts.key) <= set(node.output_schema(part.tag).names):
        raise kinds.wrong_key(call, tuple(sorted(key)), upserts, graph[upserts.origin])
    return frozenset(upserts.key)


def _check_ways(graph: GraphBuilder, sink: Node, place: _Place) -> None:
    """Raise PlanError if the reader of a place has a union of parts that differ by more than filters.

    Rows of a key could then go different ways, and overtake one another, or be different rows. Filters that keep all
    rows of a key, as `check_order` demands, change neither.
    """
    assert place.reader is not None
    parts = [part for part in graph.inputs(place.reader.id) if part.port == place.part.port]
    if len(parts) > 1 and len(_before_filters(graph, parts)) > 1:
        raise kinds.divided(sink, place.upserts, graph[place.upserts.origin])


def _before_filters(graph: GraphBuilder, parts: Iterable[Upstream]) -> set[tuple[int, str | None]]:
    """Return the nodes, and the tags of their outputs, whose rows these parts are, after filters."""
    waiting, seen, found = list(parts), set[int](), set[tuple[int, str | None]]()
    while waiting:
        part = waiting.pop()
        if graph[part.source].attributes.get("kind") != "filter":
            found.add((part.source, part.tag))
        elif part.source not in seen:
            seen.add(part.source)
            waiting += graph.inputs(part.source)
    return found


def _keeps_order(partitioning: Partitioning, key: frozenset[str]) -> bool:
    """Return whether the rows of one key of an upserting stream go to one subtask, if they come from one."""
    if partitioning.kind == "key_group":
        return set(partitioning.keys) <= key
    return partitioning.kind in ("forward", "to_one", "broadcast", "custom")


def _drops_changes(node: Node, key: frozenset[str]) -> bool:
    """Return whether a filter or an inner lookup may keep one row of a key, and drop the row that replaces it."""
    by = node.attributes.get("drops_by")
    if node.attributes.get("kind") == "filter":
        by = None if node.uses is None else node.uses.read
    elif by is None:
        return False
    return by is None or not set(by) <= key
