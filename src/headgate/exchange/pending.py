"""Slices of batches that wait in a writer to become one Arrow message, and the budget that bounds them."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.records.elements import LatencyMarker

PENDING_BUDGET: Final = 64 << 20


class HeldBatch:
    """A batch that slices keep alive: it counts whole, and once, until the last of its slices is cut. Of two the older
    one has the smaller number."""

    __slots__ = ("bytes", "holders", "number")

    def __init__(self, size: int, holders: int, number: int) -> None:
        self.bytes = size
        self.holders = holders
        self.number = number


class PendingBudget:
    """Bytes outside segments that all tasks of a TaskManager may hold together: in writers what is pending or due, in
    readers messages that are being gathered.

    Each writer keeps its own count, which it alone changes; a reader adds them up. So there is no lock.
    """

    def __init__(self, limit: int = PENDING_BUDGET) -> None:
        self.limit = limit
        self._counts: list[PendingCount] = []

    def add_count(self) -> PendingCount:
        """A new writer's or reader's count."""
        self._counts = [*self._counts, count := PendingCount()]
        return count

    @property
    def used(self) -> int:
        used = 0
        for count in self._counts:  # asked for each batch: a generator would cost more than the additions
            used += count.bytes
        return used

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.limit

    def is_exceeded_by(self, count: PendingCount) -> bool:
        """Whether all together hold too much, and this one more than an equal share. Who holds less goes on as before
        though others hold all; so it is less than twice the limit even then."""
        return count.bytes * len(self._counts) > self.limit and self.used > self.limit

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit."""
        return self.used + size <= self.limit


class PendingCount:
    """Bytes that one writer or reader holds."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class PendingSlices:
    """What waits for one channel (or, broadcast, for all): slices, then the newest watermark behind them, then latency
    markers, each with the channel that it goes to."""

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
        """The batches that slices here keep alive."""
        return list(self._held)

    @property
    def oldest(self) -> int:
        """The number of the oldest batch that is kept alive here; there must be one."""
        return self._held[0].number

    def add(self, rows: pa.RecordBatch, row_bytes: float, held: HeldBatch) -> None:
        self._slices.append(rows)
        self._held.append(held)
        self.rows += rows.num_rows
        self.bytes += rows.num_rows * row_bytes

    def cut(self, message_size: int) -> tuple[list[pa.RecordBatch], int]:
        """All slices as even batches of one to two times `message_size`, a part of a row more or less (fewer bytes when
        there are no more; at least one row each), and the bytes of source batches no longer held."""
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
