"""Channel selectors: they assign the rows of a batch to channels. They work on whole batches, never on single rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.records.canonical import Int64s, UInt64s, as_arrow, fixed_words, is_integer, raw_values
from headgate.records.hashing import hash_of_word, hash_words, key_groups, key_hash, subtask_of_key_group

#: This function can skip the check of each row's bounds. `RecordBatch.take` cannot, and the check costs as much as the
#: copy itself.
_TAKE: Final = pc.get_function("take")
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)
#: Up to this many rows, slices are cheaper than `take`. `take` costs at least 4 us per column. A slice of one row costs
#: 0.2 us per column. To concatenate it with other slices costs the same again.
_FEW_ROWS: Final = 8
#: Up to this many channels, one comparison for each channel is cheaper than a sort: 12 instead of 16 us for 5,000 rows.
_FEW_CHANNELS: Final = 4
#: Integers below this number are small: a table holds their channels. It takes one or two bytes for each.
_SMALL_WORDS: Final = 1 << 16


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
        channel = min(candidates, key=self._load)  # of equal loads the first: without load, plain rebalance
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
        self._channel_of_word = self._channel_of_group[:0]
        self._has_small_words = True

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if not self.splits:  # no key columns: one global key, and one channel for it
            return [(0, batch)]
        columns = [batch.column(key) for key in self._keys]
        if batch.num_rows <= _FEW_ROWS and len(columns) == 1 and is_integer(columns[0]):
            return _runs(batch, self._channels_of_few(columns[0]))
        channels = self._channels_of_small(columns)
        if channels is None:
            channels = self._channels_of(key_hash(columns))
        return split_by_channel(batch, channels, self._channels)

    def _channels_of(self, hashes: UInt64s) -> npt.NDArray[Any]:
        return self._channel_of_group.take(key_groups(hashes, self.max_parallelism))

    def _channels_of_small(self, columns: Sequence[pa.Array]) -> npt.NDArray[Any] | None:
        """Return the channel of each row from a table of small integers, or None if a key is anything else.

        A look-up costs a quarter of the time of a hash. After the first integer that is not small, the selector does
        not try again.
        """
        if not self._has_small_words or len(columns) != 1 or not is_integer(columns[0]):
            return None
        [words] = fixed_words(columns[0])
        largest = int(words.view(np.uint64).max())  # a negative word is very large here
        if largest >= _SMALL_WORDS:
            self._has_small_words = False
            return None
        if largest >= len(self._channel_of_word):
            self._channel_of_word = self._channels_of(hash_words([np.arange(1 << largest.bit_length())]))
        return self._channel_of_word.take(words)

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
    if batch.num_rows <= _FEW_ROWS:
        return _runs(batch, channels.tolist())
    order, ends = _order_by_channel(channels, count)
    first = int(channels[order[0]])
    if ends[first] == batch.num_rows:
        return [(first, batch)]
    ordered = _TAKE.call([batch, as_arrow(order)], _UNCHECKED)
    selected, start = [], 0
    for channel, end in enumerate(ends):
        if end > start:
            selected.append((channel, ordered.slice(start, end - start)))
            start = end
    return selected


def _order_by_channel(channels: npt.NDArray[Any], count: int) -> tuple[Int64s, list[int]]:
    """Return the rows in the order of their channels, and for each channel the position after its last row.

    With a few channels, a comparison for each of them is cheaper than a sort.
    """
    if count <= _FEW_CHANNELS:
        rows = [(channels == channel).nonzero()[0] for channel in range(count)]
        return np.concatenate(rows), list(accumulate(map(len, rows)))
    order = np.argsort(channels, kind="stable")
    ends: list[int] = channels.searchsorted(np.arange(count, dtype=channels.dtype), side="right", sorter=order).tolist()
    return order, ends


def _runs(batch: pa.RecordBatch, channels: list[int]) -> list[tuple[int, pa.RecordBatch]]:
    """Split the batch wherever the channel changes. A channel may get several pieces."""
    edges = [row for row in range(1, len(channels)) if channels[row] != channels[row - 1]]
    if not edges:
        return [(channels[0], batch)]
    edges = [0, *edges, len(channels)]
    return [(channels[start], batch.slice(start, end - start)) for start, end in pairwise(edges)]
