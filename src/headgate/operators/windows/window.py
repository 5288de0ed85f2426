"""`WindowAggregate`: the operator of `hg.tumble` and `hg.hop`, which has accumulators for each key and window.

A key has a slot (a number) in a table of keys. A window has a slot in a table of windows. A pair of a key and a window
is an entry. The number of the entry is its slot in the accumulators. The tables find all these slots for a whole batch
at once, even if the batch's rows are in many windows.

Windows have numbers: window n begins at n x `every`. The event time of a row therefore determines its windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate
from headgate.operators.event_times import time_range
from headgate.operators.windows.time_shards import TimeShard
from headgate.operators.windows.window_kinds import Windows, window_schema
from headgate.operators.windows.window_operator import MOST_ROWS, WindowOperator
from headgate.operators.windows.window_panes import PaneState
from headgate.operators.windows.window_state import Fired, WindowState
from headgate.records.canonical import Int64s, as_arrow
from headgate.state.snapshot import ChangedWindows, Snapshot

#: The names of a window's size and distance in a snapshot, and the shape of both.
_SIZE, _EVERY = "the windows' size", "every"
_MICROSECONDS = re.compile("([0-9]{1,18}) us")


class WindowAggregate(WindowOperator[WindowState]):
    """The operator of windows whose bounds depend on nothing but the event time of a row. For the other arguments, see
    `WindowOperator`."""

    what = "a windowed aggregation"

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        windows: Windows,
        aggregates: tuple[tuple[str, Aggregate], ...],
        input_schema: pa.Schema,
        time_column: str | None,
        time_offset: int,
        **options: Any,
    ) -> None:
        self._windows = windows
        key_types = [input_schema.field(key).type for key in keys]
        accumulators = partial(AccumulatorSet, aggregates, input_schema)
        empty_state: Any = partial(WindowState, key_types, accumulators)
        if windows.has_panes:
            empty_state = partial(PaneState, key_types, accumulators, windows.per_row)
        super().__init__(
            keys,
            schema=window_schema(keys, time_column, windows, aggregates, input_schema),
            input_schema=input_schema,
            time_column=time_column,
            time_offset=time_offset,
            empty_state=empty_state,
            **options,
        )

    def _add(self, shard: TimeShard[WindowState], batch: pa.RecordBatch, times: Int64s, span: tuple[int, int]) -> None:
        every, state, changed = self._windows.every, shard.state, []
        first, last = span
        keys = state.find_or_add_keys([batch.column(index) for index in self._key_indices], batch.num_rows)
        index = first // every if first // every == last // every else times // every
        if isinstance(state, PaneState):
            entries = state.add(keys, index, batch, times)
            if first // every - self._windows.per_row < shard.fired:
                self._emit_rows(state.changed(np.unique(entries), shard.closed, shard.fired, MOST_ROWS))
            return
        for back in range(self._windows.per_row):
            rows = self._rows_in(shard, times, index, first // every, back)
            if rows is None:
                window = index - back
                entries = state.add(keys, window, batch, times)
            elif len(rows):
                window = (index if isinstance(index, int) else index.take(rows)) - back
                entries = state.add(keys.take(rows), window, batch.take(as_arrow(rows)), times.take(rows))
            else:
                continue
            if first // every - back <= shard.fired:
                changed.append(entries[window <= shard.fired] if isinstance(window, np.ndarray) else entries)
        if changed:
            self._emit_rows(state.rows(np.unique(np.concatenate(changed)), MOST_ROWS))

    def _fire(self, shard: TimeShard[WindowState], after: int) -> None:
        self._emit_rows(shard.state.fire(after, shard.fired, MOST_ROWS))

    def _emit_rows(self, fired: Iterable[Fired]) -> None:
        for keys, index, results in fired:
            start = index * self._windows.every
            self._emit_windows(keys, start, start + self._windows.size, results)

    def _last_ended(self, watermark: int) -> int:
        return (watermark - self._windows.size) // self._windows.every

    def _ends_at(self, number: int) -> int:
        return number * self._windows.every + self._windows.size

    def _first_held(self, closed: int) -> int:
        return (closed + 1) * self._windows.every

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        every = self._windows.every
        return (first // every - self._windows.per_row + 1) * every, last // every * every + self._windows.size

    def _described(self) -> dict[str, str]:
        return {_SIZE: f"{self._windows.size} us", _EVERY: f"{self._windows.every} us"}

    def _check_windows(self, snapshot: Snapshot) -> None:
        """Raise ChangedWindows for other windows. For values that are no windows, `check_same` raises an error
        later."""
        of = snapshot.values.get("of")
        texts = [str(of.get(name)) for name in (_SIZE, _EVERY)] if isinstance(of, dict) else ["", ""]
        found = [_MICROSECONDS.fullmatch(text) for text in texts]
        size, every = (0 if match is None else int(match[1]) for match in found)
        if size >= every > 0 and (were := Windows(size, every, self._windows.by_clock)) != self._windows:
            raise ChangedWindows(
                f"had {were}, and has {self._windows} now: change it back, or start without the checkpoint"
            )

    def _check_entries(self, entries: pa.Table) -> None:
        least, greatest = time_range(self._time_type)
        first, last = pc.min_max(entries.column("window")).as_py().values()
        if first is not None and not least <= first * self._windows.every <= last * self._windows.every <= greatest:
            raise ValueError(f"there are windows from {first} to {last}, which {self._time_type} cannot hold")

    def _rows_in(
        self, shard: TimeShard[WindowState], times: Int64s, index: Int64s | int, first: int, back: int
    ) -> Int64s | None:
        """Return the positions of the rows that must be added to one of their windows, or None for all rows.

        Window number `index` is the last window of a row; `first` is the least of these numbers. The rows are added to
        window `index` - `back`. Rows that are not in this window, and rows for which this window is closed, are not in
        the result.
        """
        every, size = self._windows.every, self._windows.size
        whole = (back + 1) * every <= size
        if whole and first - back > shard.closed:
            return None
        open_still = times >= (shard.closed + 1 + back) * every
        return np.flatnonzero(open_still if whole else open_still & (times - index * every < size - back * every))
