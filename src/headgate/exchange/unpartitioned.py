"""Batches that wait to be distributed to many channels, until each channel's slice is worth what it costs."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headgate.compat import concat_batches

#: Bytes for each channel that are worth a deal: a slice costs a microsecond or two, whatever is in it.
DEAL_BYTES: Final = 8 << 10
#: The most that waits for a deal, however many channels there are.
MAX_UNDEALT: Final = 8 << 20


class UnpartitionedBatches:
    """What a writer has taken and not yet distributed. With a `limit` of 0 bytes every batch is enough."""

    __slots__ = ("_batches", "_limit", "bytes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: pa.RecordBatch, size: int) -> bool:
        """Returns whether it is enough now."""
        self._batches.append(batch)
        self.bytes += size
        return self.bytes >= self._limit

    def take(self) -> tuple[pa.RecordBatch, int]:
        """All as one batch, and its bytes; there must be some."""
        batches, size = self._batches, self.bytes
        self.clear()
        return batches[0] if len(batches) == 1 else concat_batches(batches), size

    def clear(self) -> None:
        """Forget all."""
        self._batches = []
        self.bytes = 0


def partition_threshold(channels: int) -> int:
    """How many bytes are worth a deal to so many channels."""
    return min(channels * DEAL_BYTES, MAX_UNDEALT)
