"""A log of values of any type, addressed by number; for state that NumPy arrays cannot hold."""

from __future__ import annotations

import copy
from typing import Self

import pyarrow as pa

from headgate.records.canonical import Int64s, as_arrow


class ValueLog:
    """Values appended batch by batch, read by their position. Chunks are merged as they double, so they stay few."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[pa.Array] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks)

    def append(self, values: pa.Array) -> int:
        """Add values; returns the position of the first one."""
        begin = self._size
        self._size += len(values)
        while self._chunks and len(self._chunks[-1]) <= 2 * len(values):
            values = pa.concat_arrays([self._chunks.pop(), values])
        self._chunks.append(values)
        return begin

    def take(self, positions: Int64s) -> pa.Array:
        """The values at these positions; null at negative ones."""
        chunked = pa.chunked_array(self._chunks, self._kind)
        taken = chunked.take(as_arrow(positions, nulls=positions < 0))
        return taken.chunk(0) if taken.num_chunks == 1 else pa.concat_arrays(taken.chunks or [pa.nulls(0, self._kind)])

    def frozen(self) -> Self:
        """What is held now, for reading; the values themselves never change."""
        mine = copy.copy(self)
        mine._chunks = list(self._chunks)
        return mine

    def replace(self, values: pa.Array) -> None:
        """Hold these values alone."""
        self._chunks = [values]
        self._size = len(values)
