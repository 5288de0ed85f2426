"""`CountState`: the state of windows by count. It holds the keys, how many rows each has, and the panes of its windows.

A pane is a number of successive rows of a key: the greatest number that divides both the size of the windows and the
distance between their ends. A row goes into one pane. A window merges its panes when its last row arrives. Windows that
do not overlap have one pane each.

A pane has a slot (a number) in the accumulators. A key has one place for each pane of a window. Pane n of the key is in
place n % panes, so that it replaces a pane that no window needs any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.windows.window_kinds import CountWindows
from headgate.records.canonical import Int64s, as_arrow, raw_values
from headgate.state.frozen import frozen
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable
from headgate.state.snapshot import in_pieces

#: The results of some windows: the key columns, and the aggregates' columns.
CountedRows: TypeAlias = tuple[list[pa.Array], list[pa.Array]]
#: The most windows whose results are computed at once.
_MOST = 65_536
#: A compaction happens only if at least this many slots, or the slots of this many rows, are dead.
_LEAST_DEAD, _LEAST_DEAD_ROWS = 8192, 1 << 20
#: No key has so many rows: a million rows per second would take 146,000 years.
_MOST_ROWS_OF_KEY = 1 << 62


class _Parts(NamedTuple):
    """The panes of a batch's rows, sorted by key, then by pane; only of keys for which a pane begins or ends."""

    keys: Int64s
    panes: Int64s
    slots: Int64s
    #: How many rows the part's key has, with this batch.
    rows: Int64s
    #: The position of the first part of the same key.
    first: Int64s


