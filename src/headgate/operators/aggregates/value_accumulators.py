"""Accumulators that hold values: those of `first`, `last`, `count_distinct`, `collect_list`, and `min` and `max` of
strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.records.canonical import Int64s, as_arrow, decoded, flat_ranges, null_mask, raw_values
from headgate.state.frozen import frozen
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable
from headgate.state.pairs import PairTable
from headgate.state.renumber import OneRowPerSlot, renumbering
from headgate.state.values import ValueLog

#: The list accumulator compacts its log when it has this many values more than twice the number of slots.
_SLACK = 1 << 16


class PickedValues:
    """One value of any Arrow type for each slot. The value of a slot is null until `put` sets it."""

    def __init__(self, kind: pa.DataType) -> None:
        self._log = ValueLog(kind)
        self.positions = Growable(np.int64, -1)

    @property
    def nbytes(self) -> int:
        return self._log.nbytes + self.positions.nbytes

    def resize(self, size: int) -> None:
        self.positions.resize(size)

    def put(self, slots: Int64s, values: pa.Array) -> None:
        """Replace the values of these slots. The slots are all different."""
        begin = self._log.append(values)
        self.positions.values[slots] = np.arange(begin, begin + len(slots))
        if len(self._log) > 2 * len(self.positions) + _SLACK:
            self.keep(np.arange(len(self.positions)))

    def take(self, slots: Int64s) -> pa.Array:
        return self._log.take(self.positions.values.take(slots))

    def frozen(self) -> Self:
        return frozen(self)

    def keep(self, slots: Int64s) -> None:
        """Keep only these slots. They become 0, 1, 2 ..."""
        positions = self.positions.values.take(slots)
        self._log.keep(positions)
        self.positions.replace(np.where(positions < 0, -1, np.arange(len(slots))))


class TimedAccumulator(Accumulator):
    """The accumulator of `first` and `last`: the value of the row with the least or the greatest event time."""

    def __init__(self, kind: pa.DataType, latest: bool) -> None:
        self._latest = latest
        self._times = Growable(np.int64, MIN_TIME if latest else MAX_TIME)
        self._values = PickedValues(kind)
        self._rows = OneRowPerSlot()

    @property
    def nbytes(self) -> int:
        return self._times.nbytes + self._values.nbytes + self._rows.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        assert times is not None
        self._times.resize(size)
        self._values.resize(size)
        best = self._times.values
        held = best.take(slots)
        ahead = (times >= held) if self._latest else (times < held)
        rows = np.flatnonzero(ahead | (self._values.positions.values.take(slots) < 0))
        if not len(rows):
            return
        slots, times = slots.take(rows), times.take(rows)
        (np.maximum if self._latest else np.minimum).at(best, slots, times)
        winners = np.flatnonzero(times == best.take(slots))
        winners = winners[self._rows.pick(slots.take(winners), size)]
        self._values.put(slots.take(winners), decoded(column).take(as_arrow(rows.take(winners))))

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        filled = np.flatnonzero(other._values.positions.values.take(others) >= 0)
        slots, others = slots.take(filled), others.take(filled)
        self.update(size, slots, other._values.take(others), other._times.values.take(others))

    def result(self, slots: Int64s) -> pa.Array:
        return self._values.take(slots)

    def keep(self, slots: Int64s) -> None:
        self._times.replace(self._times.values.take(slots))
        self._values.keep(slots)

    def columns(self, slots: Int64s) -> list[pa.Array]:
        return [as_arrow(self._times.values.take(slots)), self._values.take(slots)]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        times, values = columns
        self.update(size, slots, values, raw_values(times).view(np.int64))


class OrderedAccumulator(Accumulator):
    """The accumulator of `min` and `max` of strings, binaries and wide decimals.

    It compares the best value of each batch with the best value so far.
    """

    def __init__(self, kind: pa.DataType, greatest: bool) -> None:
        self._kind = kind
        self._function = "max" if greatest else "min"
        self._better = pc.greater if greatest else pc.less
        self._values = PickedValues(kind)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        self._values.resize(size)
        if not len(slots):
            return
        rows = pa.table([as_arrow(slots), self._comparable(decoded(column))], names=["slot", "value"])
        grouped = rows.group_by("slot", use_threads=False).aggregate([("value", self._function)]).drop_null()
        slots = grouped.column("slot").to_numpy()
        best = grouped.column(f"value_{self._function}").combine_chunks().cast(self._kind)
        better = pc.fill_null(self._better(best, self._values.take(slots)), True).to_numpy(zero_copy_only=False)
        self._values.put(slots[better], best.filter(as_arrow(better)))

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        self.update(size, slots, other._values.take(others), None)

    def result(self, slots: Int64s) -> pa.Array:
        return self._values.take(slots)

    def keep(self, slots: Int64s) -> None:
        self._values.keep(slots)

    def columns(self, slots: Int64s) -> list[pa.Array]:
        return [self._values.take(slots)]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._values.resize(size)
        self._values.put(slots, columns[0])

    @staticmethod
    def _comparable(column: pa.Array) -> pa.Array:
        """Return the column in a type that Arrow's grouped `min` and `max` accept: fixed-size binary becomes binary."""
        return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column


