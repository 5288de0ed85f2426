"""`ValueLog`: a log of Arrow values of one type, addressed by position; for state that NumPy arrays cannot hold."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, as_arrow


class ValueLog:
    """A log of values that are appended in batches and read by position.

    While the last chunk is at most twice as long as the new values, `append` joins the two. The chunks therefore stay
    few, and appending stays cheap.
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
        while self._chunks and len(self._chunks[-1]) <= 2 * len(values):
            values = pa.concat_arrays([self._chunks.pop(), values])
        self._chunks.append(values)
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

    def replace(self, values: pa.Array) -> None:
        """Replace all values by these."""
        self._chunks = [values]
        self._size = len(values)