class CountState:
    """The keys, their panes and the accumulators of the panes.

    Slots of panes that no window needs are dead. A compaction removes them when more than half of the slots are dead.
    It also removes keys without a pane, if at least half of all keys have none: such a key begins again with row 0.
    """

    def __init__(
        self, key_types: Sequence[pa.DataType], accumulators: Callable[[], AccumulatorSet], windows: CountWindows
    ) -> None:
        self._key_columns = len(key_types)
        self._empty = accumulators
        #: How many rows a pane has, how many panes a window has, and how many panes are between the ends of windows.
        self._pane = gcd(windows.size, windows.every)
        self._panes = windows.size // self._pane
        self._step = windows.every // self._pane
        self._keys = KeyTable(key_types)
        self._rows = Growable(np.int64)
        self._places = Growable(np.int64, -1)
        self._accumulators = accumulators()
        self._size = self._live = 0

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._rows.nbytes + self._places.nbytes + self._accumulators.nbytes

    @property
    def keys(self) -> int:
        """The number of keys."""
        return len(self._keys)

    # --- rows

    def add(self, columns: Sequence[pa.Array], batch: pa.RecordBatch, arrivals: Int64s) -> list[CountedRows]:
        """Add rows with these key columns. Returns the results of the windows that are complete now.

        `arrivals` has the number of each row, by which `first` and `last` choose. The windows of a key are in ascending
        order.
        """
        keys = self._keys.find_or_add(columns, batch.num_rows)
        self._grow(len(self._keys))
        before = self._rows.values.take(keys)
        np.add.at(self._rows.values, keys, 1)
        after = self._rows.values.take(keys)
        pane = before // self._pane
        begin = pane * self._pane
        slots = self._places.values.take(self._place(keys, pane))
        changing = np.flatnonzero((before == begin) | (after >= begin + self._pane))
        parts = None
        if len(changing):
            order, parts = self._parts(changing, keys, before, after)
            slots[order[0]] = np.repeat(parts.slots, order[1])
        self._accumulators.update(self._size, slots, batch, arrivals)
        if parts is None:
            return []
        results = self._complete(parts)
        self._enter(parts)
        self._compact_if_needed()
        return results

    def _grow(self, keys: int) -> None:
        self._rows.resize(keys)
        self._places.resize(keys * self._panes)

    def _place(self, keys: Int64s, panes: Int64s) -> Int64s:
        return keys if self._panes == 1 else keys * self._panes + panes % self._panes

    def _parts(self, rows: Int64s, keys: Int64s, before: Int64s, after: Int64s) -> tuple[tuple[Int64s, Int64s], _Parts]:
        """Return the parts of these rows of a batch, with new slots for panes that begin.

        Also returns the rows in the order of the parts, and how many rows each part has.
        """
        bits = len(rows).bit_length()
        packed = np.sort((keys.take(rows) << bits) | np.arange(len(rows)))
        order, key = rows.take(packed & ((1 << bits) - 1)), packed >> bits
        other_key = np.append(True, key[1:] != key[:-1])
        of_key = np.flatnonzero(other_key)
        number = before.take(order) + np.arange(len(order))
        number -= np.repeat(of_key, np.diff(np.append(of_key, len(order))))
        pane = number // self._pane
        begins = np.flatnonzero(np.append(True, pane[1:] != pane[:-1]) | other_key)
        keys, panes, total = key.take(begins), pane.take(begins), after.take(order.take(begins))
        is_new = panes * self._pane >= before.take(order.take(begins))
        fresh = self._size + np.cumsum(is_new) - 1
        slots = np.where(is_new, fresh, self._places.values.take(self._place(keys, panes)))
        self._size += int(np.count_nonzero(is_new))
        of_key = np.flatnonzero(other_key.take(begins))
        first = np.repeat(of_key, np.diff(np.append(of_key, len(begins))))
        counts = np.diff(np.append(begins, len(order)))
        return (order, counts), _Parts(keys, panes, slots, total, first)

    def _complete(self, parts: _Parts) -> list[CountedRows]:
        """Return the results of the windows that end with the last row of one of these parts."""
        ends = parts.panes + 1
        last = np.flatnonzero((ends * self._pane <= parts.rows) & (ends % self._step == 0))
        keys, first = parts.keys.take(last), parts.first.take(last)
        known = parts.panes.take(first)

        def slots(some: slice, pane: Int64s) -> Int64s:
            """Return the slot of a pane of each window. Panes before the first part are still in their places."""
            back = pane - known[some]
            position = np.where(back >= 0, first[some] + back, 0)
            places = self._places.values.take(self._place(keys[some], pane))
            return np.where(back >= 0, parts.slots.take(position), places)

        return self._results(keys, parts.panes.take(last), slots)

    def _results(self, keys: Int64s, last: Int64s, slots: Callable[[slice, Int64s], Int64s]) -> list[CountedRows]:
        """Return the results of windows with these keys and last panes.

        `slots` returns the slot of a pane for each window of a slice, or -1 for a pane without rows.
        """
        results = []
        for begin in range(0, len(keys), _MOST):
            some = slice(begin, min(begin + _MOST, len(keys)))
            windows = some.stop - begin
            if self._panes == 1:
                results.append((self._keys.keys(keys[some]), self._accumulators.results(slots(some, last[some]))))
                continue
            whole = self._empty()
            for part in whole.parts:
                part.allow_gaps()  # the first windows of a key have fewer panes
            for back in range(self._panes - 1, -1, -1):
                pane = last[some] - back
                found = np.where(pane >= 0, slots(some, np.maximum(pane, 0)), -1)
                inside = np.flatnonzero(found >= 0)
                whole.absorb(windows, inside, self._accumulators, found.take(inside))
            results.append((self._keys.keys(keys[some]), whole.results(np.arange(windows))))
        return results

    def _enter(self, parts: _Parts) -> None:
        """Enter the last panes of each key into their places."""
        current = parts.rows // self._pane  # the pane of the key's next row
        kept = np.flatnonzero(parts.panes > current - self._panes)
        self._put(self._place(parts.keys.take(kept), parts.panes.take(kept)), parts.slots.take(kept))
        ended = np.flatnonzero((parts.first == np.arange(len(current))) & (current * self._pane == parts.rows))
        places = self._place(parts.keys.take(ended), current.take(ended))
        self._put(places, np.full(len(places), -1))

    def _put(self, places: Int64s, slots: Int64s) -> None:
        """Put slots into places, which are all different, and count the live slots."""
        values = self._places.values
        self._live += int(np.count_nonzero(slots >= 0)) - int(np.count_nonzero(values.take(places) >= 0))
        values[places] = slots

    def incomplete(self) -> list[CountedRows]:
        """Return the results of the windows that would end next and have rows that no window had."""
        every = self._step * self._pane
        rows = self._rows.values
        keys = np.flatnonzero(rows % every)
        rows = rows.take(keys)

        def slots(some: slice, pane: Int64s) -> Int64s:
            places = self._places.values.take(self._place(keys[some], pane))
            return np.where(pane * self._pane < rows[some], places, -1)

        return self._results(keys, (rows // every + 1) * self._step - 1, slots)

    # --- compaction

    def _compact_if_needed(self) -> None:
        dead = self._size - self._live
        if dead > self._live and (dead >= _LEAST_DEAD or dead * self._pane >= _LEAST_DEAD_ROWS):
            self._compact()

    def _compact(self) -> None:
        filled = np.flatnonzero(self._places.values >= 0)
        self._accumulators.keep(self._places.values.take(filled))
        places = np.full(len(self._places), -1)
        places[filled] = np.arange(len(filled))
        self._size = self._live = len(filled)
        used = self._used_keys(places)
        if 2 * len(used) <= len(self._keys):
            self._keys.compact(used)
            self._rows.replace(self._rows.values.take(used))
            places = places.reshape(-1, self._panes)[used].ravel()
        self._places.replace(places)

    def _used_keys(self, places: Int64s) -> Int64s:
        return np.flatnonzero((places.reshape(-1, self._panes) >= 0).any(axis=1))

    # --- checkpoints

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only its `table` may be used."""
        return frozen(self)

    def table(self, key_names: Sequence[str], max_parallelism: int) -> pa.Table:
        """Return all panes that windows need: key group, keys, rows of the key, number of the pane, accumulators."""
        filled = np.flatnonzero(self._places.values >= 0)

        def some(rows: slice) -> pa.Table:
            places = filled[rows]
            keys = places // self._panes
            counts = self._rows.values.take(keys)
            columns = self._keys.columns(keys, key_names, max_parallelism)
            columns["rows"] = as_arrow(counts)
            columns["pane"] = as_arrow(self._pane_in(places, counts))
            return pa.table(columns | self._accumulators.columns(self._places.values.take(places)))

        return in_pieces(len(filled), some)

    def _pane_in(self, places: Int64s, rows: Int64s) -> Int64s:
        """Return the number of the pane in each place, for keys with these numbers of rows."""
        latest = (rows - 1) // self._pane
        return latest - (latest - places % self._panes) % self._panes

    def load(self, table: pa.Table) -> None:
        """Restore panes that `table` returned. Raises ValueError for panes that no window needs, or that exist
        twice."""
        for batch in table.to_batches():
            if not batch.num_rows:
                continue
            _, *keys, rows, panes = batch.columns[: self._key_columns + 3]
            if rows.null_count or panes.null_count:
                raise ValueError("a pane has no number, or its key has no number of rows")
            counts, numbers = (raw_values(column).view(np.int64) for column in (rows, panes))
            self._check(counts, numbers)
            slots = self._keys.find_or_add(keys, batch.num_rows)
            self._grow(len(self._keys))
            before = self._rows.values.take(slots)
            self._rows.values[slots] = counts
            if ((before != 0) & (before != counts)).any() or (self._rows.values.take(slots) != counts).any():
                raise ValueError("a key has two numbers of rows")
            places, fresh = self._place(slots, numbers), np.arange(self._size, self._size + batch.num_rows)
            if (self._places.values.take(places) >= 0).any():
                raise ValueError("a pane exists twice")
            self._places.values[places] = fresh
            if (self._places.values.take(places) != fresh).any():
                raise ValueError("a pane exists twice")
            self._size = self._live = self._size + batch.num_rows
            self._accumulators.load(self._size, fresh, batch.columns[self._key_columns + 3 :])

    def _check(self, rows: Int64s, panes: Int64s) -> None:
        if rows.min() < 1 or rows.max() > _MOST_ROWS_OF_KEY:
            raise ValueError(f"a key has {rows.min()} rows, and another one {rows.max()}")
        wrong = (panes < 0) | (panes * self._pane >= rows) | (panes <= rows // self._pane - self._panes)
        if (at := np.flatnonzero(wrong)).size:
            raise ValueError(f"no window needs pane {panes[at[0]]} of a key with {rows[at[0]]} rows")