class DistinctAccumulator(Accumulator):
    """The accumulator of `count_distinct`: a table of all pairs of slot and value, and the number of pairs of each
    slot."""

    def __init__(self, kind: pa.DataType) -> None:
        self._values = KeyTable([kind])
        self._pairs = PairTable()
        self._counts = Growable(np.int64)
        self._order: Int64s | None = None

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + self._pairs.nbytes + self._counts.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        column = decoded(column)
        self._counts.resize(size)
        nulls = null_mask(column)
        if nulls is not None:
            rows = np.flatnonzero(~nulls)
            slots, column = slots.take(rows), column.take(as_arrow(rows))
        if not len(slots):
            return
        known = len(self._pairs)
        self._pairs.find_or_add(slots, self._values.find_or_add([column], len(column)))
        self._order = None
        np.add.at(self._counts.values, self._pairs.left(known), 1)

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        owners = owners_of(slots, others, len(other._counts)).take(other._pairs.left())
        owned = np.flatnonzero(owners >= 0)
        [values] = other._values.keys(other._pairs.right().take(owned))
        self.update(size, owners.take(owned), values, None)

    def result(self, slots: Int64s) -> pa.Array:
        return as_arrow(self._counts.values.take(slots))

    def keep(self, slots: Int64s) -> None:
        owners = renumbering(slots, len(self._counts)).take(self._pairs.left())
        owned = np.flatnonzero(owners >= 0)
        values = self._pairs.right().take(owned)
        used = np.zeros(len(self._values), np.bool_)
        used[values] = True
        live = np.flatnonzero(used)
        self._pairs.replace(owners.take(owned), renumbering(live, len(used)).take(values))
        self._values.compact(live)
        self._order = None
        self._counts.replace(self._counts.values.take(slots))

    def columns(self, slots: Int64s) -> list[pa.Array]:
        owners = self._pairs.left()
        if self._order is None:
            self._order = np.argsort(owners, kind="stable")
        pairs, offsets = of_owners(owners, self._order, slots)
        [values] = self._values.keys(self._pairs.right().take(pairs))
        return [pa.LargeListArray.from_arrays(as_arrow(offsets), values)]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self.update(size, _list_owners(slots, columns[0]), columns[0].flatten(), None)


class ListAccumulator(Accumulator):
    """The accumulator of `collect_list`: a log of all non-null values, and a log of the slot of each value.

    A result sorts the values by slot.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._size = 0
        self._values = ValueLog(kind)
        self._owners = Growable(np.int64)
        self._order: Int64s | None = None

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + self._owners.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        column = decoded(column)
        self._size, self._order = size, None
        nulls = null_mask(column)
        if nulls is not None:
            slots, column = slots[~nulls], column.drop_null()
        self._owners.append(slots)
        self._values.append(column)

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        owners = owners_of(slots, others, other._size).take(other._owners.values)
        owned = np.flatnonzero(owners >= 0)
        self.update(size, owners.take(owned), other._values.take(owned), None)

    def result(self, slots: Int64s) -> pa.Array:
        if self._order is None and 2 * len(slots) < self._size:  # sort only the values of these slots
            owners = renumbering(slots, self._size).take(self._owners.values)
            owned = np.flatnonzero(owners >= 0)
            owners = owners.take(owned)
            values = self._values.take(owned.take(np.argsort(owners, kind="stable")))
            offsets = np.append(0, np.cumsum(np.bincount(owners, minlength=len(slots))))
        else:
            values, offsets = self._lists(slots)
        return pa.ListArray.from_arrays(as_arrow(offsets.astype(np.int32)), values)

    def columns(self, slots: Int64s) -> list[pa.Array]:
        values, offsets = self._lists(slots)
        return [pa.LargeListArray.from_arrays(as_arrow(offsets), values)]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self.update(size, _list_owners(slots, columns[0]), columns[0].flatten(), None)

    def _lists(self, slots: Int64s) -> tuple[pa.Array, Int64s]:
        """Return the values of these slots, slot by slot, and the offset at which the values of each slot begin."""
        if self._order is None:
            self._order = np.argsort(self._owners.values, kind="stable")
        positions, offsets = of_owners(self._owners.values, self._order, slots)
        return self._values.take(positions), offsets

    def keep(self, slots: Int64s) -> None:
        owners = renumbering(slots, self._size).take(self._owners.values)
        owned = np.flatnonzero(owners >= 0)
        self._values.keep(owned)
        self._owners.replace(owners.take(owned))
        self._size, self._order = len(slots), None


def owners_of(slots: Int64s, others: Int64s, size: int) -> Int64s:
    """Return the slot that absorbs each of the `size` slots of another accumulator. -1 means that no slot absorbs
    it."""
    owners = np.full(size, -1)
    owners[others] = slots
    return owners


def of_owners(owners: Int64s, order: Int64s, slots: Int64s) -> tuple[Int64s, Int64s]:
    """Return the positions that these slots own, slot by slot, and the offset at which the positions of each slot
    begin.

    `order` sorts the positions by owner.
    """
    owners = owners.take(order)
    begins = np.searchsorted(owners, slots)
    positions, offsets = flat_ranges(begins, np.searchsorted(owners, slots, side="right") - begins)
    return order.take(positions), offsets


def _list_owners(slots: Int64s, lists: pa.LargeListArray) -> Int64s:
    """Return the slot of each value in the lists of these slots."""
    return np.repeat(slots, raw_values(lists.value_lengths()).view(np.int64))
