"""`SessionState`: the sessions of keys, which grow and merge as rows arrive.

A session has a slot (a number), which is also its slot in the accumulators. A table finds the sessions near a row: it
maps a key and a bucket of event time to the session that has rows in this bucket. A bucket is as long as the gap. Two
rows of a key in one bucket are therefore in one session, and a session has rows in each bucket from its first row to
its last row. A row can only join sessions with rows in its own bucket or in one of the two buckets beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.records.canonical import Bools, Int64s, as_arrow, flat_ranges, raw_values
from headgate.state.frozen import frozen
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable
from headgate.state.renumber import OneRowPerSlot, renumbering
from headgate.state.snapshot import in_pieces
from headgate.state.words import WordTable

#: The results of some sessions: the key columns, the starts, the ends, and the aggregates' columns.
FiredSessions: TypeAlias = tuple[list[pa.Array], Int64s, Int64s, list[pa.Array]]
#: How many times per gap of event time the state looks at all sessions, for those that end next.
_LOOKS_PER_GAP = 16
#: A compaction happens only if there are at least this many sessions and buckets.
_LEAST = 8192


class SessionState:
    """The keys, the sessions and their accumulators.

    Where other states have the number of a window (`fire`, `next_number`, `close`), this one has the end of a session,
    in microseconds.

    Slots of closed sessions, and of sessions that another session has absorbed, are dead. A compaction removes them
    when the state has doubled since the last compaction. A closed session does not grow any more.
    """

    def __init__(self, key_types: Sequence[pa.DataType], accumulators: Callable[[], AccumulatorSet], gap: int) -> None:
        self._gap = gap
        self._keys = KeyTable(key_types)
        self._key_columns = len(key_types)
        self._accumulators = accumulators()
        #: The key of each session, and the times of its first and its last row.
        self._key, self._first, self._last = Growable(np.int64), Growable(np.int64), Growable(np.int64)
        #: The session that has absorbed each session, or the session itself.
        self._absorbed_by = Growable(np.int64)
        self._buckets = WordTable(2)
        self._session_of_bucket = Growable(np.int64)
        self._picker = OneRowPerSlot()
        self._closed = MIN_TIME
        #: The time of the last row of all.
        self._latest = MIN_TIME
        self._compact_at = _LEAST
        #: The sessions that may end until `_horizon`. Each session that is not here ends later.
        self._next = [np.zeros(0, np.int64)]
        self._horizon = MIN_TIME

    def __len__(self) -> int:
        return len(self._key)

    @property
    def nbytes(self) -> int:
        columns = (self._key, self._first, self._last, self._absorbed_by, self._session_of_bucket, self._picker)
        tables = self._keys.nbytes + self._buckets.nbytes + self._accumulators.nbytes
        return tables + sum(column.nbytes for column in columns)

    @property
    def keys(self) -> int:
        """The number of keys."""
        return len(self._keys)

    # --- rows

    def add(self, columns: Sequence[pa.Array], batch: pa.RecordBatch, times: Int64s) -> Int64s:
        """Add rows with these key columns to their sessions. Returns the session of each row.

        The sessions are valid until the next `close`.
        """
        keys = self._keys.find_or_add(columns, batch.num_rows)
        order = _by_key_and_time(keys, times)
        sorted_keys, sorted_times = keys.take(order), times.take(order)
        apart = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_times[:-1] + self._gap <= sorted_times[1:])
        begins = np.concatenate([[0], np.flatnonzero(apart) + 1])
        ends = np.append(begins[1:], len(order))
        sessions = self._join(sorted_keys.take(begins), sorted_times.take(begins), sorted_times.take(ends - 1))
        of_rows = np.empty(len(order), np.int64)
        of_rows[order] = np.repeat(sessions, ends - begins)
        self._accumulators.update(len(self), of_rows, batch, times)
        return of_rows

    def _join(self, keys: Int64s, first: Int64s, last: Int64s) -> Int64s:
        """Return the session of each burst of rows. Sessions grow, merge and begin as the bursts require.

        A burst has rows of one key that are less than the gap apart. It is given by its key and the times of its first
        and its last row. Bursts of one key are at least the gap apart.
        """
        bursts, near = len(keys), self._near(keys, first, last)
        keys = np.concatenate([keys, self._key.values.take(near)])
        firsts = np.concatenate([first, self._first.values.take(near)])
        lasts = np.concatenate([last, self._last.values.take(near)])
        order = _by_key_and_time(keys, firsts)
        begins = self._begins(keys.take(order), firsts.take(order), lasts.take(order), order < bursts)
        joined = np.cumsum(begins) - 1  # the number of the session that each burst and each old session becomes
        begin = np.flatnonzero(begins)
        old = order >= bursts
        sessions = np.full(len(begin), -1)
        slots, into = near.take(order[old] - bursts), joined[old]
        sessions[into[::-1]] = slots[::-1]  # of several old sessions, the first one absorbs the others
        lost = np.flatnonzero(sessions.take(into) != slots)
        if len(lost):  # before new sessions begin: the accumulators expect rows for each new slot
            self._absorb(sessions.take(into.take(lost)), slots.take(lost))
        fresh = np.flatnonzero(sessions < 0)
        sessions[fresh] = self._begin(keys.take(order).take(begin.take(fresh)))
        self._first.values[sessions] = firsts.take(order.take(begin))
        self._last.values[sessions] = np.maximum.reduceat(lasts.take(order), begin)
        self._latest = max(self._latest, int(last.max()))
        self._expect(sessions)
        of_bursts = np.empty(bursts, np.int64)
        of_bursts[order[~old]] = sessions.take(joined[~old])
        self._enter(keys[:bursts], first, last, of_bursts)
        return of_bursts

    def _near(self, keys: Int64s, first: Int64s, last: Int64s) -> Int64s:
        """Return the open sessions that have rows in the buckets of these bursts, or in the buckets beside them."""
        buckets, offsets = flat_ranges(first // self._gap - 1, last // self._gap - first // self._gap + 3)
        places = self._buckets.known_slots(np.repeat(keys, np.diff(offsets)), buckets)
        sessions = self._absorbing(self._session_of_bucket.values.take(places[places >= 0]))
        sessions = sessions[self._last.values.take(sessions) + self._gap > self._closed]
        return self._different(sessions)

    def _begins(self, keys: Int64s, firsts: Int64s, lasts: Int64s, bursts: Bools) -> Bools:
        """Return which of these bursts and old sessions do not join the one before. All are sorted by key and time.
        `bursts` marks the bursts.

        Bursts do not join bursts, and old sessions do not join old sessions. The last burst and the last old session
        before therefore have the latest rows.
        """
        begins = np.ones(len(keys), np.bool_)
        places = np.arange(len(keys))
        for kind in (bursts, ~bursts):
            before = np.maximum.accumulate(np.where(kind, places, -1))[:-1]
            joins = (before >= 0) & (keys.take(before) == keys[1:])
            begins[1:] &= ~(joins & (firsts[1:] < lasts.take(before) + self._gap))
        return begins

    def _begin(self, keys: Int64s) -> Int64s:
        """Return new sessions of these keys."""
        sessions = np.arange(len(self), len(self) + len(keys))
        for column, values in ((self._key, keys), (self._absorbed_by, sessions)):
            column.append(values)
        self._first.resize(len(self))
        self._last.resize(len(self))
        return sessions

    def _absorb(self, sessions: Int64s, lost: Int64s) -> None:
        self._accumulators.absorb(len(self), sessions, self._accumulators, lost)
        self._absorbed_by.values[lost] = sessions

    def _absorbing(self, sessions: Int64s) -> Int64s:
        """Return the sessions that hold the rows of these sessions now."""
        asked, by = sessions, self._absorbed_by.values
        while True:
            found = by.take(sessions)
            if np.array_equal(found, sessions):
                by[asked] = found  # the next search is short
                return found
            sessions = found

    def _enter(self, keys: Int64s, first: Int64s, last: Int64s, sessions: Int64s) -> None:
        """Enter sessions into the buckets from `first` to `last` of their keys."""
        buckets, offsets = flat_ranges(first // self._gap, last // self._gap - first // self._gap + 1)
        counts = np.diff(offsets)
        places = self._buckets.find_or_add(np.repeat(keys, counts), buckets)
        self._session_of_bucket.resize(len(self._buckets))
        self._session_of_bucket.values[places] = np.repeat(sessions, counts)

    # --- event time

    def fire(self, after: int, last: int, most: int) -> Iterator[FiredSessions]:
        """Yield the results of the sessions that end after `after`, up to `last`, in ascending order of their ends, at
        most `most` rows at a time."""
        if last > self._horizon:
            self._look_ahead(after, last)
        soon = self._different(np.concatenate(self._next))
        soon = soon[self._absorbed_by.values.take(soon) == soon]
        ends = self._last.values.take(soon) + self._gap
        self._next = [soon[ends > last]]
        yield from self.rows(soon[(ends > after) & (ends <= last)], most)

    def ended(self, sessions: Int64s, until: int) -> Int64s:
        """Return which of these sessions end at or before `until`, each once."""
        return self._different(sessions[self._last.values.take(sessions) + self._gap <= until])

    def rows(self, sessions: Int64s, most: int) -> Iterator[FiredSessions]:
        """Yield the results of these sessions, in ascending order of their ends, at most `most` rows at a time."""
        sessions = sessions.take(np.argsort(self._last.values.take(sessions), kind="stable"))
        for begin in range(0, len(sessions), most):
            some = sessions[begin : begin + most]
            keys = self._keys.keys(self._key.values.take(some))
            start, end = self._first.values.take(some), self._last.values.take(some) + self._gap
            yield keys, start, end, self._accumulators.results(some)

    def next_number(self, after: int) -> int | None:
        """Return a time after `after`; no session ends between the two. Return None if no session ends after
        `after`."""
        soon = np.concatenate(self._next)
        ends = self._last.values.take(soon[self._absorbed_by.values.take(soon) == soon]) + self._gap
        ends = ends[ends > after]
        times = [int(ends.min())] if len(ends) else []
        if self._latest + self._gap > max(self._horizon, after):
            times.append(max(self._horizon, after) + 1)
        return min(times, default=None)

    def close(self, last: int) -> None:
        """Close all sessions that end at or before `last`."""
        self._closed = max(self._closed, last)
        if len(self) + len(self._buckets) >= self._compact_at:
            self._compact()

    def _look_ahead(self, after: int, last: int) -> None:
        """Look for the sessions that may end soon after `last`, so that the next watermarks need not look at all
        sessions."""
        self._horizon = min(last + self._gap // _LOOKS_PER_GAP, MAX_TIME)
        ends = self._last.values + self._gap
        self._next = [np.flatnonzero((ends > after) & (ends <= self._horizon))]

    def _expect(self, sessions: Int64s) -> None:
        """Note the sessions among these that may end until the horizon."""
        soon = np.flatnonzero(self._last.values.take(sessions) + self._gap <= self._horizon)
        if len(soon):
            self._next.append(sessions.take(soon))

    def _different(self, sessions: Int64s) -> Int64s:
        """Return each of these sessions once."""
        return sessions.take(self._picker.pick(sessions, len(self)))

    def _open(self) -> Int64s:
        """Return all sessions that are not dead."""
        sessions = np.arange(len(self))
        is_own = self._absorbed_by.values == sessions
        return np.flatnonzero(is_own & (self._last.values + self._gap > self._closed))

    def _compact(self) -> None:
        live = self._open()
        numbers = renumbering(live, len(self))
        owners = numbers.take(self._absorbing(self._session_of_bucket.values))
        needed = np.flatnonzero((owners >= 0) & (self._buckets.column(1) >= self._first_bucket()))
        keys, buckets = (self._buckets.column(index).take(needed) for index in (0, 1))
        self._session_of_bucket.replace(owners.take(needed))
        for column in (self._first, self._last):
            column.replace(column.values.take(live))
        self._accumulators.keep(live)
        self._absorbed_by.replace(np.arange(len(live)))
        keys, owners = self._renumber_keys(keys, self._key.values.take(live))
        self._key.replace(owners)
        self._buckets.replace([keys, buckets])
        self._next, self._horizon = [np.zeros(0, np.int64)], MIN_TIME
        self._compact_at = max(2 * (len(self) + len(self._buckets)), _LEAST)

    def _first_bucket(self) -> int:
        """Return the first bucket that a row can still ask for. Rows at `_closed` - gap are late."""
        return (self._closed - self._gap) // self._gap - 1

    def _renumber_keys(self, *columns: Int64s) -> list[Int64s]:
        """Remove the keys without a session, if at least half of all keys have none. The last column has the key of
        each session. Returns the columns with the new slots of their keys."""
        used = np.zeros(len(self._keys), np.bool_)
        used[columns[-1]] = True
        mentioned = np.flatnonzero(used)
        if 2 * len(mentioned) > len(used):
            return list(columns)
        self._keys.compact(mentioned)
        numbers = renumbering(mentioned, len(used))
        return [numbers.take(column) for column in columns]

    # --- checkpoints

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only its `table` may be used."""
        return frozen(self)

    def table(self, key_names: Sequence[str], max_parallelism: int) -> pa.Table:
        """Return all open sessions for a snapshot: key group, keys, times of the first and last row, accumulators."""
        live = self._open()

        def some(rows: slice) -> pa.Table:
            slots = live[rows]
            columns = self._keys.columns(self._key.values.take(slots), key_names, max_parallelism)
            columns["first"] = as_arrow(self._first.values.take(slots))
            columns["last"] = as_arrow(self._last.values.take(slots))
            return pa.table(columns | self._accumulators.columns(slots))

        return in_pieces(len(live), some)

    def with_exact_sums(self, table: pa.Table) -> pa.Table:
        """Return the table of a snapshot with sums of decimals in the current format.

        `AccumulatorSet.with_exact_sums` describes the format.
        """
        return self._accumulators.with_exact_sums(table)

    def load(self, table: pa.Table) -> None:
        """Restore sessions that `table` returned. Their keys have no session here yet."""
        for batch in table.to_batches():
            if batch.num_rows:
                _, *keys, first, last = batch.columns[: self._key_columns + 3]
                slots = self._keys.find_or_add(keys, batch.num_rows)
                sessions = self._begin(slots)
                begin, end = (raw_values(column).view(np.int64) for column in (first, last))
                self._first.values[sessions], self._last.values[sessions] = begin, end
                needed = np.maximum(begin, max(self._first_bucket() * self._gap, MIN_TIME))
                self._enter(slots, np.minimum(needed, end), end, sessions)
                self._latest = max(self._latest, int(end.max()))
                self._accumulators.load(len(self), sessions, batch.columns[self._key_columns + 3 :])
        self._horizon = MIN_TIME


def _by_key_and_time(keys: Int64s, times: Int64s) -> Int64s:
    """Return the positions of the rows, sorted by key and then by time. Keys are small numbers, not negative."""
    low = int(times.min())
    bits = (int(times.max()) - low).bit_length()
    if bits + int(keys.max()).bit_length() > 63:
        return np.lexsort((times, keys))
    return np.argsort((keys << bits) | (times - low))
