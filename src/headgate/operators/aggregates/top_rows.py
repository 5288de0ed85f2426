"""`TopRows` and its accumulator: the rows of a key with the greatest, or the least, values of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.aggregates.aggregates import OfColumns
from headgate.records.canonical import Int64s, as_arrow, decoded, flat_ranges, null_mask, raw_values, value_type
from headgate.records.order_words import has_order_words, order_words
from headgate.state.frozen import frozen
from headgate.state.growable import Growable
from headgate.state.renumber import OneRowPerSlot
from headgate.state.row_log import RowLog

#: The accumulator compacts its log when it has this many rows more than twice the number of places.
_SLACK = 1 << 16
#: A slot has places for this many rows from the beginning, or for all its rows if these are fewer.
_FIRST_PLACES = 16


@dataclass(frozen=True, slots=True)
class TopRows(OfColumns):
    """The `most` rows with the greatest values in `column`, or with the least ones. A row has the columns `columns`.

    If `ranked` is true, each row of the final result has its rank, from 1.
    """

    most: int = 1
    greatest: bool = True
    ranked: bool = True

    def output_field(self, name: str, schema: pa.Schema) -> pa.Field:
        """Return the field of the result: a list of rows, in the order of their ranks."""
        kind = value_type(schema.field(self.column).type)
        if not has_order_words(kind):
            raise PlanError(
                f"{self}: column {self.column!r} is {kind}, and rows are ranked by numbers, times, booleans, and "
                "decimals of at most 18 digits; cast it first"
            )
        return pa.field(name, pa.list_(self.row_type(schema)))

    def row_type(self, schema: pa.Schema) -> pa.StructType:
        """Return the type of a row in the result."""
        fields = [schema.field(column) for column in self.columns]
        return pa.struct([field.with_type(value_type(field.type)).with_nullable(True) for field in fields])

    def own_accumulator(self, schema: pa.Schema) -> Accumulator:
        """Return the accumulator of the rows."""
        by = self.columns.index(str(self.column))
        return TopAccumulator(self.row_type(schema), by, most=self.most, greatest=self.greatest)

    @property
    def shown(self) -> str:
        """What the plan says about the chosen rows.

        >>> TopRows("top", "price", most=10).shown, TopRows("top", "price", greatest=False).shown
        ('the 10 greatest by price', 'the least by price')
        """
        count = "" if self.most == 1 else f"{self.most} "
        return f"the {count}{'greatest' if self.greatest else 'least'} by {self.column}"

    def __str__(self) -> str:
        return f"{'top' if self.greatest else 'lowest'}({self.most}, by={self.column!r})"


class TopAccumulator(Accumulator):
    """The accumulator of `TopRows`. Each slot has places side by side, one for each rank; the first ones hold rows. A
    slot that needs more places gets twice as many, up to `most`, at the end of all places.

    Rows with a null in the column that decides are ignored. Of rows with equal values, the one that came first is
    ahead.
    """

    def __init__(self, row: pa.StructType, by: int, *, most: int, greatest: bool) -> None:
        self._row = row
        self._by = by
        self._most = most
        self._greatest = greatest
        self._log = RowLog([row.field(index).type for index in range(row.num_fields)])
        #: For each place: its row's position in the log, and its row's order word.
        self._places, self._words = Growable(np.int64), Growable(np.int64)
        #: For each slot: its first place, and the number of its rows.
        self._begins, self._counts = Growable(np.int64), Growable(np.int64)
        self._picker = OneRowPerSlot()
        #: The slots whose rows the last `update` changed, each once, and of each the first rank that changed, from 0.
        self.changed = self.changed_from = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        parts = (self._log, self._places, self._words, self._begins, self._counts, self._picker)
        return sum(part.nbytes for part in parts)

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        assert column is not None
        self._grow(size)
        columns = column.flatten()
        by = decoded(columns[self._by])
        words, nulls = order_words(by), null_mask(by)
        words = words if self._greatest else ~words
        better = self._counts.values.take(slots) < self._most
        if len(full := np.flatnonzero(~better)):
            last = self._begins.values.take(slots.take(full)) + (self._most - 1)
            better[full] = words.take(full) > self._words.values.take(last)
        rows = np.flatnonzero(better if nulls is None else better & ~nulls)
        self._insert(slots.take(rows), words.take(rows), columns, rows)

    def _insert(self, slots: Int64s, words: Int64s, columns: Sequence[pa.Array], rows: Int64s) -> None:
        """Merge the rows `rows` of `columns` with those that their slots have. Each slot keeps the first `most`."""
        if not len(slots):
            self.changed = self.changed_from = np.zeros(0, np.int64)
            return
        touched = slots.take(self._picker.pick(slots, len(self._counts)))
        counts = self._counts.values.take(touched)
        there, _ = flat_ranges(self._begins.values.take(touched), counts)
        slots = np.concatenate([np.repeat(touched, counts), slots])
        words = np.concatenate([self._words.values.take(there), words])
        order = np.lexsort((~words, slots))  # stable: earlier rows stay ahead of equal rows
        ordered = slots.take(order)
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        order, rank = order[rank < self._most], rank[rank < self._most]
        is_new = order >= len(there)
        positions = self._places.values.take(there.take(np.where(is_new, 0, order))) if len(there) else order * 0
        added = order[is_new] - len(there)
        begin = self._log.append(columns, rows.take(added))
        positions[is_new] = np.arange(begin, begin + len(added))
        slots = slots.take(order)
        place = self._places_of(slots, rank)
        self._places.values[place] = positions
        self._words.values[place] = words.take(order)
        slots, rank = slots[is_new], rank[is_new]
        firsts = np.flatnonzero(np.diff(slots, prepend=-1))  # slots ascend
        self.changed, self.changed_from = slots.take(firsts), rank.take(firsts)
        if len(self._log) > 2 * len(self._places) + _SLACK:
            self._compact()

    def _places_of(self, slots: Int64s, ranks: Int64s) -> Int64s:
        """Return the places of all rows of some slots, slot by slot. `ranks` counts the rows of each slot from 0.

        A slot with too few places gets others, which do not yet hold its rows.
        """
        last = np.flatnonzero(np.append(slots[1:] != slots[:-1], True))
        filled, counts = slots.take(last), ranks.take(last) + 1
        rooms = self._room(counts)
        if len(small := np.flatnonzero(rooms > self._room(self._counts.values.take(filled)))):
            ends = len(self._places) + np.cumsum(rooms.take(small))
            self._begins.values[filled.take(small)] = ends - rooms.take(small)
            self._add_places(int(ends[-1]))
        self._counts.values[filled] = counts
        return self._begins.values.take(slots) + ranks

    def _room(self, counts: Int64s) -> Int64s:
        """Return the number of places of slots with these numbers of rows."""
        if self._most <= _FIRST_PLACES:
            return np.full(len(counts), self._most)
        doubled = np.exp2(np.ceil(np.log2(np.maximum(counts, _FIRST_PLACES))))
        return np.minimum(doubled, self._most).astype(np.int64)

    def _add_places(self, size: int) -> None:
        self._places.resize(size)
        self._words.resize(size)

    def _grow(self, size: int) -> None:
        """Add slots without rows up to `size`."""
        more, begin, first = size - len(self._counts), len(self._places), min(_FIRST_PLACES, self._most)
        if more > 0:
            self._begins.append(begin + first * np.arange(more))
            self._counts.resize(size)
            self._add_places(begin + first * more)

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        self._grow(size)
        positions, owners, words = other._held(others)
        self._insert(slots.take(owners), words, other._log.take(positions), np.arange(len(positions)))

    def _held(self, slots: Int64s, first: Int64s | None = None) -> tuple[Int64s, Int64s, Int64s]:
        """Return the rows of these slots, slot by slot and in order. A row is its position in the log, the index of its
        slot in `slots`, and its order word. With `first`, return only rows from this rank of each slot on."""
        counts, begins = self._counts.values.take(slots), self._begins.values.take(slots)
        if first is not None:
            left_out = np.minimum(first, counts)
            counts, begins = counts - left_out, begins + left_out
        places, _ = flat_ranges(begins, counts)
        owners = np.repeat(np.arange(len(slots)), counts)
        return self._places.values.take(places), owners, self._words.values.take(places)

    def changed_rows(self) -> pa.Array:
        """Return the rows of the slots `changed` as lists, which begin at the ranks `changed_from`."""
        return self.result(self.changed, self.changed_from)

    def _lists(self, slots: Int64s, first: Int64s | None = None) -> tuple[pa.Array, Int64s]:
        """Return the rows of these slots, slot by slot, and the offset at which the rows of each slot begin. For
        `first`, see `_held`."""
        positions, owners, _ = self._held(slots, first)
        rows = pa.StructArray.from_arrays(self._log.take(positions), fields=list(self._row))
        return rows, np.append(0, np.cumsum(np.bincount(owners, minlength=len(slots))))

    def result(self, slots: Int64s, first: Int64s | None = None) -> pa.Array:
        rows, offsets = self._lists(slots, first)
        return pa.ListArray.from_arrays(as_arrow(offsets.astype(np.int32)), rows)

    def columns(self, slots: Int64s) -> list[pa.Array]:
        rows, offsets = self._lists(slots)
        return [pa.LargeListArray.from_arrays(as_arrow(offsets), rows)]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        [lists] = columns
        owners = np.repeat(slots, raw_values(lists.value_lengths()).view(np.int64))
        self.update(size, owners, lists.flatten(), None)

    def keep(self, slots: Int64s) -> None:
        counts = self._counts.values.take(slots)
        before, _ = flat_ranges(self._begins.values.take(slots), counts)
        rooms = self._room(counts)
        begins = np.cumsum(rooms) - rooms
        after, _ = flat_ranges(begins, counts)
        for column in (self._places, self._words):
            kept = np.zeros(int(rooms.sum()), np.int64)
            kept[after] = column.values.take(before)
            column.replace(kept)
        self._begins.replace(begins)
        self._counts.replace(counts)
        self._compact()

    def _compact(self) -> None:
        """Remove from the log the rows that are in no place."""
        held, _ = flat_ranges(self._begins.values, self._counts.values)
        self._log.keep(self._places.values.take(held))
        positions = np.zeros(len(self._places), np.int64)
        positions[held] = np.arange(len(held))
        self._places.replace(positions)

    def frozen(self) -> Self:
        return frozen(self)
