"""Slices of batches that wait in a writer to become Arrow messages, and their memory budget."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.records.elements import LatencyMarker

PENDING_BUDGET: Final = 64 << 20


class HeldBatch:
    """The size and age of a batch whose memory stays alive because slices of it are pending.

    All bytes of the batch count once, until its last slice is in a message. `holders` is the number of channels that
    still have slices. An older batch has a smaller `number`.
    """

    __slots__ = ("bytes", "holders", "number")

    def __init__(self, size: int, holders: int, number: int) -> None:
        self.bytes = size
        self.holders = holders
        self.number = number


class PendingBudget:
    """The limit for the bytes outside segments that all tasks of a TaskManager hold together.

    These bytes are the pending and due output of writers and the incoming messages of readers. Each writer and reader
    changes only its own count, and a check adds all counts up. No lock is therefore needed.
    """

    def __init__(self, limit: int = PENDING_BUDGET) -> None:
        self.limit = limit
        self._counts: list[PendingCount] = []

    def add_count(self) -> PendingCount:
        """Create the count of a new writer or reader."""
        self._counts = [*self._counts, count := PendingCount()]
        return count

    @property
    def used(self) -> int:
        """The bytes held by all writers and readers."""
        used = 0
        for count in self._counts:  # runs for each batch: a generator would cost more than the additions
            used += count.bytes
        return used

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.limit

    def is_exceeded_by(self, count: PendingCount) -> bool:
        """Return whether the budget is exceeded and this count is above an equal share.

        A writer or reader below its equal share is not limited, even when others use the whole budget. The total
        therefore stays below twice the limit.
        """
        return count.bytes * len(self._counts) > self.limit and self.used > self.limit

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes fit."""
        return self.used + size <= self.limit


class PendingCount:
    """The count of bytes that one writer or reader holds."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class PendingSlices:
    """The pending output of one channel, or of all channels of a broadcast.

    It consists of slices of batches, then the newest watermark, and then latency markers. Each marker comes with the
    number of the channel that it goes to.
    """

    __slots__ = ("_held", "_slices", "bytes", "channels", "markers", "rows", "watermark", "watermark_sent_at")

    def __init__(self, channels: range) -> None:
        self.channels = channels
        self._slices: list[pa.RecordBatch] = []
        self._held: list[HeldBatch] = []
        self.rows = 0
        self.bytes = 0.0
        self.watermark: int | None = None
        self.markers: list[tuple[int, LatencyMarker]] = []
        self.watermark_sent_at = float("-inf")

    def held(self) -> list[HeldBatch]:
        """Return the batches that these slices keep alive."""
        return list(self._held)

    @property
    def oldest(self) -> int:
        """The number of the oldest batch that these slices keep alive. There must be a slice."""
        return self._held[0].number

    def add(self, rows: pa.RecordBatch, row_bytes: float, held: HeldBatch) -> None:
        """Append a slice of the batch `held`, with `row_bytes` bytes per row."""
        self._slices.append(rows)
        self._held.append(held)
        self.rows += rows.num_rows
        self.bytes += rows.num_rows * row_bytes

    def cut(self, message_size: int) -> tuple[list[pa.RecordBatch], int]:
        """Remove all slices and return (batches of about equal size, freed bytes).

        The freed bytes are those of the batches in `held()` that no other channel keeps alive.
        Each returned batch has one to two times `message_size` bytes, rounded to whole rows, and at least one row. If
        there is only one batch, it may be smaller.
        """
        whole = self._slices[0] if len(self._slices) == 1 else concat_batches(self._slices)
        messages = max(1, min(self.rows, int(self.bytes // message_size)))
        edges = [self.rows * message // messages for message in range(messages + 1)]
        batches = [whole] if messages == 1 else [whole.slice(at, end - at) for at, end in pairwise(edges)]
        released = 0
        for held in self._held:
            held.holders -= 1
            if not held.holders:
                released += held.bytes
        self._slices, self._held, self.rows, self.bytes = [], [], 0, 0.0
        return batches, released
