"""The accumulator of `var` and `stddev`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.operators.aggregates.accumulators import ValueAccumulator
from headgate.records.canonical import Bools, Int64s, as_arrow, from_raw_values, raw_values
from headgate.state.growable import Growable
from headgate.state.renumber import OneRowPerSlot

Floats = npt.NDArray[np.float64]


class VarianceAccumulator(ValueAccumulator):
    """The accumulator of the variance of a sample, and of its root. The result of fewer than two values is null.

    It keeps the number of values, their mean, and the sum of the squares of their distances from the mean. Two such
    groups are merged without loss of digits (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for
    computing sample variances", 1979).
    """

    def __init__(self, *, root: bool) -> None:
        super().__init__()
        self._root = root
        self._counts = Growable(np.int64)
        self._means, self._squares = Growable(np.float64), Growable(np.float64)
        self._picker = OneRowPerSlot()
        self._places = Growable(np.int64)

    @property
    def nbytes(self) -> int:
        arrays = (self._counts, self._means, self._squares, self._picker, self._places)
        return super().nbytes + sum(array.nbytes for array in arrays)

    def _values(self, column: pa.Array) -> npt.NDArray[Any]:
        return raw_values(column if pa.types.is_float64(column.type) else column.cast(pa.float64(), safe=False))

    def _resize(self, size: int) -> None:
        for array in (self._counts, self._means, self._squares):
            array.resize(size)

    def _add(self, slots: Int64s, values: npt.NDArray[Any]) -> None:
        self._merge(slots, np.ones(len(slots), np.int64), values, np.zeros(len(slots)))

    def _absorb(self, slots: Int64s, other: Self, others: Int64s) -> None:
        means, squares = other._means.values.take(others), other._squares.values.take(others)
        self._merge(slots, other._counts.values.take(others), means, squares)

    def _merge(self, slots: Int64s, counts: Int64s, means: Floats, squares: Floats) -> None:
        """Merge groups of values into their slots: first those of each slot with one another, then with the state."""
        touched = slots.take(self._picker.pick(slots, self._size))
        self._places.resize(max(len(self._places), self._size))
        self._places.values[touched] = np.arange(len(touched))
        at = self._places.values.take(slots)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are ordinary values here
            count = np.bincount(at, counts)
            mean = np.bincount(at, counts * means) / count
            square = np.bincount(at, squares + counts * (means - mean.take(at)) ** 2)
            held, held_mean = self._counts.values.take(touched), self._means.values.take(touched)
            total, apart = held + count, mean - held_mean
            self._means.values[touched] = np.where(held == 0, mean, held_mean + apart * (count / total))
            both = np.where(held == 0, 0.0, apart**2 * (held * (count / total)))
            self._squares.values[touched] += square + both
        self._counts.values[touched] = total.astype(np.int64)

    def _result(self, slots: Int64s, nulls: Bools | None) -> pa.Array:
        counts = self._counts.values.take(slots)
        variance = self._squares.values.take(slots) / np.maximum(counts - 1, 1)
        return from_raw_values(np.sqrt(variance) if self._root else variance, counts < 2, pa.float64())

    def _columns(self, slots: Int64s, nulls: Bools | None) -> list[pa.Array]:
        means = from_raw_values(self._means.values.take(slots), nulls, pa.float64())
        return [means, as_arrow(self._counts.values.take(slots)), as_arrow(self._squares.values.take(slots))]

    def _load(self, slots: Int64s, columns: Sequence[npt.NDArray[Any]]) -> None:
        self._means.values[slots], self._counts.values[slots], self._squares.values[slots] = columns

    def _keep(self, slots: Int64s) -> None:
        self._counts.replace(self._counts.values.take(slots))
        self._means.replace(self._means.values.take(slots))
        self._squares.replace(self._squares.values.take(slots))
