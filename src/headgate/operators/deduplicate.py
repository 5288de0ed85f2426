"""The operators of `deduplicate`: they pass on one row of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import time as wall_clock

import numpy as np
import pyarrow as pa

from headgate.errors import DataError
from headgate.operators.event_times import event_times
from headgate.operators.operator import MAX_TIME, MIN_TIME, Operator
from headgate.records.canonical import Int64s, as_arrow, raw_values
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable, check_key_groups
from headgate.state.renumber import OneRowPerSlot
from headgate.state.snapshot import LazyTables, Snapshot, in_pieces

#: The operator removes keys whose time to live is over only if it has at least this many keys.
_LEAST_KEYS = 8192


class Deduplicate(Operator):
    """The base class of `KeepFirst` and `KeepLast`. A key has a time: that of the row that was passed on for it.

    The time is the event time, with `time_offset` (microseconds) added. Without a `time_column` it is the processing
    time. A key is forgotten `ttl` microseconds after its time; a `ttl` of None means never. Rows pass unchanged.
    """

    #: What the operator is, for the error when a checkpoint has the state of another operator.
    what: str

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        input_schema: pa.Schema,
        ttl: int | None = None,
        time_column: str | None = None,
        time_offset: int = 0,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self._key_names = keys
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._keys = KeyTable([input_schema.field(key).type for key in keys])
        self._times = Growable(np.int64, MIN_TIME)
        self._ttl = ttl
        self._time_column = time_column
        self._time_offset = time_offset
        self._clock = clock
        self._picker = OneRowPerSlot()
        self._watermark = MIN_TIME
        self._forget_at = _LEAST_KEYS

    def state_bytes(self) -> int:
        return self._keys.nbytes + self._times.nbytes + self._picker.nbytes

    def state_keys(self) -> int:
        """Return the number of keys. `state_bytes() / state_keys()` is the size of one key in bytes."""
        return len(self._keys)

    def process(self, batch: pa.RecordBatch) -> None:
        times = self._times_of(batch)
        known = len(self._keys)
        slots = self._keys.find_or_add([batch.column(index) for index in self._key_indices], batch.num_rows)
        self._times.resize(len(self._keys))
        self._pass_on(batch, slots, self._chosen(slots, times, known))
        if self._ttl is not None and len(self._keys) >= self._forget_at:
            self._forget(self._now() if self._time_column is None else self._watermark)

    def _chosen(self, slots: Int64s, times: Int64s, known: int) -> Int64s:
        """Return the rows to pass on, each once. Slots from `known` on are those of new keys."""
        raise NotImplementedError

    def _pass_on(self, batch: pa.RecordBatch, slots: Int64s, rows: Int64s) -> None:
        """Emit the chosen rows, in the order of the batch. `slots` has the slot of each row of the batch."""
        self.emit(batch.take(as_arrow(np.sort(rows))) if len(rows) < batch.num_rows else batch)

    def _first_of_each(self, slots: Int64s) -> Int64s:
        """Return the first row of each different slot."""
        return len(slots) - 1 - self._picker.pick(slots[::-1], len(self._keys))

    def process_watermark(self, time: int) -> None:
        self._watermark = max(self._watermark, time)
        self.output.emit_watermark(time)

    def _now(self) -> int:
        return int(self._clock() * 1e6)

    def _times_of(self, batch: pa.RecordBatch) -> Int64s:
        if self._time_column is None:
            return np.full(batch.num_rows, self._now())
        column = batch.column(self._time_column)
        if column.null_count:
            raise DataError(
                f"event-time column {self._time_column!r} is null in {column.null_count} of {len(column)} rows, and "
                "deduplicate needs event times here; filter these rows out"
            )
        return event_times(column, self._time_column, self._time_offset)

    def _forget(self, now: int) -> None:
        """Forget the keys whose time to live is over, if these are at least half of all keys."""
        assert self._ttl is not None
        live = np.flatnonzero(self._times.values > max(now - self._ttl, MIN_TIME))
        if 2 * len(live) <= len(self._keys):
            self._keys.compact(live)
            self._times.replace(self._times.values.take(live))
        self._forget_at = max(_LEAST_KEYS, 2 * len(self._keys))

    def snapshot(self) -> Snapshot:
        keys, times, rows, more = self._keys.frozen(), self._times.frozen(), self._kept(), self._frozen_columns()

        def some(part: slice) -> pa.Table:
            columns = keys.columns(np.arange(part.start, part.stop), self._key_names, self.context.max_parallelism)
            return pa.table(columns | {"time": as_arrow(times.values[part])} | more(part))

        kind = "processing time" if self._time_column is None else f"{self._time_column} + {self._time_offset} us"
        of = {"the operator": self.what, "time": kind, "max_parallelism": self.context.max_parallelism}
        return Snapshot(LazyTables({"keys": partial(in_pieces, rows, some)}), {"of": of})

    def _kept(self) -> int:
        """Return how many keys, counted from slot 0, a snapshot has."""
        return len(self._keys)

    def _frozen_columns(self) -> Callable[[slice], dict[str, pa.Array]]:
        """Return a function that makes additional columns of a snapshot for a slice of the slots, from a copy of the
        state."""
        return lambda part: {}

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        for snapshot in snapshots:
            ours.check_same(snapshot)
            for table in snapshot.tables.values():
                check_key_groups(table, len(self._key_names), self.context.max_parallelism)
                for batch in table.to_batches():
                    self._load(batch)

    def _load(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            if batch.column("time").null_count:
                raise ValueError("a key has no time")
            end = 1 + len(self._key_names)
            slots = self._keys.find_or_add(batch.columns[1:end], batch.num_rows)
            self._times.resize(len(self._keys))
            self._times.values[slots] = raw_values(batch.column("time"))
            self._load_columns(slots, batch.columns[end + 1 :])

    def _load_columns(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        """Restore the columns of `_frozen_columns` for these slots."""


class KeepFirst(Deduplicate):
    """The operator that passes on the first row of each key. With a `ttl` it passes on another row of a key when the
    time to live of the last row that it passed on is over.

    A row is a duplicate if its time is before that of the row that was passed on, or less than `ttl` after it.
    """

    what = "deduplication that keeps first rows"

    def _chosen(self, slots: Int64s, times: Int64s, known: int) -> Int64s:
        if self._ttl is None:
            fresh = np.flatnonzero(slots >= known)
            chosen = fresh.take(self._first_of_each(slots.take(fresh)))
            self._times.values[slots.take(chosen)] = times.take(chosen)  # for a job that resumes with a ttl
            return chosen
        held = self._times.values.take(slots)
        rows = np.flatnonzero((slots >= known) | (np.maximum(times, MIN_TIME + self._ttl) - self._ttl >= held))
        if self._time_column is None:  # all rows have one time
            chosen = rows.take(self._first_of_each(slots.take(rows)))
        else:
            chosen = rows.take(apart_by(slots.take(rows), times.take(rows), self._ttl))
        np.maximum.at(self._times.values, slots.take(chosen), times.take(chosen))
        return chosen

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        super().restore(snapshots)
        if self._time_column is None:
            times = self._times.values
            times[times == 0] = self._now()  # earlier versions kept no times without a ttl


class KeepLast(Deduplicate):
    """The operator that passes on the row of each key with the greatest time so far. Of rows with equal times, it
    passes on the last one."""

    what = "deduplication that keeps last rows"

    def _chosen(self, slots: Int64s, times: Int64s, known: int) -> Int64s:
        rows = np.flatnonzero(times >= self._times.values.take(slots))
        slots, times = slots.take(rows), times.take(rows)
        np.maximum.at(self._times.values, slots, times)
        latest = np.flatnonzero(times == self._times.values.take(slots))
        return rows.take(latest.take(self._picker.pick(slots.take(latest), len(self._keys))))


class KeepLastToCome(Operator):
    """The operator that passes on the last row of each key in each batch. It needs no state, because each row replaces
    all earlier rows of its key."""

    def __init__(self, keys: tuple[str, ...], *, input_schema: pa.Schema) -> None:
        super().__init__()
        self._key_indices = [input_schema.get_field_index(key) for key in keys]
        self._key_types = [input_schema.field(key).type for key in keys]

    def process(self, batch: pa.RecordBatch) -> None:
        keys = KeyTable(self._key_types)
        slots = keys.find_or_add([batch.column(index) for index in self._key_indices], batch.num_rows)
        self.emit(batch.take(as_arrow(OneRowPerSlot().pick(slots, len(keys)))))


def apart_by(slots: Int64s, times: Int64s, ttl: int) -> Int64s:
    """Return the rows that are left if each remaining row, in the order of the rows, removes the later rows of its slot
    that are less than `ttl` after it in time. The result is ordered by slot.

    A row that is left is newer than all rows of its slot before it. So the other rows fall away first. The times of a
    slot then ascend, and a search finds the first row that is `ttl` after another one.
    """
    if not len(slots):
        return slots
    known = np.unique(times)
    count = len(known) + 1
    order = np.argsort(slots, kind="stable")
    words = (slots * count + np.searchsorted(known, times)).take(order)
    newest = np.maximum.accumulate(words)  # the words of a slot are greater than those of the slots before it
    newer = np.flatnonzero(np.append(True, newest[1:] > newest[:-1]))
    order, words = order.take(newer), words.take(newer)
    slots, times = slots.take(order), times.take(order)
    ends = np.searchsorted(slots, slots, side="right")
    after = np.minimum(times, MAX_TIME - ttl) + ttl
    following = np.searchsorted(words, slots * count + np.searchsorted(known, after))
    jump = np.append(np.where(following < ends, following, len(order)), len(order))
    left = np.zeros(len(order) + 1, np.bool_)
    left[np.flatnonzero(np.append(True, slots[1:] != slots[:-1]))] = True
    found = 0
    while found != (found := int(np.count_nonzero(left))):  # each round doubles how far the jumps go
        left[jump[np.flatnonzero(left)]] = True
        jump = jump[jump]
    return order.take(np.flatnonzero(left[:-1]))
