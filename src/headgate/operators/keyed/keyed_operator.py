"""`KeyedOperator`: the base class of operators that run a user's function with state for each key.

It maps keys to slots, and writes and restores checkpoints.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import time as wall_clock
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headgate.errors import CheckpointError, DataError
from headgate.operators.event_times import event_times
from headgate.operators.keyed.process_function import KeyedFunction
from headgate.operators.keyed.state_base import Current, KeyedState, declared_states
from headgate.operators.operator import MIN_TIME, Operator, UserCode
from headgate.records.canonical import Int64s
from headgate.records.hashing import key_group_range
from headgate.state import shapes
from headgate.state.keys import KeyTable, check_key_groups
from headgate.state.snapshot import LazyTables, Snapshot, in_pieces

#: The operator removes unused keys only if it has at least this many keys.
_LEAST_KEYS = 8192
#: The shape of the progress in a snapshot: the first key group, the key group after the last one, and the watermark.
_PROGRESS = shapes.row(shapes.count, shapes.count, shapes.time)
#: About the end of the year 9999, in microseconds of processing time. A later time in a checkpoint is an error.
_LATEST = 253_000_000_000_000_000

Function = TypeVar("Function", bound=KeyedFunction)
States = TypeVar("States", bound=KeyedState)


class Holder(Protocol):
    """A part of an operator that holds content for each key, by slot."""

    @property
    def slots(self) -> Int64s: ...

    def renumber(self, numbers: Mapping[int, int]) -> None: ...


class KeyedOperator(Operator, Generic[Function, States]):
    """The base class of operators that run a user's function with state for each key.

    The operator adds `time_offset` (microseconds) to the event-time column. `clock` returns the processing time in
    seconds.
    """

    #: What the operator is, as its snapshots say.
    _of: str
    #: The class of the states that the function may declare.
    _kind: type

    def __init__(
        self,
        function: Function,
        keys: tuple[str, ...],
        *,
        input_schema: pa.Schema,
        time_column: str | None = None,
        time_offset: int = 0,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self._function = copy.copy(function)
        self._clock = clock
        self._key_names = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._keys = KeyTable([input_schema.field(key).type for key in keys])
        self._look_again_at = _LEAST_KEYS
        self._time_column = time_column
        self._time_offset = time_offset
        self._watermark = MIN_TIME
        self._at = Current()
        self._states: list[States] = []
        for name, declared in declared_states(function, self._kind).items():
            state = declared.bound(name, self._at)
            object.__setattr__(self._function, name, state)  # the function may be a frozen dataclass
            self._states.append(state)
        self._is_open = False

    def _open_function(self, context: object) -> None:
        self._is_open = True
        with UserCode(self._function.open):
            self._function.open(context)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with UserCode(self._function.close):
                self._function.close()

    def state_bytes(self) -> int:
        return self._keys.nbytes + sum(state.nbytes for state in self._states)

    def state_keys(self) -> int:
        """Return the number of keys. Some of these keys may no longer have state or a timer."""
        return len(self._keys)

    def _look_at_clock(self) -> None:
        """Set the processing time from the clock. The processing time never goes back, even if the clock does."""
        self._at.now = max(self._at.now, int(self._clock() * 1e6))

    def _emit(self, tag: str | None, batch: pa.RecordBatch) -> None:
        if tag is None:
            self.emit(batch)
        else:
            self.emit_side(tag, batch)

    # --- keys

    def _slots(self, batch: pa.RecordBatch) -> Int64s:
        """Return the slot of each row's key."""
        return self._keys.find_or_add([batch.column(index) for index in self._key_indices], batch.num_rows)

    def _times(self, batch: pa.RecordBatch) -> Int64s:
        """Return the event time of each row, or an empty array in a stream without event time."""
        if self._time_column is None:
            return np.zeros(0, np.int64)
        column = batch.column(self._time_column)
        if column.null_count:
            raise DataError(
                f"event-time column {self._time_column!r} is null in {column.null_count} of {len(column)} rows, and "
                "the function asks for timestamps; filter these rows out before"
            )
        return event_times(column, self._time_column, self._time_offset)

    @property
    def _holders(self) -> Sequence[Holder]:
        """Return everything that holds content by the slot of a key."""
        return self._states

    def _forget_unused_keys(self) -> None:
        """If there are many keys, and at least half of them are without state and timers, remove these keys."""
        if len(self._keys) < self._look_again_at:
            return
        used = np.zeros(len(self._keys), np.bool_)
        for holder in self._holders:
            used[holder.slots] = True
        live = np.flatnonzero(used)
        if 2 * len(live) <= len(used):
            self._keys.compact(live)
            numbers = dict(zip(live.tolist(), range(len(live)), strict=True))
            for holder in self._holders:
                holder.renumber(numbers)
        self._look_again_at = max(_LEAST_KEYS, 2 * len(self._keys))

    # --- checkpoints

    def snapshot(self) -> Snapshot:
        context, keys = self.context, self._keys.frozen()
        tables: dict[str, Callable[[], pa.Table]] = {
            state.table: partial(self._state_table, keys, state.frozen()) for state in self._states
        }
        groups = key_group_range(context.subtask, context.parallelism, context.max_parallelism)
        of = {"the operator": self._of, "max_parallelism": context.max_parallelism}
        values = {"of": of, "progress": [groups.start, groups.stop, self._watermark]}
        return Snapshot(LazyTables(tables | self._other_tables(keys)), values)

    def _other_tables(self, keys: KeyTable) -> dict[str, Callable[[], pa.Table]]:
        """Return the functions that compute the tables of a subclass, by name."""
        return {}

    def _state_table(self, keys: KeyTable, state: States) -> pa.Table:
        slots = state.slots.tolist()
        return in_pieces(len(slots), lambda part: self._table(keys, *state.columns(slots[part])))

    def _table(self, keys: KeyTable, slots: Int64s, columns: Mapping[str, pa.Array]) -> pa.Table:
        return pa.table({**keys.columns(slots, self._key_names, self.context.max_parallelism), **columns})

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        mine = key_group_range(self.context.subtask, self.context.parallelism, self.context.max_parallelism)
        watermarks = []
        self._look_at_clock()
        for snapshot in snapshots:
            ours.check_same(snapshot)
            _PROGRESS(snapshot.values.get("progress"), "progress")
            first, end, watermark = snapshot.values["progress"]
            if first < mine.stop and mine.start < end:
                watermarks.append(watermark)
            for name, table in snapshot.tables.items():
                if name not in ours.tables:
                    raise CheckpointError(
                        f"the checkpoint has a {name}, which this function does not declare: give a renamed state its "
                        "old name with name=, declare a state that is no longer used, or start without the checkpoint"
                    )
                check_key_groups(table, len(self._key_names), self.context.max_parallelism)
                self._load_table(name, table)
        self._watermark = min(watermarks, default=MIN_TIME)

    def _load_table(self, name: str, table: pa.Table) -> None:
        begin = 1 + len(self._key_names)
        for batch in table.to_batches():
            if batch.num_rows:
                slots = self._keys.find_or_add(batch.columns[1:begin], batch.num_rows)
                columns = dict(zip(batch.schema.names[begin:], batch.columns[begin:], strict=True))
                self._load(name, slots, columns)

    def _load(self, name: str, slots: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Load rows of the table `name`."""
        state = next(state for state in self._states if state.table == name)
        if (written := state.last_written(columns)) > _LATEST:
            raise ValueError(f"{name}: a value was written {written} us after 1970")
        self._at.now = max(self._at.now, written)
        state.load(slots, columns, self._at.now)
