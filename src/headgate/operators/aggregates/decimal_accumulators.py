"""Accumulators of `sum` and `mean` of decimals. They are exact: a sum is an integer of several 64-bit words.

A mean is rounded half up, as in Spark SQL. A result that does not fit its type is an error, as for sums of integers.
Spark with ANSI mode off returns null instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import CheckpointError, DataError
from headgate.operators.aggregates.accumulators import ValueAccumulator
from headgate.operators.aggregates.number_accumulators import IntegerSums
from headgate.operators.decimal_types import mean_type, sum_type
from headgate.records.canonical import Bools, Int64s, as_arrow, from_raw_values, null_mask, raw_values
from headgate.state.frozen import frozen
from headgate.state.growable import Growable

_HALF: Final = 32
_LOW: Final = (1 << _HALF) - 1
_WORD_BITS: Final = 64
_WORD: Final = (1 << _WORD_BITS) - 1
_DIGITS_OF_SMALL: Final = 29
_NO_SLOTS: Final = np.zeros(0, np.int64)


class DecimalSums:
    """Exact sums of decimals of one type, one for each slot, as integers in units of the last digit.

    A value is several 64-bit words; only the highest word is signed. Each word has its own sum. As long as all values
    fit into one signed word, only the sum of the lowest word exists. Small decimals therefore cost as little as
    integers.
    """

    def __init__(self, words: int) -> None:
        self._count = words
        self._words = [IntegerSums()]
        self._size = 0

    @property
    def nbytes(self) -> int:
        return sum(word.nbytes for word in self._words)

    def resize(self, size: int) -> None:
        self._size = size
        for word in self._words:
            word.resize(size)

    def add(self, slots: Int64s, values: npt.NDArray[np.int64]) -> None:
        """Add one or more values. A value is a row of words, the lowest word first."""
        low = values[:, 0]
        if all((values[:, place] == low >> 63).all() for place in range(1, values.shape[1])):
            self._words[0].add(slots, low)
            return
        self._widen()
        for place, word in enumerate(self._words):
            column = np.ascontiguousarray(values[:, place])
            word.add(slots, column if place == self._count - 1 else column.view(np.uint64))

    def absorb(self, slots: Int64s, other: DecimalSums, others: Int64s) -> None:
        """Add the sums in one or more slots `others` of another object to the slots `slots`."""
        if len(other._words) > 1:
            self._widen()
        for word, other_word in zip(self._words, other._words, strict=False):
            word.absorb(slots, other_word, others)

    def _widen(self) -> None:
        while len(self._words) < self._count:
            self._words.append(IntegerSums())
            self._words[-1].resize(self._size)

    @property
    def are_small(self) -> bool:
        """Whether only the sum of the lowest word exists. All sums are then below 2^95, which has 29 digits."""
        return len(self._words) == 1

    def sums(self, slots: Int64s) -> list[Int64s]:
        """Return the sums as arrays of words, the lowest word first.

        There is one word more than in the type. The last word is signed.
        """
        if self.are_small:
            high, low = self._words[0].sums(slots)
            return [low | (high << _HALF), high >> _HALF, *[high >> 63] * (self._count - 1)]
        halves: list[Int64s] = []
        carry = np.zeros(len(slots), np.int64)
        for word in self._words:
            high, low = word.sums(slots)
            for half in (low, high):
                carry = carry + half
                halves.append(carry & _LOW)
                carry = carry >> _HALF
        return [low | (high << _HALF) for low, high in zip(halves[::2], halves[1::2], strict=True)] + [carry]

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only its `sums` may be used."""
        reader = frozen(self)
        reader._words = [word.frozen() for word in self._words]
        return reader

    def keep(self, slots: Int64s) -> None:
        self._size = len(slots)
        for word in self._words:
            word.keep(slots)

    def load(self, slots: Int64s, words: Sequence[Int64s]) -> None:
        """Restore what `sums` returned, in one or more slots that have no sum yet."""
        if all((word == words[0] >> 63).all() for word in words[1:]):
            self._words[0].load(slots, words[0], np.zeros(len(slots), np.int32))
            return
        self._widen()
        for place, (word, sums) in enumerate(zip(words, self._words, strict=False)):
            above = words[-1] << _HALF if place == self._count - 1 else 0
            sums.add_words(slots, ((word >> _HALF) & _LOW) + above, word & _LOW)


