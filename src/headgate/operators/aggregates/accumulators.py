"""`Accumulator`: the state of one aggregate, as arrays indexed by slot. One call updates it for a whole batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.records.canonical import Bools, Int64s, as_arrow, decoded, null_mask, raw_values
from headgate.state.frozen import frozen
from headgate.state.growable import Growable


class Accumulator(ABC):
    """The state of one aggregate for all slots. A slot is a number from 0 on that stands for one key."""

    @abstractmethod
    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        """Add rows: slot, value (None for a count of rows) and event time (None if nothing needs it) of each. `size`
        slots exist; `slots` contains all slots that are new."""

    @abstractmethod
    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        """Add slot `others[i]` of another accumulator to `slots[i]`. The `others` differ. For `size` see `update`."""

    @abstractmethod
    def result(self, slots: Int64s) -> pa.Array:
        """Return the results of these slots. Raises DataError if a result does not fit its type."""

    @abstractmethod
    def keep(self, slots: Int64s) -> None:
        """Keep only these slots, which are all different. They become 0, 1, 2 ..."""

    @abstractmethod
    def columns(self, slots: Int64s) -> list[pa.Array]:
        """Return a copy of the whole state of these slots for a snapshot, one row for each slot."""

    @abstractmethod
    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        """Restore columns that `columns` returned. `slots` are new slots, all different. For `size` see `update`."""

    def allow_gaps(self) -> None:
        """Expect new slots without a row in `update`, because a condition drops rows. Call this before the first
        row."""

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only its `columns` may be used."""
        return frozen(self)

    @property
    @abstractmethod
    def nbytes(self) -> int: ...


class CountAccumulator(Accumulator):
    """The accumulator of `count`. It counts rows, or the non-null values of a column."""

    def __init__(self) -> None:
        self._counts = Growable(np.int64)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        self._counts.resize(size)
        nulls = None if column is None else null_mask(column)
        np.add.at(self._counts.values, slots if nulls is None else slots[~nulls], 1)

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        self._counts.resize(size)
        np.add.at(self._counts.values, slots, other._counts.values.take(others))

    def result(self, slots: Int64s) -> pa.Array:
        return as_arrow(self._counts.values.take(slots))

    def keep(self, slots: Int64s) -> None:
        self._counts.replace(self._counts.values.take(slots))

    def columns(self, slots: Int64s) -> list[pa.Array]:
        return [as_arrow(self._counts.values.take(slots))]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._counts.resize(size)
        self._counts.values[slots] = raw_values(columns[0])


class ValueAccumulator(Accumulator):
    """The base class of accumulators over the non-null values of a fixed-width column. The result of no values is null.

    Before the first null, every slot has had a value, unless gaps are allowed. After it, the accumulator records which
    slots have had a value.
    """

    def __init__(self) -> None:
        self._seen: Growable[np.bool_] | None = None
        self._size = 0

    @property
    def nbytes(self) -> int:
        return 0 if self._seen is None else self._seen.nbytes

    def allow_gaps(self) -> None:
        self._seen = Growable(np.bool_)

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        column = decoded(column)
        nulls = null_mask(column)
        self._grow(size, nulls is not None)
        values = self._values(column)
        if nulls is not None:
            rows = np.flatnonzero(~nulls)
            slots, values = slots.take(rows), values.take(rows, axis=0)
        if self._seen is not None:
            self._seen.values[slots] = True
        if len(slots):
            self._add(slots, values)

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        self._grow(size, other._seen is not None)
        if other._seen is not None:
            rows = np.flatnonzero(other._seen.values.take(others))
            slots, others = slots.take(rows), others.take(rows)
        if self._seen is not None:
            self._seen.values[slots] = True
        if len(slots):
            self._absorb(slots, other, others)

    def _grow(self, size: int, nulls: bool) -> None:
        """Grow to `size` slots. If `nulls` is true, record from now on which slots have had a value."""
        if nulls and self._seen is None:
            self._seen = Growable(np.bool_)
            self._seen.append(np.ones(self._size, np.bool_))
        self._size = size
        self._resize(size)
        if self._seen is not None:
            self._seen.resize(size)

    def result(self, slots: Int64s) -> pa.Array:
        return self._result(slots, self._nulls(slots))

    def _nulls(self, slots: Int64s) -> Bools | None:
        return None if self._seen is None else ~self._seen.values.take(slots)

    def columns(self, slots: Int64s) -> list[pa.Array]:
        return self._columns(slots, self._nulls(slots))

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        nulls = null_mask(columns[0])
        self._grow(size, nulls is not None)
        if nulls is not None:
            rows = np.flatnonzero(~nulls)
            slots, columns = slots.take(rows), [column.take(as_arrow(rows)) for column in columns]
        if self._seen is not None:
            self._seen.values[slots] = True
        if len(slots):
            self._load(slots, [raw_values(column) for column in columns])

    def keep(self, slots: Int64s) -> None:
        self._size = len(slots)
        if self._seen is not None:
            self._seen.replace(self._seen.values.take(slots))
        self._keep(slots)

    def _values(self, column: pa.Array) -> npt.NDArray[Any]:
        """Return the values in a form that NumPy can add or compare. A null becomes an arbitrary value."""
        return raw_values(column)

    @abstractmethod
    def _resize(self, size: int) -> None: ...

    @abstractmethod
    def _add(self, slots: Int64s, values: npt.NDArray[Any]) -> None:
        """Add one or more non-null values."""

    @abstractmethod
    def _absorb(self, slots: Int64s, other: Self, others: Int64s) -> None:
        """Add one or more slots `others` of another accumulator. All these slots have had a value."""

    @abstractmethod
    def _result(self, slots: Int64s, nulls: Bools | None) -> pa.Array: ...

    @abstractmethod
    def _columns(self, slots: Int64s, nulls: Bools | None) -> list[pa.Array]:
        """Return the columns for `columns`. The first column is null for a slot that has had no value."""

    @abstractmethod
    def _load(self, slots: Int64s, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Restore one or more slots from columns that `_columns` returned. All these slots have had a value."""

    @abstractmethod
    def _keep(self, slots: Int64s) -> None: ...
