"""Channel selectors: which rows of a batch go to which channel. They see whole batches, never single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.records.hashing import key_groups, key_hash, subtask_of_key_group


class ChannelSelector(Protocol):
    """`select` returns (channel, rows) pairs; no row is lost and none is doubled, broadcast excepted."""

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]: ...


class Forward:
    """All rows to the one channel there is."""

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        return [(0, batch)]


class Rebalance:
    """Whole batches, dealt to the channels in turn; each writer starts at another one, so small jobs use them all."""

    def __init__(self, channels: int, start: int) -> None:
        self._channels = channels
        self._next = start % channels

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        channel = self._next
        self._next = (channel + 1) % self._channels
        return [(channel, batch)]


class Broadcast:
    """All rows to every channel."""

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        return [(channel, batch) for channel in range(self._channels)]


class KeyGroups:
    """Rows of one key always to the same channel: hash -> key group -> channel (`research/flink.md` 3.6)."""

    def __init__(self, keys: Sequence[str], channels: int, max_parallelism: int) -> None:
        self._keys = tuple(keys)
        self._channels = channels
        self._max_parallelism = max_parallelism
        groups = np.arange(max_parallelism)
        small = np.uint8 if channels <= 256 else np.uint16
        self._all_channels = np.arange(channels, dtype=small)
        # A stable argsort of small integers is a radix sort, several times faster than one of int64.
        self._channel_of_group = subtask_of_key_group(groups, channels, max_parallelism).astype(small)

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if self._channels == 1 or not self._keys:  # no key columns: one global key, and one channel for it
            return [(0, batch)]
        hashes = key_hash([batch.column(key) for key in self._keys])
        channels = self._channel_of_group[key_groups(hashes, self._max_parallelism)]
        order = np.argsort(channels, kind="stable")
        ends = channels.take(order).searchsorted(self._all_channels, side="right").tolist()
        first = int(channels[order[0]])
        if ends[first] == batch.num_rows:
            return [(first, batch)]
        ordered = batch.take(pa.array(order))
        selected, start = [], 0
        for channel, end in enumerate(ends):
            if end > start:
                selected.append((channel, ordered.slice(start, end - start)))
                start = end
        return selected
