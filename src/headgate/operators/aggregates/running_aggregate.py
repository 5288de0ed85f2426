"""`RunningAggregate`: an operator that computes aggregates over all rows of a key that have arrived so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from headgate.errors import DataError, PlanError
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate, aggregate_fields, key_fields, unique_names
from headgate.operators.event_times import check_time_column, event_times
from headgate.operators.operator import Operator
from headgate.records.canonical import Int64s
from headgate.records.hashing import key_groups, key_hash, subtask_of_key_group
from headgate.state.keys import KeyTable, check_key_groups
from headgate.state.renumber import OneRowPerSlot
from headgate.state.snapshot import LazyTables, Snapshot, in_pieces

_MOST_ROWS = 65_536


def running_schema(
    keys: tuple[str, ...],
    aggregates: tuple[tuple[str, Aggregate], ...],
    input_schema: pa.Schema,
    time_column: str | None = None,
) -> pa.Schema:
    """Return the schema of the results: the key columns, then the aggregates.

    Raises PlanError for an impossible aggregation, such as `first` without event time.
    """
    schema = unique_names([*key_fields(keys, input_schema), *aggregate_fields(aggregates, input_schema)])
    if time_column is not None:
        check_time_column(time_column, input_schema)
    for name, aggregate in aggregates:
        if _by_time(aggregate) and time_column is None:
            raise PlanError(
                f"{name}={aggregate} needs event time, which this stream does not have; "
                "add watermark=hg.Watermark(column) to from_source"
            )
    return schema


def _by_time(aggregate: Aggregate) -> bool:
    return aggregate.kind in ("first", "last")


class RunningAggregate(Operator):
    """The operator of a running aggregation. After each batch it emits one row for each key in the batch.

    With `final`, it emits one row for each key only when the input ends. Without key columns, all rows have one global
    key. If the input ends without any row, the operator still emits a row for the global key, as SQL does.

    The operator adds `time_offset` (microseconds) to the event-time column. Only `first` and `last` use this column.
    With one of them, a null event time raises DataError.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        aggregates: tuple[tuple[str, Aggregate], ...],
        *,
        input_schema: pa.Schema,
        final: bool = False,
        time_column: str | None = None,
        time_offset: int = 0,
    ) -> None:
        super().__init__()
        self.schema = running_schema(keys, aggregates, input_schema, time_column)
        self._final = final
        self._time_column = time_column if any(_by_time(aggregate) for _, aggregate in aggregates) else None
        self._time_offset = time_offset
        self._key_names = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._keys = KeyTable([input_schema.field(key).type for key in keys])
        self._accumulators = AccumulatorSet(aggregates, input_schema)
        self._changed = OneRowPerSlot()
        self._aggregates = aggregates
        self._ended = False
        self._knows_its_past = True

    def state_bytes(self) -> int:
        return self._keys.nbytes + self._accumulators.nbytes + self._changed.nbytes

    def state_keys(self) -> int:
        """Return the number of keys. `state_bytes() / state_keys()` is the size of one key in bytes."""
        return len(self._keys)

    def process(self, batch: pa.RecordBatch) -> None:
        slots = self._keys.find_or_add([batch.column(index) for index in self._key_indices], batch.num_rows)
        self._accumulators.update(len(self._keys), slots, batch, self._times(batch))
        if not self._final:
            self._emit(self._changed_slots(slots))

    def _changed_slots(self, slots: Int64s) -> Int64s:
        """Return the slots whose results may have changed, each once. `slots` has the slot of each row of a batch."""
        return slots.take(self._changed.pick(slots, len(self._keys)))

    def end_input(self) -> None:
        if self._is_empty():
            self.emit(self._of_no_rows())
        self._ended = True
        if self._final:
            for begin in range(0, len(self._keys), _MOST_ROWS):
                self._emit(np.arange(begin, min(begin + _MOST_ROWS, len(self._keys))))

    def _is_empty(self) -> bool:
        """Return whether this subtask owns the global key, has received no row, and has not yet emitted the result of
        no rows."""
        if self._key_names or len(self._keys) or self._ended or not self._knows_its_past:
            return False
        groups = self.context.max_parallelism
        owner = subtask_of_key_group(self._global_group(), self.context.parallelism, groups)
        return bool((owner == self.context.subtask).all())

    def _global_group(self) -> Int64s:
        """Return the key group of the global key."""
        return key_groups(key_hash([]), self.context.max_parallelism)

    def _of_no_rows(self) -> pa.RecordBatch:
        """Return the result of no rows, as in SQL: counts are 0, lists are empty, and most other columns are null."""
        row = [aggregate.of_no_rows for _, aggregate in self._aggregates]
        return pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip(row, self.schema, strict=True)], schema=self.schema
        )

    def snapshot(self) -> Snapshot:
        """Return the state. With `final`, the state has no keys after the input's end: a restart must not emit their
        rows again."""
        rows = 0 if self._final and self._ended else len(self._keys)
        keys, accumulators = self._keys.frozen(), self._accumulators.frozen()

        def some(part: slice) -> pa.Table:
            slots = np.arange(part.start, part.stop)
            columns = keys.columns(slots, self._key_names, self.context.max_parallelism)
            return pa.table(columns | accumulators.columns(slots))

        of = {"the operator": "a running aggregation", "max_parallelism": self.context.max_parallelism}
        if self._time_column is not None:
            of["event time"] = f"{self._time_column} + {self._time_offset} us"
        return Snapshot(LazyTables({"keys": partial(in_pieces, rows, some)}), {"of": of, "ended": self._ended})

    def restore_ended(self, groups: Sequence[range]) -> None:
        """Record that the subtasks with these key groups had ended.

        If one of them owned the global key, it has already emitted the result of this key.
        """
        if any(int(group) in ended for group in self._global_group() for ended in groups):
            self._knows_its_past = False

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        # Snapshots of earlier versions do not record whether the input had ended. An ended final aggregate has no keys
        # that would show it.
        if any(snapshot.values.get("ended") is not False for snapshot in snapshots):
            self._knows_its_past = False
        for snapshot in (snapshot.with_tables(self._accumulators.with_exact_sums) for snapshot in snapshots):
            ours.check_same(snapshot)
            for table in snapshot.tables.values():
                check_key_groups(table, len(self._key_names), self.context.max_parallelism)
                self._load(table)

    def _load(self, table: pa.Table) -> None:
        begin = 1 + len(self._key_names)
        for batch in table.to_batches():
            if batch.num_rows:
                slots = self._keys.find_or_add(batch.columns[1:begin], batch.num_rows)
                self._accumulators.load(len(self._keys), slots, batch.columns[begin:])

    def _emit(self, slots: Int64s) -> None:
        columns = [*self._keys.keys(slots), *self._accumulators.results(slots)]
        self.emit(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _times(self, batch: pa.RecordBatch) -> Int64s | None:
        if self._time_column is None:
            return None
        column = batch.column(self._time_column)
        if column.null_count:
            raise DataError(
                f"event-time column {self._time_column!r} is null in {column.null_count} of {len(column)} rows, and "
                "first and last need event times; filter these rows out"
            )
        return event_times(column, self._time_column, self._time_offset)
