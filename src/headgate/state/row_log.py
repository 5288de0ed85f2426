"""`RowLog`: a log of rows that are appended in batches and read by position; for rows that are kept as a whole."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, as_arrow, decoded, from_raw_values, null_mask, raw_values
from headgate.state.growable import Growable
from headgate.state.values import ValueLog


class FixedLog:
    """A log of values of a fixed-width type of at most 64 bits. It has the methods of `ValueLog`, but is several times
    faster."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._values: Growable[Any] = Growable(raw_values(pa.nulls(0, kind)).dtype)
        #: Which values are null; None before the first null.
        self._nulls: Growable[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + (0 if self._nulls is None else self._nulls.nbytes)

    def append(self, values: pa.Array) -> int:
        """Add values at the end. Returns the position of the first one."""
        begin, nulls = len(self), null_mask(values)
        if nulls is not None and self._nulls is None:
            self._nulls = Growable(np.bool_)
            self._nulls.resize(begin)
        if self._nulls is not None:
            self._nulls.append(np.zeros(len(values), np.bool_) if nulls is None else nulls)
        self._values.append(raw_values(values))
        return begin

    def take(self, positions: Int64s) -> pa.Array:
        """Return the values at these positions. No position may be negative."""
        nulls = None if self._nulls is None else self._nulls.values.take(positions)
        values = self._values.values.take(positions)
        if pa.types.is_boolean(self._kind):
            return as_arrow(values.astype(np.bool_), nulls=nulls)
        return from_raw_values(values, nulls, self._kind)

    def frozen(self) -> Self:
        """Return a copy for reading only. It shares the values, which never change."""
        reader = copy.copy(self)
        reader._values = self._values.shared()
        reader._nulls = None if self._nulls is None else self._nulls.shared()
        return reader

    def keep(self, positions: Int64s) -> None:
        """Keep only the values at these positions, in this order. No position may be negative."""
        values = self.take(positions)
        self._values.replace(raw_values(values))
        nulls = null_mask(values)
        if self._nulls is not None or nulls is not None:
            self._nulls = Growable(np.bool_)
            self._nulls.append(np.zeros(len(values), np.bool_) if nulls is None else nulls)


def column_log(kind: pa.DataType) -> FixedLog | ValueLog:
    """Return an empty log of values of this type."""
    is_fixed = pa.types.is_primitive(kind) and kind.bit_width <= 64
    return FixedLog(kind) if is_fixed else ValueLog(kind)


class RowLog:
    """A log of rows: one log for each column. All logs have the same positions."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._columns = [column_log(kind) for kind in kinds]
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns)

    def append(self, columns: Sequence[pa.Array], rows: Int64s) -> int:
        """Add the rows with the numbers `rows` at the end. Returns the position of the first one."""
        begin, chosen = self._size, as_arrow(rows)
        for log, column in zip(self._columns, columns, strict=True):
            log.append(decoded(column).take(chosen))
        self._size += len(rows)
        return begin

    def take(self, positions: Int64s) -> list[pa.Array]:
        """Return the columns of the rows at these positions. No position may be negative."""
        return [log.take(positions) for log in self._columns]

    def keep(self, positions: Int64s) -> None:
        """Forget all other rows. The rows at these positions get the positions 0, 1, 2 ..."""
        for log in self._columns:
            log.keep(positions)
        self._size = len(positions)

    def frozen(self) -> Self:
        """Return a copy for reading only. It shares the rows, which never change."""
        reader = copy.copy(self)
        reader._columns = [log.frozen() for log in self._columns]
        return reader
