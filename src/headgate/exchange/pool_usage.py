"""Compute the share of a task's network buffers that holds data.

The ratios are Flink's (inPoolUsage, outPoolUsage). A full input and a full output mean that a downstream task
back-pressures this one. A full input and an empty output mean that this task is too slow. Empty buffers that are ready
for data are not in use. A buffer that a local channel reads counts at its producer only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.exchange.channels import InputChannel
from headgate.memory.local_pool import LocalBufferPool


@dataclass(frozen=True, slots=True)
class Usage:
    """Two numbers of buffers: `used` buffers hold data, and `size` buffers exist."""

    used: int = 0
    size: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.used + other.used, self.size + other.size)

    @property
    def ratio(self) -> float:
        """`used` divided by `size`; 0 without buffers. It exceeds 1 with overdraft, or after a share has shrunk."""
        return self.used / self.size if self.size else 0.0


def output_usage(pools: Iterable[LocalBufferPool]) -> Usage:
    """Return the usage of a task's result partitions."""
    return _lent(pools)


def floating_usage(pools: Iterable[LocalBufferPool], channels: Sequence[InputChannel]) -> Usage:
    """Return the usage of the pools of a task's gates. They hold the floating buffers; without credit, all buffers."""
    lent = _lent(pools)
    return Usage(max(0, lent.used - sum(channel.free_floating_buffers for channel in channels)), lent.size)


def exclusive_usage(channels: Iterable[InputChannel]) -> Usage:
    """Return the usage of the exclusive buffers of a task's remote channels."""
    used = total = 0
    for channel in channels:  # perhaps thousands
        size = channel.exclusive_buffers
        total += size
        used += max(0, size - channel.free_exclusive_buffers)
    return Usage(used, total)


def _lent(pools: Iterable[LocalBufferPool]) -> Usage:
    usage = Usage()
    for pool in pools:
        usage += Usage(pool.in_use, pool.size)
    return usage
