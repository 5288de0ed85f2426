"""Collect batches before they are split over many channels, so that each channel's slice is worth its cost."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headgate.compat import concat_batches

#: The bytes per channel that make a split worth its cost: tens of microseconds, and 1 to 2 us for a slice of any size.
BYTES_PER_CHANNEL: Final = 32 << 10
#: The most bytes that wait for a split, for any number of channels.
MAX_UNPARTITIONED: Final = 8 << 20


class UnpartitionedBatches:
    """The batches that a writer has accepted but not yet split over channels.

    The writer splits them at `limit` bytes. With a `limit` of 0 it splits each batch at once.
    """

    __slots__ = ("_batches", "_limit", "bytes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: pa.RecordBatch, size: int) -> bool:
        """Append a batch of `size` bytes. Returns whether the batches now reach the limit."""
        self._batches.append(batch)
        self.bytes += size
        return self.bytes >= self._limit

    def take(self) -> tuple[pa.RecordBatch, int]:
        """Remove all batches and return (one batch with all rows, its bytes). There must be a batch."""
        batches, size = self._batches, self.bytes
        self.clear()
        return batches[0] if len(batches) == 1 else concat_batches(batches), size

    def clear(self) -> None:
        """Drop all batches."""
        self._batches = []
        self.bytes = 0


def partition_threshold(channels: int) -> int:
    """Return the bytes that make a split over this many channels worth its cost."""
    return min(channels * BYTES_PER_CHANNEL, MAX_UNPARTITIONED)
