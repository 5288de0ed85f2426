"""The channel selector of an exchange, chosen by its partitioning."""

from __future__ import annotations

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
from headgate.plan.job_graph import JobEdge
from headgate.records.hashing import default_max_parallelism


def selector_of(
    edge: JobEdge, partition: ResultPartition, subtask: int, context: OperatorContext, max_parallelism: int | None
) -> ChannelSelector:
    """Return the channel selector for the output of `subtask` on an edge.

    `context` is the context of the node that has this output. `max_parallelism` is the job's option, or None if it is
    not given.
    """
    channels = len(partition.subpartitions)
    match edge.partitioning.kind:
        case "forward" | "to_one":
            return Forward()
        case "rebalance" | "rescale":
            return Rebalance(channels, start=subtask)
        case "load_aware":
            return LoadAwareRebalance(channels, subtask, lambda index: partition.subpartitions[index].backlog)
        case "shuffle":
            return Shuffle(channels, seed=subtask)
        case "broadcast":
            return Broadcast(channels)
        case "custom":
            assert edge.partitioning.function is not None
            return UserPartitioner(edge.partitioning.function, channels, context)
        case _:
            return key_groups(edge, channels, max_parallelism)


def key_groups(edge: JobEdge, channels: int, max_parallelism: int | None) -> KeyGroups:
    """Return the channel selector of a keyed exchange."""
    return KeyGroups(edge.partitioning.keys, channels, max_parallelism or default_max_parallelism(channels))
