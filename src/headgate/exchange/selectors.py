"""Channel selectors: they assign the rows of a batch to channels. They work on whole batches, never on single rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.records.canonical import as_arrow, is_integer, raw_values
from headgate.records.hashing import hash_of_word, key_groups, key_hash, subtask_of_key_group

#: This function can skip the check of each row's bounds. `RecordBatch.take` cannot, and the check costs as much as the
#: copy itself.
_TAKE: Final = pc.get_function("take")
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)
#: Up to this many rows, slices are cheaper than `take`. `take` costs at least 4 us per column. A slice of one row costs
#: 0.2 us per column. To concatenate it with other slices costs the same again.
_FEW_ROWS: Final = 8


class ChannelSelector(Protocol):
    """The rule that assigns rows to channels.

    `splits` is True if the rows of one batch go to different channels. The writer then first collects small batches, so
    that the slices do not become too small.
    """

    splits: bool

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return (channel, rows) pairs. The pairs of one channel keep the order of the rows.

        Each row appears once. In a broadcast each row appears once per channel.
        """


class Forward:
    """The selector that sends all rows to the first channel, the only channel of a forward edge."""

    splits = False

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        return [(0, batch)]


class Rebalance:
    """The selector that sends whole batches to the channels in turn.

    Each writer starts at another channel, so that small jobs use all channels.
    """

    splits = False

    def __init__(self, channels: int, start: int) -> None:
        self._channels = channels
        self._next = start % channels

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        channel = self._next
        self._next = (channel + 1) % self._channels
        return [(channel, batch)]


class LoadAwareRebalance:
    """The selector that sends each batch to the least loaded of the next `examined` channels.

    A slow consumer therefore gets fewer batches. This is Flink's adaptive partitioner (FLIP-339). `load` returns the
    amount of data that waits for a channel.
    """

    splits = False

    def __init__(self, channels: int, start: int, load: Callable[[int], int], examined: int = 4) -> None:
        self._channels = channels
        self._next = start % channels
        self._load = load
        self._examined = min(examined, channels)

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        candidates = [(self._next + ahead) % self._channels for ahead in range(self._examined)]
        channel = min(candidates, key=self._load)  # the first of equal ones: without load, plain rebalance
        self._next = (channel + 1) % self._channels
        return [(channel, batch)]


class Shuffle:
    """The selector that sends each row to a random channel. All channels are equally probable.

    The seed determines the choices.
    """

    splits = True

    def __init__(self, channels: int, seed: int) -> None:
        self._channels = channels
        self._random = np.random.default_rng(seed)
        self._small = small_integers(channels)

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        channels = self._random.integers(self._channels, size=batch.num_rows, dtype=self._small)
        return split_by_channel(batch, channels, self._channels)


class Broadcast:
    """The selector that sends all rows to every channel."""

    splits = False

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        return [(channel, batch) for channel in range(self._channels)]


class KeyGroups:
    """The selector that sends all rows of a key to the same channel.

    A hash selects the key group, and the key group selects the channel (Flink: KeyGroupRangeAssignment).
    """

    def __init__(self, keys: Sequence[str], channels: int, max_parallelism: int) -> None:
        self._keys = tuple(keys)
        self._channels = channels
        self.splits = channels > 1 and bool(keys)
        self.max_parallelism = max_parallelism
        groups = np.arange(max_parallelism)
        subtasks = subtask_of_key_group(groups, channels, max_parallelism)
        self._channel_of_group = subtasks.astype(small_integers(channels))
        self._channels_by_group: list[int] = subtasks.tolist()

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if not self.splits:  # no key columns: one global key, and one channel for it
            return [(0, batch)]
        columns = [batch.column(key) for key in self._keys]
        if batch.num_rows <= _FEW_ROWS and len(columns) == 1 and is_integer(columns[0]):
            return _runs(batch, self._channels_of_few(columns[0]))
        groups = key_groups(key_hash(columns), self.max_parallelism)
        return split_by_channel(batch, self._channel_of_group.take(groups), self._channels)

    def _channels_of_few(self, integers: pa.Array) -> list[int]:
        """Return the channel of each row. For a few rows this costs a quarter of the time that NumPy takes."""
        words: list[int] = raw_values(integers).tolist()
        return [self._channels_by_group[hash_of_word(word) % self.max_parallelism] for word in words]


def small_integers(channels: int) -> type[np.uint8] | type[np.uint16]:
    """Return the smallest type for channel numbers.

    NumPy's stable argsort of small integers is a radix sort. It is several times faster than the argsort of int64.
    """
    return np.uint8 if channels <= 256 else np.uint16


def split_by_channel(batch: pa.RecordBatch, channels: npt.NDArray[Any], count: int) -> list[tuple[int, pa.RecordBatch]]:
    """Split the rows of a batch by their channel numbers, 0 to `count` - 1. The rows of a channel keep their order."""
    order = np.argsort(channels, kind="stable")
    ends = channels.searchsorted(np.arange(count, dtype=channels.dtype), side="right", sorter=order).tolist()
    first = int(channels[order[0]])
    if ends[first] == batch.num_rows:
        return [(first, batch)]
    if batch.num_rows <= _FEW_ROWS:
        return _runs(batch, channels.tolist())
    ordered = _TAKE.call([batch, as_arrow(order)], _UNCHECKED)
    selected, start = [], 0
    for channel, end in enumerate(ends):
        if end > start:
            selected.append((channel, ordered.slice(start, end - start)))
            start = end
    return selected


def _runs(batch: pa.RecordBatch, channels: list[int]) -> list[tuple[int, pa.RecordBatch]]:
    """Split the batch wherever the channel changes. A channel may get several pieces."""
    edges = [row for row in range(1, len(channels)) if channels[row] != channels[row - 1]]
    if not edges:
        return [(channels[0], batch)]
    edges = [0, *edges, len(channels)]
    return [(channels[start], batch.slice(start, end - start)) for start, end in pairwise(edges)]
