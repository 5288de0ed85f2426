"""`WindowState`: the state of a windowed aggregation. It holds keys, windows, and accumulators for each pair of
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.operator import MAX_TIME
from headgate.records.canonical import Int64s, as_arrow, raw_values
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable
from headgate.state.pairs import PairTable
from headgate.state.renumber import renumbering
from headgate.state.snapshot import in_pieces
from headgate.state.words import WordTable

#: The results of some entries: the key columns, the window numbers, and the aggregates' columns.
Fired: TypeAlias = tuple[list[pa.Array], Int64s, list[pa.Array]]

#: A compaction happens only if at least this many entries are dead.
_LEAST_DEAD = 8192


class WindowState:
    """The keys, windows and entries of a windowed aggregation. The caller gives windows numbers, which ascend with
    time.

    An entry is a pair of a window and a key, with its accumulators. Entries of closed windows are dead. When more than
    half of the entries are dead, a compaction removes the dead entries. A key stays for one more compaction after its
    last entry was removed. Otherwise a key that occurs in every window would be removed and added again each time.
    """

    def __init__(self, key_types: Sequence[pa.DataType], accumulators: Callable[[], AccumulatorSet]) -> None:
        self._key_columns = len(key_types)
        self._keys = KeyTable(key_types)
        self._windows = WordTable()
        self._open = Growable(np.bool_, True)
        self._entries = PairTable()
        self._accumulators = accumulators()
        self._dead = 0
        self._first_open = MAX_TIME
        self._latest: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        tables = self._keys.nbytes + self._windows.nbytes + self._entries.nbytes
        return tables + self._open.nbytes + self._accumulators.nbytes

    @property
    def keys(self) -> int:
        """The number of keys."""
        return len(self._keys)

    def find_or_add_keys(self, columns: Sequence[pa.Array], rows: int) -> Int64s:
        """Return the slot of each row's key, as `add` needs it. The slots are valid until the next `close`."""
        return self._keys.find_or_add(columns, rows)

    def add(self, keys: Int64s, window: Int64s | int, batch: pa.RecordBatch, times: Int64s) -> Int64s:
        """Add rows to their windows. `window` is one number for all rows, or an array with a number for each row.

        Returns the entry of each row. The entries are valid until the next `close`.
        """
        slot = self._find_or_add_window(window) if isinstance(window, int) else self._find_or_add_windows(window)
        entries = self._entries.find_or_add(slot, keys, most=len(self._keys) - 1)
        self._accumulators.update(len(self._entries), entries, batch, times)
        return entries

    def fire(self, after: int, last: int, most: int) -> Iterator[Fired]:
        """Yield the results of the windows from `after` + 1 to `last`, in ascending order, at most `most` rows at a
        time."""
        if last < self._first_open:
            return
        numbers = self._windows.column()
        fired = self._open.values & (numbers <= last) & (numbers > after)
        yield from self.rows(np.flatnonzero(fired.take(self._entries.left())), most)

    def rows(self, entries: Int64s, most: int) -> Iterator[Fired]:
        """Yield the results of these entries, in ascending order of windows, at most `most` rows at a time."""
        if not len(entries):
            return
        keys, windows = self._entries.right(), self._entries.left()
        entries = self._in_order(entries, windows)
        for begin in range(0, len(entries), most):
            some = entries[begin : begin + most]
            index = self._windows.column().take(windows.take(some))
            yield self._keys.keys(keys.take(some)), index, self._accumulators.results(some)

    def next_number(self, after: int) -> int | None:
        """Return a number above `after`; no open window lies between the two. Return None if no window is open."""
        return None if self._first_open == MAX_TIME else max(self._first_open, after + 1)

    def close(self, last: int) -> None:
        """Close all windows up to and including `last`. Their entries become dead."""
        if last < self._first_open:
            return
        closed = self._open.values & (self._windows.column() <= last)
        self._open.values[closed] = False
        still_open = self._windows.column()[self._open.values]
        self._first_open = int(still_open.min()) if len(still_open) else MAX_TIME
        self._dead += int(np.count_nonzero(closed.take(self._entries.left())))
        if self._dead > max(len(self._entries) - self._dead, _LEAST_DEAD):
            self._compact()

    def frozen(self) -> WindowState:
        """Return a copy for a snapshot. Only its `table` may be used."""
        reader = WindowState((), self._accumulators.frozen)
        reader._key_columns, reader._keys = self._key_columns, self._keys.frozen()
        reader._windows, reader._open = self._windows.frozen(), self._open.frozen()
        reader._entries = self._entries.frozen()
        return reader

    def table(self, key_names: Sequence[str], max_parallelism: int) -> pa.Table:
        """Return the entries of all open windows for a snapshot: key group, keys, window number, accumulators."""
        live = np.flatnonzero(self._open.values.take(self._entries.left()))
        keys, windows = self._entries.right().take(live), self._entries.left().take(live)

        def some(rows: slice) -> pa.Table:
            columns = self._keys.columns(keys[rows], key_names, max_parallelism)
            columns["window"] = as_arrow(self._windows.column().take(windows[rows]))
            return pa.table(columns | self._accumulators.columns(live[rows]))

        return in_pieces(len(live), some)

    def with_exact_sums(self, table: pa.Table) -> pa.Table:
        """Return the table of a snapshot with sums of decimals in the current format.

        `AccumulatorSet.with_exact_sums` describes the format.
        """
        return self._accumulators.with_exact_sums(table)

    def load(self, table: pa.Table) -> None:
        """Restore entries that `table` returned. Raises ValueError for an entry without a window."""
        for batch in table.to_batches():
            if batch.num_rows:
                _, *keys, windows = batch.columns[: self._key_columns + 2]
                if windows.null_count:
                    raise ValueError("an entry has no window")
                slots = self.find_or_add_keys(keys, batch.num_rows)
                entries = self._entries.find_or_add(
                    self._find_or_add_windows(raw_values(windows).view(np.int64)), slots
                )
                self._accumulators.load(len(self._entries), entries, batch.columns[self._key_columns + 2 :])

    def _find_or_add_window(self, window: int) -> int:
        if self._latest is None or self._latest[0] != window:
            self._latest = (window, int(self._find_or_add_windows(np.array([window]))[0]))
        return self._latest[1]

    def _find_or_add_windows(self, windows: Int64s) -> Int64s:
        slots = self._windows.find_or_add(windows)
        if len(self._windows) > len(self._open):
            self._open.resize(len(self._windows))
            self._first_open = min(self._first_open, int(windows.min()))
        return slots

    def _in_order(self, entries: Int64s, windows: Int64s) -> Int64s:
        """Return the entries sorted by window. `windows` has the window slot of every entry in the table."""
        order = np.argsort(self._windows.column())
        rank = np.empty(
            len(order), np.uint16 if len(order) <= 1 << 16 else np.int64
        )  # NumPy sorts 16-bit numbers by radix, which is faster
        rank[order] = np.arange(len(order))
        return entries.take(np.argsort(rank.take(windows.take(entries)), kind="stable"))

    def _compact(self) -> None:
        windows, keys = self._entries.left(), self._renumber_keys(self._entries.right())
        live = np.flatnonzero(self._open.values.take(windows))
        still_open = np.flatnonzero(self._open.values)
        windows = renumbering(still_open, len(self._windows)).take(windows.take(live))
        self._windows.replace([self._windows.column().take(still_open)])
        self._open.replace(np.ones(len(still_open), np.bool_))
        self._entries.replace(windows, keys.take(live))
        self._accumulators.keep(live)
        self._dead, self._latest = 0, None

    def _renumber_keys(self, keys: Int64s) -> Int64s:
        """Remove the keys that have no entry, if at least half of all keys have none. Returns the new key slots of the
        entries."""
        used = np.zeros(len(self._keys), np.bool_)
        used[keys] = True
        mentioned = np.flatnonzero(used)
        if 2 * len(mentioned) > len(used):
            return keys
        self._keys.compact(mentioned)
        return renumbering(mentioned, len(used)).take(keys)
