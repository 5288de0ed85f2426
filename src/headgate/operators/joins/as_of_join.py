"""`AsOfJoin`: the operator that joins each left row with the right stream's latest row at the left row's event time.

Rows of both sides wait until the watermark has passed them: only then are all earlier rows there. The operator then
sorts the rows that have become due by key and time, and each left row takes the right row before it. Of each key, the
operator keeps the latest of these right rows, which is called the key's version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from headgate.compat import concat_batches
from headgate.operators.joins.columns import NO_ROWS, JoinedColumns
from headgate.operators.joins.join_side import JoinSide
from headgate.operators.joins.join_state import keyed_rows, rows_of
from headgate.operators.joins.row_store import RowStore, WaitingRows
from headgate.operators.operator import MIN_TIME, TwoInputOperator
from headgate.records.canonical import Int64s, as_arrow
from headgate.state import shapes
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable, check_key_groups
from headgate.state.snapshot import LazyTables, Snapshot

#: The store drops replaced versions when it has this many more of them than there are keys.
_LEAST_REPLACED = 8192
#: How many versions of a snapshot are taken from the store at once.
_PIECE = 1 << 15


class AsOfJoin(TwoInputOperator):
    """Join each left row with the latest right row of the same key whose time is not after the left row's time.

    The operator emits a left row when the watermark has passed its event time, with nulls if there is no right row. If
    `left.keeps_all` is false, the operator drops left rows without a right row. A null key matches nothing: a left row
    with a null key is emitted or dropped at once.

    A left row whose time is below the watermark is late. The operator drops it. It does not drop late right rows: they
    count for the left rows that it emits later. Of right rows with equal times, the one that came last counts.
    """

    def __init__(self, left: JoinSide, right: JoinSide, *, columns: JoinedColumns) -> None:
        super().__init__()
        self.schema = columns.schema
        self._sides = (left, right)
        self._columns = columns
        self._waiting = (WaitingRows(), WaitingRows())
        self._keys = KeyTable([right.schema.types[key] for key in right.keys])
        self._versions = RowStore(right.schema)
        #: The number of each key's version in the store, and its time.
        self._version = Growable(np.int64, -1)
        self._version_times = Growable(np.int64, MIN_TIME)
        self._watermark = MIN_TIME

    def state_bytes(self) -> int:
        waiting = sum(rows.nbytes for rows in self._waiting)
        return waiting + self._keys.nbytes + self._versions.nbytes + self._version.nbytes + self._version_times.nbytes

    def state_keys(self) -> int:
        """Return the number of rows in the state: the versions, and the rows that wait."""
        return len(self._keys) + sum(map(len, self._waiting))

    def process(self, batch: pa.RecordBatch) -> None:
        batch, times = self._timed(0, batch)
        in_time = times >= self._watermark
        if not in_time.all():
            self.late_rows += len(times) - int(np.count_nonzero(in_time))
            batch, times = batch.filter(as_arrow(in_time)), times[in_time]
        nulls = self._sides[0].has_null_key(batch)
        if nulls is not None:
            self._emit_alone(batch.filter(as_arrow(nulls)))
            batch, times = batch.filter(as_arrow(~nulls)), times[~nulls]
        self._waiting[0].add(batch, times)

    def process_second(self, batch: pa.RecordBatch) -> None:
        batch, times = self._timed(1, batch)
        nulls = self._sides[1].has_null_key(batch)
        if nulls is not None:
            batch, times = batch.filter(as_arrow(~nulls)), times[~nulls]
        self._waiting[1].add(batch, times)

    def _timed(self, side: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        timed, times = self._sides[side].timed(batch)
        self.late_rows += len(batch) - len(timed)
        return timed, times

    def process_watermark(self, time: int) -> None:
        if time > self._watermark:
            self._watermark = time
            self._join_before(time)
        self.output.emit_watermark(time)

    def _join_before(self, time: int) -> None:
        """Join the left rows before `time`, and make the right rows before `time` versions."""
        (lefts, left_times), (rights, right_times) = (waiting.take_before(time) for waiting in self._waiting)
        slots, first = NO_ROWS, len(self._versions)
        if rights:
            rows = concat_batches(rights)
            slots = self._keys.find_or_add([rows.column(key) for key in self._sides[1].keys], len(rows))
            self._version.resize(len(self._keys))
            self._version_times.resize(len(self._keys))
            self._versions.add(rows)
        if lefts:
            rows = concat_batches(lefts)
            known = self._keys.known_slots([rows.column(key) for key in self._sides[0].keys], len(rows))
            self._emit_joined(rows, self._versions_at(known, left_times, slots, right_times, first))
        self._make_versions(slots, right_times, first)

    def _versions_at(self, known: Int64s, times: Int64s, slots: Int64s, right_times: Int64s, first: int) -> Int64s:
        """Return the number of each left row's version in the store, or -1 without a version.

        `known` has the slot of each left row's key, or -1. The new right rows have the slots `slots`, the times
        `right_times`, and the numbers from `first`.
        """
        found = np.where(known >= 0, self._version.values.take(known, mode="clip") if len(self._keys) else -1, -1)
        if not len(slots):
            return found
        newer = np.flatnonzero(right_times >= self._version_times.values.take(slots))
        count = len(newer)
        all_slots = np.concatenate([slots.take(newer), known])
        all_times = np.concatenate([right_times.take(newer), times])
        order = np.lexsort((all_times, all_slots))  # stable: a right row comes before a left row of the same time
        is_right = order < count
        last = np.maximum.accumulate(np.where(is_right, np.arange(len(order)), -1))
        at = np.flatnonzero(~is_right & (last >= 0))
        before, left = order[last[at]], order[at] - count
        same = all_slots[before] == known[left]
        found[left[same]] = first + newer[before[same]]
        return found

    def _make_versions(self, slots: Int64s, times: Int64s, first: int) -> None:
        """Replace the versions of keys by right rows that are not older."""
        if not len(slots):
            return
        newer = np.flatnonzero(times >= self._version_times.values.take(slots))
        order = newer[np.argsort(times.take(newer), kind="stable")]
        self._version.values[slots.take(order)] = first + order  # the last one of each key stays
        self._version_times.values[slots.take(order)] = times.take(order)
        if len(self._versions) > 2 * len(self._keys) + _LEAST_REPLACED:
            self._versions.keep(self._version.values)
            self._version.replace(np.arange(len(self._keys)))

    def _emit_joined(self, rows: pa.RecordBatch, versions: Int64s) -> None:
        has_version = versions >= 0
        at = np.flatnonzero(has_version)
        if len(at):
            found = self._versions.take(versions.take(at))
            self.emit(self._columns.rows(rows, at, found, np.arange(len(at))))
        if len(at) < len(rows):
            self._emit_alone(rows.filter(as_arrow(~has_version)))

    def _emit_alone(self, rows: pa.RecordBatch) -> None:
        if self._sides[0].keeps_all and len(rows):
            self.emit(self._columns.rows(rows, np.arange(len(rows)), None, NO_ROWS))

    # State

    def snapshot(self) -> Snapshot:
        lefts, rights = (waiting.parts for waiting in self._waiting)
        versions, numbers, groups = self._versions.frozen(), self._version.values.copy(), self.context.max_parallelism

        def right_table() -> pa.Table:
            pieces = [versions.take(numbers[begin : begin + _PIECE]) for begin in range(0, len(numbers), _PIECE)]
            return _table(self._sides[1], [*pieces, *rights], groups)

        left_table = partial(_table, self._sides[0], lefts, groups)
        of = {"the operator": "an as-of join", "max_parallelism": groups}
        return Snapshot(
            LazyTables({"left": left_table, "right": right_table}), {"of": of, "watermark": self._watermark}
        )

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        for snapshot in snapshots:
            ours.check_same(snapshot)
            shapes.time(snapshot.values.get("watermark"), "watermark")
            for name, side, waiting in zip(("left", "right"), self._sides, self._waiting, strict=True):
                if (table := snapshot.tables.get(name)) is not None:
                    check_key_groups(table, len(side.keys), self.context.max_parallelism)
                    for batch in table.to_batches():
                        waiting.add(*_restored(side, batch))
        self._watermark = min((snapshot.values["watermark"] for snapshot in snapshots), default=MIN_TIME)


def _table(side: JoinSide, batches: Sequence[pa.RecordBatch], max_parallelism: int) -> pa.Table:
    empty = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in side.schema.types], schema=side.schema)
    return pa.concat_tables([pa.table(keyed_rows(rows, side.keys, max_parallelism)) for rows in (empty, *batches)])


def _restored(side: JoinSide, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
    """Return rows of a snapshot, and their event times. Raises ValueError for rows that no join writes."""
    rows = rows_of(batch, side.schema, side.keys)
    timed, times = side.timed(rows)
    if len(timed) < len(rows) or side.has_null_key(rows) is not None:
        raise ValueError("a row of a join has no key or no event time")
    return rows, times
