"""How much of a task's network buffers holds data, as shares of what it may have now.

The ratios are Flink's (inPoolUsage, outPoolUsage): a full output and a full input are back-pressured by what is
downstream; behind an empty output a full input shows the task that does not keep up. Buffers that stand ready for data
are not in use. What a local channel reads belongs to its producer, and counts there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.exchange.channels import InputChannel
from headgate.memory.local_pool import LocalBufferPool


@dataclass(frozen=True, slots=True)
class Usage:
    """Buffers that hold data, of those there are."""

    used: int = 0
    size: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.used + other.used, self.size + other.size)

    @property
    def ratio(self) -> float:
        """0 without buffers; above 1 while more are lent than the share is: overdraft, or a share that has shrunk."""
        return self.used / self.size if self.size else 0.0


def output_usage(pools: Iterable[LocalBufferPool]) -> Usage:
    """Of a task's result partitions."""
    return _lent(pools)


def floating_usage(pools: Iterable[LocalBufferPool], channels: Sequence[InputChannel]) -> Usage:
    """Of the pools of a task's gates: floating buffers, or without credit all there are."""
    lent = _lent(pools)
    return Usage(max(0, lent.used - sum(channel.free_floating_buffers for channel in channels)), lent.size)


def exclusive_usage(channels: Iterable[InputChannel]) -> Usage:
    """Of the exclusive buffers of a task's remote channels."""
    usage = Usage()
    for channel in channels:
        size = channel.exclusive_buffers
        usage += Usage(max(0, size - channel.free_exclusive_buffers), size)
    return usage


def _lent(pools: Iterable[LocalBufferPool]) -> Usage:
    usage = Usage()
    for pool in pools:
        usage += Usage(pool.in_use, pool.size)
    return usage
