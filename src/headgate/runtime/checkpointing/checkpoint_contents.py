"""Converts the parts of a complete checkpoint into the fields of its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Set

from headgate.plan.job_graph import JobGraph
from headgate.plan.node_keys import describe, describe_exchange, node_key, vertex_key
from headgate.runtime.checkpointing.checkpoint_events import StoreMetadata, TaskId
from headgate.state.checkpoint_metadata import (
    ExchangeDescription,
    Finished,
    NodeDescription,
    StateFile,
    VertexState,
)


def vertices_of(complete: StoreMetadata, job: JobGraph, key_groups: Mapping[int, int]) -> tuple[VertexState, ...]:
    """Return the state of each vertex: the parts of its tasks. `key_groups` has the number of key groups by vertex
    id."""
    return tuple(
        VertexState(
            vertex_key(vertex),
            vertex.name,
            key_groups[vertex.id],
            tuple(complete.parts[TaskId(vertex.id, subtask)] for subtask in range(vertex.parallelism)),
            tuple(map(node_key, vertex.nodes)),
        )
        for vertex in job.vertices
    )


def nodes_of(complete: StoreMetadata, job: JobGraph, with_state: Set[str]) -> tuple[NodeDescription, ...]:
    """Return the nodes that have state in the checkpoint.

    These are the nodes with keys in `with_state`, the nodes with pending results, and the sources that have ended.
    """
    ended = [part.positions for part in complete.parts.values() if isinstance(part, Finished)]
    keys = set(with_state).union(complete.pending, *ended)
    return tuple(describe(node) for vertex in job.vertices for node in vertex.nodes if node_key(node) in keys)


def exchanges_of(complete: StoreMetadata, job: JobGraph) -> tuple[ExchangeDescription, ...]:
    """Return the exchanges that have in-flight data in the checkpoint."""
    states = [part for part in complete.parts.values() if isinstance(part, StateFile)]
    used = {key for state in states if state.in_flight is not None for key in state.in_flight.exchanges}
    every = [describe_exchange(edge, job) for edge in job.edges] if used else []
    return tuple(exchange for exchange in every if exchange.key in used)