class DecimalSumAccumulator(ValueAccumulator):
    """The accumulator of `sum` of decimals."""

    #: The number of columns in snapshots of earlier versions, which stored the sum as a float64.
    FLOAT_COLUMNS = 1

    def __init__(self, column: str, kind: pa.DataType) -> None:
        super().__init__()
        self._column = column
        self._input = kind
        self._kind = sum_type(kind)
        self._sums = DecimalSums(self._kind.bit_width // _WORD_BITS)
        #: A sum of an earlier version is restored only if its absolute value is below this limit, in units of the last
        #: digit.
        self._limit = 10**self._kind.precision

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._sums.nbytes

    def _values(self, column: pa.Array) -> npt.NDArray[Any]:
        words = column.type.bit_width // _WORD_BITS
        if words < 2:
            return raw_values(column).astype(np.int64).reshape(-1, 1)
        data = column.buffers()[1]
        if data is None:
            return np.zeros((len(column), words), np.int64)
        flat = np.frombuffer(data, np.int64, len(column) * words, column.offset * words * 8)
        return flat.reshape(-1, words)

    def _resize(self, size: int) -> None:
        self._sums.resize(size)

    def _add(self, slots: Int64s, values: npt.NDArray[Any]) -> None:
        self._sums.add(slots, values)

    def _absorb(self, slots: Int64s, other: Self, others: Int64s) -> None:
        self._sums.absorb(slots, other._sums, others)

    def _result(self, slots: Int64s, nulls: Bools | None) -> pa.Array:
        words = self._sums.sums(slots)
        if not (self._sums.are_small and self._kind.precision >= _DIGITS_OF_SMALL):
            over = ~_within(words, 10**self._kind.precision)
            if over.any():
                raise self._overflow("sum", _integer(words, int(np.flatnonzero(over)[0])), 1)
        return from_raw_values(np.stack(words[:-1], axis=1), nulls, self._kind)

    def _overflow(self, what: str, total: int, count: int) -> DataError:
        value = f"{Decimal(f'{total}e{-self._input.scale}'):f}" + (f" / {count}" if count > 1 else "")
        return DataError(
            f"{what}({self._column!r}) is {value}, which does not fit into {self._kind}; make {self._column!r} a "
            "decimal with fewer digits behind the point, or a float64, before it is aggregated"
        )

    def _columns(self, slots: Int64s, nulls: Bools | None) -> list[pa.Array]:
        lowest, *others = self._sums.sums(slots)
        return [as_arrow(lowest, nulls), *map(as_arrow, others)]

    def columns_of_floats(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Convert columns of earlier versions to the present form. The sums are rounded half up.

        Raises CheckpointError for a sum that does not fit its type.
        """
        sums = columns[0]
        totals = [self._total_of_float(value) for value in sums.fill_null(0.0).to_pylist()]
        places = range(0, len(self._sums.sums(_NO_SLOTS)) * _WORD_BITS, _WORD_BITS)
        lowest, *others = ([total >> place & _WORD for total in totals] for place in places)
        nulls = null_mask(sums)
        return [as_arrow(_signed(lowest), nulls), *(as_arrow(_signed(words)) for words in others)]

    def _total_of_float(self, value: float) -> int:
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            numerator *= 10 ** max(self._input.scale, 0)
            denominator *= 10 ** max(-self._input.scale, 0)
            magnitude: int = (2 * abs(numerator) + denominator) // (2 * denominator)
            if magnitude < self._limit:
                return magnitude if numerator >= 0 else -magnitude
        raise CheckpointError(
            f"an earlier version stored the sum of column {self._column!r} as a float64. It is {value!r} here, which "
            f"does not fit into {sum_type(self._input)}; start without this checkpoint"
        )

    def _load(self, slots: Int64s, columns: Sequence[npt.NDArray[Any]]) -> None:
        self._sums.load(slots, columns)

    def _keep(self, slots: Int64s) -> None:
        self._sums.keep(slots)


class DecimalMeanAccumulator(DecimalSumAccumulator):
    """The accumulator of `mean` of decimals, computed from their exact sum."""

    FLOAT_COLUMNS = 2

    def __init__(self, column: str, kind: pa.DataType) -> None:
        super().__init__(column, kind)
        self._limit <<= _HALF - 1  # only the mean must fit a type: its sum may be much larger
        self._kind = mean_type(kind)
        self._counts = Growable(np.int64)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._counts.nbytes

    def _resize(self, size: int) -> None:
        super()._resize(size)
        self._counts.resize(size)

    def _add(self, slots: Int64s, values: npt.NDArray[Any]) -> None:
        super()._add(slots, values)
        np.add.at(self._counts.values, slots, 1)

    def _absorb(self, slots: Int64s, other: Self, others: Int64s) -> None:
        super()._absorb(slots, other, others)
        np.add.at(self._counts.values, slots, other._counts.values.take(others))

    def _result(self, slots: Int64s, nulls: Bools | None) -> pa.Array:
        words, counts = self._sums.sums(slots), np.maximum(self._counts.values.take(slots), 1)
        factor = 10 ** (self._kind.scale - self._input.scale)
        means = np.zeros((len(slots), len(words) - 1), np.int64)
        # Round half up: in 64 bits for rows where 2 x total x factor + count surely fits, in Python for all other rows.
        largest = (1 << 61) // factor
        small = _within(words, largest) & (counts < 1 << 61)
        total, count = words[0][small] * factor, counts[small]
        quotient = (2 * np.abs(total) + count) // (2 * count) * np.sign(total)
        means[small] = quotient[:, None] >> np.arange(means.shape[1])[None, :].clip(0, 1) * 63
        for row in np.flatnonzero(~small):
            means[row] = self._mean(_integer(words, int(row)), int(counts[row]), factor, means.shape[1])
        return from_raw_values(means, nulls, self._kind)

    def _mean(self, total: int, count: int, factor: int, words: int) -> list[int]:
        """Return the words of one mean, the lowest word first. Raises DataError if the mean does not fit its type."""
        magnitude = (2 * abs(total) * factor + count) // (2 * count)
        if magnitude >= 10**self._kind.precision:
            raise self._overflow("mean", total, count)
        mean = magnitude if total >= 0 else -magnitude
        data = mean.to_bytes(words * 8, "little", signed=True)
        return list(np.frombuffer(data, np.int64))

    def _columns(self, slots: Int64s, nulls: Bools | None) -> list[pa.Array]:
        return [*super()._columns(slots, nulls), as_arrow(self._counts.values.take(slots))]

    def columns_of_floats(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        sums, counts = columns
        return [*super().columns_of_floats([sums]), counts]

    def _load(self, slots: Int64s, columns: Sequence[npt.NDArray[Any]]) -> None:
        super()._load(slots, columns[:-1])
        self._counts.values[slots] = columns[-1]

    def _keep(self, slots: Int64s) -> None:
        super()._keep(slots)
        self._counts.replace(self._counts.values.take(slots))


def _within(words: Sequence[Int64s], limit: int) -> Bools:
    """Return for each integer whether it is above -limit and below limit. Only the last word is signed."""
    return _less(words, limit) & ~_less(words, 1 - limit)


def _less(words: Sequence[Int64s], limit: int) -> Bools:
    """Return for each integer whether it is below the limit. The highest word that differs decides."""
    less = np.zeros(len(words[0]), np.bool_)
    for word in words[:-1]:
        unsigned, limit_word = word.view(np.uint64), np.uint64(limit & ((1 << _WORD_BITS) - 1))
        less = np.where(unsigned == limit_word, less, unsigned < limit_word)
        limit >>= _WORD_BITS
    return np.where(words[-1] == limit, less, words[-1] < limit)


def _signed(words: list[int]) -> Int64s:
    """Return unsigned 64-bit words as int64 with the same bits."""
    return np.array(words, np.uint64).view(np.int64)


def _integer(words: Sequence[Int64s], row: int) -> int:
    """Return the words of one row as one integer."""
    value = int(words[-1][row])
    for word in reversed(words[:-1]):
        value = (value << _WORD_BITS) | (int(word[row]) & ((1 << _WORD_BITS) - 1))
    return value
