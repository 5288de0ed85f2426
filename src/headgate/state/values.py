"""`ValueLog`: a log of Arrow values of one type, addressed by position; for state that NumPy arrays cannot hold."""

from __future__ import annotations

import copy
from typing import Final, Self

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, as_arrow

#: The most bytes of a chunk that is joined. Arrow's texts have offsets of 32 bits, so 2 GiB would be too many.
_MOST_BYTES: Final = 1 << 30


class ValueLog:
    """A log of values that are appended in batches and read by position.

    `append` joins the new values with the last chunks, as long as such a chunk is at most twice as long as what comes
    after it, and they have at most `_MOST_BYTES` together. The chunks therefore stay few, and appending stays cheap.
    """

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
        """Add values at the end. Returns the position of the first one."""
        begin = self._size
        self._size += len(values)
        first, joined, size = len(self._chunks), len(values), values.nbytes
        while first and len(self._chunks[first - 1]) <= 2 * joined:
            size += self._chunks[first - 1].nbytes
            if size > _MOST_BYTES:
                break
            first -= 1
            joined += len(self._chunks[first])
        last = self._chunks[first:]
        self._chunks[first:] = [pa.concat_arrays([*last, values]) if last else values]
        return begin

    def take(self, positions: Int64s) -> pa.Array:
        """Return the values at these positions, and null for each negative position.

        Each chunk is asked by itself: Arrow joins all chunks first, and so copies the whole log.
        """
        chunks = self._chunks or [pa.nulls(0, self._kind)]
        begins = np.cumsum([0, *map(len, chunks)])
        owners = np.searchsorted(begins[1:-1], positions, side="right")
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners, minlength=len(chunks)))
        parts = [
            chunk.take(as_arrow(local := positions.take(order[end - count : end]) - begin, nulls=local < 0))
            for chunk, begin, end, count in zip(chunks, begins, ends, np.diff(ends, prepend=0), strict=False)
            if count
        ]
        if len(parts) < 2:  # in their order already
            return parts[0] if parts else chunks[0].slice(0, 0)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(as_arrow(places))

    def frozen(self) -> Self:
        """Return a copy for reading only. It shares the values, which never change."""
        reader = copy.copy(self)
        reader._chunks = list(self._chunks)
        return reader

    def keep(self, positions: Int64s) -> None:
        """Keep only the values at these positions, in this order; null for each negative position."""
        self._chunks = self._parts_at(positions)
        self._size = len(positions)

    def _parts_at(self, positions: Int64s) -> list[pa.Array]:
        """Return the values at these positions, in parts that Arrow can hold."""
        try:
            return [self.take(positions)]
        except pa.ArrowInvalid:  # more than 2 GiB of text
            if len(positions) < 2:
                raise
        half = len(positions) // 2
        return self._parts_at(positions[:half]) + self._parts_at(positions[half:])
