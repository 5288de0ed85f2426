"""`TopRows` and its accumulator: the rows of a key with the greatest, or the least, values of one or more columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.aggregates.aggregates import OfColumns
from headgate.records.canonical import Int64s, as_arrow, decoded, flat_ranges, null_mask, raw_values, value_type
from headgate.records.order_words import Ranking, has_order_words, order_words
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

    `then_by` ranks rows with equal values. If `ranked` is true, each row of the final result has its rank, from 1.
    """

    most: int = 1
    greatest: bool = True
    ranked: bool = True
    then_by: Ranking = ()

    @property
    def ranking(self) -> Ranking:
        """All columns that rank the rows."""
        return ((str(self.column), self.greatest), *self.then_by)

    def output_field(self, name: str, schema: pa.Schema) -> pa.Field:
        """Return the field of the result: a list of rows, in the order of their ranks."""
        for column, _ in self.ranking:
            kind = value_type(schema.field(column).type)
            if not has_order_words(kind):
                raise PlanError(
                    f"{self}: column {column!r} is {kind}, and rows are ranked by numbers, times, booleans, and "
                    "decimals of at most 18 digits; cast it first"
                )
        return pa.field(name, pa.list_(self.row_type(schema)))

    def row_type(self, schema: pa.Schema) -> pa.StructType:
        """Return the type of a row in the result."""
        fields = [schema.field(column) for column in self.columns]
        return pa.struct([field.with_type(value_type(field.type)).with_nullable(True) for field in fields])

    def own_accumulator(self, schema: pa.Schema) -> Accumulator:
        """Return the accumulator of the rows."""
        by = [(self.columns.index(column), greatest) for column, greatest in self.ranking]
        return TopAccumulator(self.row_type(schema), by, most=self.most)

    @property
    def shown(self) -> str:
        """What the plan says about the chosen rows.

        >>> TopRows("top", "price", most=10).shown, TopRows("top", "price", greatest=False).shown
        ('the 10 greatest by price', 'the least by price')
        >>> TopRows("top", "price", then_by=(("time", False),)).shown
        'the greatest by price, then the least by time'
        """
        count = "" if self.most == 1 else f"{self.most} "
        first, *others = [f"{'greatest' if greatest else 'least'} by {column}" for column, greatest in self.ranking]
        return ", then the ".join([f"the {count}{first}", *others])

    def __str__(self) -> str:
        if not self.then_by:
            return f"{'top' if self.greatest else 'lowest'}({self.most}, by={self.column!r})"
        columns, ascending = [column for column, _ in self.ranking], [not greatest for _, greatest in self.ranking]
        return f"top({self.most}, by={columns}, ascending={ascending})"


