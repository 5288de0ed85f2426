"""Chooses the channel selector of an exchange by its partitioning. The selector maps each row to a channel."""

from __future__ import annotations

from collections.abc import Callable

from headgate.exchange.partition import ResultPartition
from headgate.exchange.selectors import (
    Broadcast,
    ChannelSelector,
    Forward,
    KeyGroups,
    LoadAwareRebalance,
    Rebalance,
    Shuffle,
)
from headgate.operators.operator import OperatorContext
from headgate.operators.partitioner import UserPartitioner
from headgate.plan.graph import Partitioning
from headgate.plan.job_graph import JobEdge
from headgate.records.hashing import default_max_parallelism


def selector_of(
    edge: JobEdge, partition: ResultPartition, context: OperatorContext, max_parallelism: int | None
) -> ChannelSelector:
    """Return the channel selector with which a subtask writes to an edge.

    `context` belongs to the node that writes to the output. `max_parallelism` is the job's option, or None if it is not
    given.
    """
    channels = partition.subpartitions
    return selector(
        edge.partitioning, len(channels), context, max_parallelism, lambda channel: channels[channel].backlog
    )


def selector(
    partitioning: Partitioning,
    channels: int,
    context: OperatorContext,
    max_parallelism: int | None,
    load: Callable[[int], int],
) -> ChannelSelector:
    """Return the channel selector of the subtask of `context`. `load` returns how many buffers wait for a channel."""
    subtask = context.subtask
    match partitioning.kind:
        case "forward" | "to_one":
            return Forward()
        case "rebalance" | "rescale":
            return Rebalance(channels, start=subtask)
        case "load_aware":
            return LoadAwareRebalance(channels, subtask, load)
        case "shuffle":
            return Shuffle(channels, seed=subtask)
        case "broadcast":
            return Broadcast(channels)
        case "custom":
            assert partitioning.function is not None
            return UserPartitioner(partitioning.function, channels, context)
        case _:
            return _key_groups(partitioning, channels, max_parallelism)


def key_groups(edge: JobEdge, channels: int, max_parallelism: int | None) -> KeyGroups:
    """Return the channel selector of a keyed exchange."""
    return _key_groups(edge.partitioning, channels, max_parallelism)


def _key_groups(partitioning: Partitioning, channels: int, max_parallelism: int | None) -> KeyGroups:
    return KeyGroups(partitioning.keys, channels, max_parallelism or default_max_parallelism(channels))
