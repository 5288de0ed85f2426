"""The accumulator of `approx_count_distinct`: HyperLogLog for each slot.

The library `datasketches` has HyperLogLog too, but it takes one value in each call from Python. This accumulator takes
a batch, and keeps only the registers that are not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.aggregates.value_accumulators import of_owners, owners_of
from headgate.records.canonical import Int64s, as_arrow, decoded, null_mask, raw_values
from headgate.records.hashing import key_hash
from headgate.state.frozen import frozen
from headgate.state.growable import Growable
from headgate.state.pairs import PairTable
from headgate.state.renumber import renumbering

#: A slot has 2^12 registers. The standard error is 1.04 / sqrt(2^12), which is 1.6 %.
_BITS: Final = 12
_REGISTERS: Final = 1 << _BITS
#: A snapshot has one integer for each register that is not 0: its low 6 bits are the rank, the others the register's
#: number.
_RANK_BITS: Final = 6
_MOST_RANK: Final = 64 - _BITS
#: Enough rounds for the sum in `_sigma` to converge in float64.
_ROUNDS: Final = 64


class ApproximateDistinctAccumulator(Accumulator):
    """The accumulator of an estimate of the number of different values.

    The hash of a value chooses a register, and gives a rank: the position of its lowest bit that is set. A register
    holds the greatest rank. The estimate is the improved one of Ertl, "New cardinality estimation algorithms for
    HyperLogLog sketches", 2017.
    """

    def __init__(self) -> None:
        self._pairs = PairTable()  # of slot and register
        self._ranks = Growable(np.int8)
        #: For each slot, the number of registers that are not 0, and the sum of 2^-rank over them.
        self._used, self._sums = Growable(np.int64), Growable(np.float64)
        self._order: Int64s | None = None

    @property
    def nbytes(self) -> int:
        return self._pairs.nbytes + self._ranks.nbytes + self._used.nbytes + self._sums.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        column = decoded(column)
        nulls = null_mask(column)
        if nulls is not None:
            slots, column = slots[~nulls], column.drop_null()
        hashes = key_hash([column])
        rest = hashes | np.uint64(1 << _MOST_RANK - 1)  # so that the rank is at most _MOST_RANK
        lowest = rest & (~rest + np.uint64(1))
        ranks = np.log2(lowest.astype(np.float64)).astype(np.int8) + np.int8(1)
        self._raise(size, slots, (hashes >> np.uint64(_MOST_RANK)).view(np.int64), ranks)

    def _raise(self, size: int, slots: Int64s, registers: Int64s, ranks: npt.NDArray[np.int8]) -> None:
        """Raise the registers of these slots to these ranks."""
        self._used.resize(size)
        self._sums.resize(size)
        if not len(slots):
            return
        pairs = self._pairs.find_or_add(slots, registers)
        self._ranks.resize(len(self._pairs))
        higher = np.flatnonzero(ranks > self._ranks.values.take(pairs))
        if not len(higher):
            return
        self._order = None
        raised = np.unique(pairs.take(higher))
        before = self._ranks.values.take(raised)
        np.maximum.at(self._ranks.values, pairs.take(higher), ranks.take(higher))
        owners = self._pairs.left().take(raised)
        np.add.at(self._used.values, owners[before == 0], 1)
        added = np.ldexp(1.0, -self._ranks.values.take(raised).astype(np.int32))
        np.add.at(
            self._sums.values, owners, added - np.where(before == 0, 0.0, np.ldexp(1.0, -before.astype(np.int32)))
        )

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        owners = owners_of(slots, others, len(other._used)).take(other._pairs.left())
        owned = np.flatnonzero(owners >= 0)
        self._raise(size, owners.take(owned), other._pairs.right().take(owned), other._ranks.values.take(owned))

    def result(self, slots: Int64s) -> pa.Array:
        unused = 1 - self._used.values.take(slots) / _REGISTERS
        with np.errstate(divide="ignore"):
            indicator = self._sums.values.take(slots) + _REGISTERS * _sigma(unused)
            estimates = _REGISTERS**2 / (2 * math.log(2)) / indicator
        return as_arrow(np.rint(estimates).astype(np.int64))

    def keep(self, slots: Int64s) -> None:
        owners = renumbering(slots, len(self._used)).take(self._pairs.left())
        owned = np.flatnonzero(owners >= 0)
        self._pairs.replace(owners.take(owned), self._pairs.right().take(owned))
        self._ranks.replace(self._ranks.values.take(owned))
        self._used.replace(self._used.values.take(slots))
        self._sums.replace(self._sums.values.take(slots))
        self._order = None

    def columns(self, slots: Int64s) -> list[pa.Array]:
        owners = self._pairs.left()
        if self._order is None:
            self._order = np.argsort(owners, kind="stable")
        pairs, offsets = of_owners(owners, self._order, slots)
        words = self._pairs.right().take(pairs) << _RANK_BITS | self._ranks.values.take(pairs)
        return [pa.LargeListArray.from_arrays(as_arrow(offsets), as_arrow(words.astype(np.int32)))]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        words = raw_values(columns[0].flatten()).astype(np.int64)
        ranks = words & (1 << _RANK_BITS) - 1
        if len(words) and not (
            0 <= words.min() <= words.max() < _REGISTERS << _RANK_BITS and ranks.max() <= _MOST_RANK
        ):
            raise ValueError("a register of approx_count_distinct is out of range")
        owners = np.repeat(slots, raw_values(columns[0].value_lengths()).view(np.int64))
        self._raise(size, owners, words >> _RANK_BITS, ranks.astype(np.int8))

    def frozen(self) -> Self:
        return frozen(self)


def _sigma(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return x + x^2 + 2 x^4 + 4 x^8 ... for each share x of registers that are 0. For a share of 1 it is infinite."""
    powers, total, factor = shares, shares.copy(), 1.0
    for _ in range(_ROUNDS):
        powers = powers * powers
        total += powers * factor
        factor *= 2
    return np.where(shares == 1, np.inf, total)