class TopAccumulator(Accumulator):
    """The accumulator of `TopRows`. Each slot has places side by side, one for each rank; the first ones hold rows. A
    slot that needs more places gets twice as many, up to `most`, at the end of all places.

    `by` has the indices of the columns that rank the rows, as a `Ranking`. Rows with a null in one of them are ignored.
    Of rows with equal values, the one that came first is ahead.
    """

    def __init__(self, row: pa.StructType, by: Sequence[tuple[int, bool]], *, most: int) -> None:
        self._row = row
        self._by = by
        self._most = most
        self._log = RowLog([row.field(index).type for index in range(row.num_fields)])
        #: For each place: its row's position in the log.
        self._places = Growable(np.int64)
        #: For each place: its row's words, one for each column of `by`. A row that is ahead has a greater word.
        self._words = [Growable(np.int64) for _ in by]
        #: For each slot: its first place, and the number of its rows.
        self._begins, self._counts = Growable(np.int64), Growable(np.int64)
        self._picker = OneRowPerSlot()
        #: The slots whose rows the last `update` changed, each once, and of each the first rank that changed, from 0.
        self.changed = self.changed_from = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        columns = (self._places, *self._words, self._begins, self._counts)
        return self._log.nbytes + self._picker.nbytes + sum(column.nbytes for column in columns)

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        assert column is not None
        self._grow(size)
        columns = column.flatten()
        by = [decoded(columns[index]) for index, _ in self._by]
        words = [
            order_words(each) if greatest else ~order_words(each)
            for each, (_, greatest) in zip(by, self._by, strict=True)
        ]
        better = self._counts.values.take(slots) < self._most
        if len(full := np.flatnonzero(~better)):
            last = self._begins.values.take(slots.take(full)) + (self._most - 1)
            better[full] = self._are_ahead(_taken(words, full), last)
        for each in by:
            if (nulls := null_mask(each)) is not None:
                better &= ~nulls
        rows = np.flatnonzero(better)
        self._insert(slots.take(rows), _taken(words, rows), columns, rows)

    def _are_ahead(self, words: Sequence[Int64s], places: Int64s) -> npt.NDArray[np.bool_]:
        """Return for each row with these words whether it is ahead of the row in its place of `places`."""
        *others, (last, held) = zip(words, self._words, strict=True)
        ahead = last > held.values.take(places)
        for word, held in reversed(others):
            there = held.values.take(places)
            ahead = (word > there) | ((word == there) & ahead)
        return ahead

    def _insert(self, slots: Int64s, words: Sequence[Int64s], columns: Sequence[pa.Array], rows: Int64s) -> None:
        """Merge the rows `rows` of `columns` with those that their slots have. Each slot keeps the first `most`."""
        if not len(slots):
            self.changed = self.changed_from = np.zeros(0, np.int64)
            return
        touched = slots.take(self._picker.pick(slots, len(self._counts)))
        counts = self._counts.values.take(touched)
        there, _ = flat_ranges(self._begins.values.take(touched), counts)
        slots = np.concatenate([np.repeat(touched, counts), slots])
        words = [np.concatenate([held.values.take(there), word]) for held, word in zip(self._words, words, strict=True)]
        order = np.lexsort((*(~word for word in reversed(words)), slots))  # stable: earlier rows stay ahead of equals
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
        for held, word in zip(self._words, words, strict=True):
            held.values[place] = word.take(order)
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
        if self._most > _FIRST_PLACES:
            self._make_room(filled, counts)
        self._counts.values[filled] = counts
        return self._begins.values.take(slots) + ranks

    def _make_room(self, slots: Int64s, counts: Int64s) -> None:
        """Give other places to those of these slots that have too few for `counts` rows."""
        rooms = self._room(counts)
        if len(small := np.flatnonzero(rooms > self._room(self._counts.values.take(slots)))):
            ends = len(self._places) + np.cumsum(rooms.take(small))
            self._begins.values[slots.take(small)] = ends - rooms.take(small)
            self._add_places(int(ends[-1]))

    def _room(self, counts: Int64s) -> Int64s:
        """Return the number of places of slots with these numbers of rows."""
        if self._most <= _FIRST_PLACES:
            return np.full(len(counts), self._most)
        doubled = np.exp2(np.ceil(np.log2(np.maximum(counts, _FIRST_PLACES))))
        return np.minimum(doubled, self._most).astype(np.int64)

    def _add_places(self, size: int) -> None:
        for column in (self._places, *self._words):
            column.resize(size)

    def _grow(self, size: int) -> None:
        """Add slots without rows up to `size`."""
        more, begin, first = size - len(self._counts), len(self._places), min(_FIRST_PLACES, self._most)
        if more > 0:
            self._begins.append(begin + first * np.arange(more))
            self._counts.resize(size)
            self._add_places(begin + first * more)

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        self._grow(size)
        places, owners = other._held(others)
        rows = other._log.take(other._places.values.take(places))
        words = [held.values.take(places) for held in other._words]
        self._insert(slots.take(owners), words, rows, np.arange(len(places)))

    def _held(self, slots: Int64s, first: Int64s | None = None) -> tuple[Int64s, Int64s]:
        """Return the places of the rows of these slots, slot by slot and in order, and for each row the index of its
        slot in `slots`. With `first`, return only rows from this rank of each slot on."""
        counts, begins = self._counts.values.take(slots), self._begins.values.take(slots)
        if first is not None:
            left_out = np.minimum(first, counts)
            counts, begins = counts - left_out, begins + left_out
        places, _ = flat_ranges(begins, counts)
        return places, np.repeat(np.arange(len(slots)), counts)

    def changed_rows(self) -> pa.Array:
        """Return the rows of the slots `changed` as lists, which begin at the ranks `changed_from`."""
        return self.result(self.changed, self.changed_from)

    def _lists(self, slots: Int64s, first: Int64s | None = None) -> tuple[pa.Array, Int64s]:
        """Return the rows of these slots, slot by slot, and the offset at which the rows of each slot begin. For
        `first`, see `_held`."""
        places, owners = self._held(slots, first)
        rows = pa.StructArray.from_arrays(self._log.take(self._places.values.take(places)), fields=list(self._row))
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
        for column in (self._places, *self._words):
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
        return frozen(self)  # without `_words`, which no snapshot has


def _taken(words: Sequence[Int64s], rows: Int64s) -> list[Int64s]:
    return [word.take(rows) for word in words]
