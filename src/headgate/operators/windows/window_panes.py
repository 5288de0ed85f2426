"""Overlapping windows in panes: rows go into one pane each, and a window is put together from its panes when it fires.

Where windows overlap many times, that is one pass over a batch instead of one for each window that its rows are in
(Li et al., "No pane, no gain", SIGMOD Record 2005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.windows.window_state import Fired, WindowState
from headgate.records.canonical import Int64s


class PaneState(WindowState):
    """Its windows are the panes: pane n begins where window n does, and window n is `panes` of them, from n on. So the
    last window that pane n is in is window n, and the pane is closed with it."""

    def __init__(
        self, key_types: Sequence[pa.DataType], accumulators: Callable[[], AccumulatorSet], panes: int
    ) -> None:
        super().__init__(key_types, accumulators)
        self._empty = accumulators
        self._panes = panes

    def fire(self, after: int, last: int, most: int) -> Iterator[Fired]:
        """What the windows after `after` and up to `last` hold, ascending, at most `most` rows at a time."""
        if last <= after or last < self._first_open - self._panes + 1:
            return
        panes = np.unique(self._windows.column()[self._open.values])
        for window in self._windows_of(panes, after, last):
            yield from self._merge_panes(window, self._entries_of(window), most)

    def changed(self, entries: Int64s, after: int, last: int, most: int) -> Iterator[Fired]:
        """What the windows after `after` and up to `last` hold for the keys of these entries, where one is in it."""
        panes = self._windows.column().take(self._entries.left().take(entries))
        keys = self._entries.right().take(entries)
        for window in self._windows_of(np.unique(panes), after, last):
            touched = np.zeros(len(self._keys), np.bool_)
            touched[keys[(panes >= window) & (panes < window + self._panes)]] = True
            mine = self._entries_of(window)
            yield from self._merge_panes(window, mine[touched.take(self._entries.right().take(mine))], most)

    def _windows_of(self, panes: Int64s, after: int, last: int) -> list[int]:
        """The windows after `after` and up to `last` that one of the panes (ascending, each once) is in, ascending.

        Pane n is in the windows from n - panes + 1 on; those up to the pane before it are that one's already.
        """
        if not len(panes):
            return []
        lowest, highest = int(panes[0]) - self._panes, int(panes[-1])
        after, last = max(after, lowest), max(lowest, min(last, highest))  # in the range of 64 bits, as panes are
        first = np.maximum(panes - self._panes + 1, after + 1)
        first[1:] = np.maximum(first[1:], panes[:-1] + 1)
        counts = np.maximum(np.minimum(panes, last) - first + 1, 0)
        ends = np.cumsum(counts)
        windows: list[int] = (np.repeat(first - ends + counts, counts) + np.arange(counts.sum())).tolist()
        return windows

    def _entries_of(self, window: int) -> Int64s:
        numbers = self._windows.column()
        inside = self._open.values & (numbers >= window) & (numbers < window + self._panes)
        entries: Int64s = np.flatnonzero(inside.take(self._entries.left()))
        return entries

    def _merge_panes(self, window: int, entries: Int64s, most: int) -> Iterator[Fired]:
        """A row for each key of these entries, which are of one window's panes."""
        if not len(entries):
            return
        keys, slots = np.unique(self._entries.right().take(entries), return_inverse=True)
        whole = self._empty()
        whole.absorb(len(keys), slots, self._accumulators, entries)
        for begin in range(0, len(keys), most):
            some = np.arange(begin, min(begin + most, len(keys)))
            yield self._keys.keys(keys.take(some)), np.full(len(some), window), whole.results(some)
