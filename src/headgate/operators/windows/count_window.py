"""`CountWindowAggregate`: the operator of `hg.count_window`, which aggregates each `size` rows of a key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import time as wall_clock
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate, aggregate_fields, key_fields, unique_names
from headgate.operators.emission_log import EmissionLog
from headgate.operators.operator import Operator
from headgate.operators.windows.count_state import CountedRows, CountState
from headgate.operators.windows.window_kinds import CountWindows
from headgate.state import shapes
from headgate.state.keys import check_key_groups
from headgate.state.snapshot import ChangedWindows, LazyTables, Snapshot

#: The names of a window's size and distance in a snapshot, and the shape of both.
_SIZE, _EVERY = "the windows' size", "every"
_ROWS = re.compile("([0-9]{1,18}) rows")


def count_window_schema(
    keys: tuple[str, ...], aggregates: tuple[tuple[str, Aggregate], ...], input_schema: pa.Schema
) -> pa.Schema:
    """Return the schema of the results: the key columns, then the aggregates. Raises PlanError for an impossible
    aggregation."""
    return unique_names([*key_fields(keys, input_schema), *aggregate_fields(aggregates, input_schema)])


class CountWindowAggregate(Operator):
    """The operator that emits one row for each window of a key, when the window's last row arrives.

    The operator ignores event time: rows count in the order in which they arrive, and `first` and `last` go by this
    order. At the end of the input it drops incomplete windows, or with `windows.partial` it emits them.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        windows: CountWindows,
        aggregates: tuple[tuple[str, Aggregate], ...],
        input_schema: pa.Schema,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self.schema = count_window_schema(keys, aggregates, input_schema)
        self.emissions = self._log = EmissionLog()
        self._clock = clock
        self._windows = windows
        self._keys = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        key_types = [input_schema.field(key).type for key in keys]
        self._empty_state = partial(CountState, key_types, partial(AccumulatorSet, aggregates, input_schema), windows)
        self._state = self._empty_state()
        #: How many rows have arrived. After a restore, it is at least the number of each former subtask.
        self._arrived = 0

    def state_bytes(self) -> int:
        return self._state.nbytes

    def state_keys(self) -> int:
        """Return the number of keys. `state_bytes() / state_keys()` is the size of one key in bytes."""
        return self._state.keys

    def process(self, batch: pa.RecordBatch) -> None:
        arrivals = np.arange(self._arrived, self._arrived + batch.num_rows)
        self._arrived += batch.num_rows
        self._emit_windows(self._state.add([batch.column(index) for index in self._key_indices], batch, arrivals))

    def end_input(self) -> None:
        if self._windows.partial:
            incomplete, self._state = (
                self._state.incomplete(),
                self._empty_state(),
            )  # a restart must not emit them again
            self._emit_windows(incomplete)

    def _emit_windows(self, found: Iterable[CountedRows]) -> None:
        for keys, results in found:
            self.emit(pa.RecordBatch.from_arrays([*keys, *results], schema=self.schema))
            self._log.record(self._clock(), self.rows_out)

    # --- checkpoints

    def snapshot(self) -> Snapshot:
        state = self._state.frozen()
        of = {
            "the operator": "an aggregation of windows by count",
            _SIZE: f"{self._windows.size} rows",
            _EVERY: f"{self._windows.every} rows",
            "max_parallelism": self.context.max_parallelism,
        }
        tables = LazyTables({"panes": partial(state.table, self._keys, self.context.max_parallelism)})
        return Snapshot(tables, {"of": of, "arrived": self._arrived})

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        for snapshot in snapshots:
            self._check_windows(snapshot)
            ours.check_same(snapshot)
            arrived: Any = snapshot.values.get("arrived")
            shapes.count(arrived, "arrived")
            self._arrived = max(self._arrived, arrived)
            for table in snapshot.tables.values():
                check_key_groups(table, len(self._keys), self.context.max_parallelism)
                self._state.load(table)

    def _check_windows(self, snapshot: Snapshot) -> None:
        """Raise ChangedWindows for other windows. For values that are no windows, `check_same` raises an error
        later."""
        of = snapshot.values.get("of")
        texts = [str(of.get(name)) for name in (_SIZE, _EVERY)] if isinstance(of, dict) else ["", ""]
        found = [_ROWS.fullmatch(text) for text in texts]
        size, every = (0 if match is None else int(match[1]) for match in found)
        mine = self._windows
        if size >= every > 0 and (size, every) != (mine.size, mine.every):
            raise ChangedWindows(
                f"had {CountWindows(size, every)}, and has {CountWindows(mine.size, mine.every)} now: change it back, "
                "or start without the checkpoint"
            )
