"""`PaneState`: overlapping windows made of panes. A row goes into one pane. A window merges its panes when it fires.

With panes, the operator adds a batch once, instead of once for each window of its rows. This is cheaper if windows
overlap many times (Li et al., "No pane, no gain", SIGMOD Record 2005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.operator import MAX_TIME
from headgate.operators.windows.window_state import Fired, WindowState
from headgate.records.canonical import Int64s


class PaneState(WindowState):
    """A window state whose entries are panes.

    Pane n begins where window n begins. Window n consists of `panes` panes, and pane n is the first of them. Window n
    is therefore the last window that contains pane n. Pane n closes when window n closes.
    """

    def __init__(
        self, key_types: Sequence[pa.DataType], accumulators: Callable[[], AccumulatorSet], panes: int
    ) -> None:
        super().__init__(key_types, accumulators)
        self._empty = accumulators
        self._panes = panes

    def fire(self, after: int, last: int, most: int) -> Iterator[Fired]:
        """Yield the results of the windows from `after` + 1 to `last`, in ascending order, at most `most` rows at a
        time."""
        if last <= after or last < self._first_open - self._panes + 1:
            return
        panes, keys = np.unique(self._windows.column()[self._open.values]), self._entries.right()
        for window, inside in self._entries_in(self._windows_of(panes, after, last)):
            yield from self._merge_panes(window, inside, keys.take(inside), most)

    def next_number(self, after: int) -> int | None:
        """Return the number of the first window above `after` that may have an open pane, or None if no pane is
        open."""
        return None if self._first_open == MAX_TIME else max(self._first_open - self._panes + 1, after + 1)

    def changed(self, entries: Int64s, after: int, last: int, most: int) -> Iterator[Fired]:
        """Yield the results that these entries changed, in the windows from `after` + 1 to `last`.

        In each window, these are the results of all keys that have one of the entries in this window.
        """
        panes, keys = self._windows.column().take(self._entries.left().take(entries)), self._entries.right()
        for window, inside in self._entries_in(self._windows_of(np.unique(panes), after, last)):
            changed = np.zeros(len(self._keys), np.bool_)
            changed[keys.take(entries[(panes >= window) & (panes < window + self._panes)])] = True
            inside = inside[changed.take(keys.take(inside))]
            yield from self._merge_panes(window, inside, keys.take(inside), most)

    def _windows_of(self, panes: Int64s, after: int, last: int) -> list[int]:
        """Return the windows from `after` + 1 to `last` that contain one of these panes, in ascending order.

        `panes` are ascending and different. Pane n is in the windows from n - self._panes + 1 to n. If pane m comes
        just before pane n in `panes`, the windows up to m are in the result already. Pane n then adds only the windows
        after m.
        """
        if not len(panes):
            return []
        lowest, highest = int(panes[0]) - self._panes, int(panes[-1])
        after, last = (
            max(after, lowest),
            max(lowest, min(last, highest)),
        )  # make both fit into 64 bits, as panes do
        first = np.maximum(panes - self._panes + 1, after + 1)
        first[1:] = np.maximum(first[1:], panes[:-1] + 1)
        counts = np.maximum(np.minimum(panes, last) - first + 1, 0)
        ends = np.cumsum(counts)
        windows: list[int] = (np.repeat(first - ends + counts, counts) + np.arange(counts.sum())).tolist()
        return windows

    def _entries_in(self, windows: list[int]) -> Iterator[tuple[int, Int64s]]:
        """Yield each of these windows, with the open entries in its panes in ascending order. The windows ascend.

        The entries are sorted by pane once. The entries of a window are then next to each other, so the time does not
        grow with the number of windows times the number of entries.
        """
        if not windows:
            return
        numbers, slots = self._windows.column(), self._entries.left()
        wanted = self._open.values & (numbers >= windows[0]) & (numbers < windows[-1] + self._panes)
        entries = np.flatnonzero(wanted.take(slots))
        if len(windows) == 1:
            yield windows[0], entries
            return
        entries = self._in_order(entries, slots)
        panes = numbers.take(slots.take(entries))
        begins = np.searchsorted(panes, windows).tolist()
        ends = np.searchsorted(panes, [window + self._panes for window in windows]).tolist()
        for window, begin, end in zip(windows, begins, ends, strict=True):
            yield window, np.sort(entries[begin:end])

    def _merge_panes(self, window: int, entries: Int64s, keys: Int64s, most: int) -> Iterator[Fired]:
        """Yield one result for each key of these entries. The entries are in the panes of one window, and `keys` has
        the key of each."""
        if not len(entries):
            return
        keys, slots = np.unique(keys, return_inverse=True)
        whole = self._empty()
        whole.absorb(len(keys), slots, self._accumulators, entries)
        for begin in range(0, len(keys), most):
            some = np.arange(begin, min(begin + most, len(keys)))
            yield self._keys.keys(keys.take(some)), np.full(len(some), window), whole.results(some)
