"""`SortedRuns`: the rows that one side of a join keeps, in a few sorted runs.

New rows become a run of their own. The last four runs merge if the last one is at least half as long as the first one.
So the code of each row is moved about log4(rows) times, and there are at most about 3 log2(rows) runs. The rows
themselves are copied once or twice: see `RowParts`. A run is never changed, except for its flags `matched`. So a
snapshot shares the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headgate.operators.joins.coded_rows import CodedRows, Codes, Picked, Spans, same_keys
from headgate.operators.joins.row_parts import RowParts
from headgate.operators.operator import MIN_TIME
from headgate.records.canonical import Bools, Int64s, UInt64s, flat_ranges

#: Runs that together have at most so many rows merge in any case: many tiny batches then make few runs.
_SMALL = 2048
#: How many runs merge at once.
_FAN = 4
#: Runs that together have more rows, or more bytes in their keys, do not merge: 32-bit offsets of strings end at 2 GiB.
_MOST_ROWS, _MOST_BYTES = 1 << 22, 1 << 29
#: The most candidates that are compared at once, except for the candidates of a single row.
_MOST_CANDIDATES = 1 << 16
#: How many values of the first bits of its hashes a run tells apart for each row, at least.
_FILTER = 4
#: A run gets its filter when as many rows have been searched for as it has, divided by this.
_PAYS = 8
#: The most rows that are sampled for `middle_end`.
_SAMPLE = 256


class HashFilter(NamedTuple):
    """Which of the first bits of hashes the codes of a run have: most rows that look for partners in a small run have
    none there, and this costs less than to search for their codes.

    >>> codes = np.array([1 << 60, 15 << 60], np.uint64)
    >>> HashFilter.of(codes).may_have(np.array([1 << 60, 7 << 60], np.uint64)).tolist()
    [0]
    """

    #: For each value of the first bits, whether a code has it.
    seen: Bools
    shift: np.uint64

    @classmethod
    def of(cls, codes: UInt64s) -> HashFilter:
        """Return the filter of a run with these codes."""
        seen = np.zeros(cls.nbytes_of(len(codes)), np.bool_)
        shift = np.uint64(65 - len(seen).bit_length())
        seen[codes >> shift] = True
        return cls(seen, shift)

    @staticmethod
    def nbytes_of(codes: int) -> int:
        """Return the size of the filter of so many codes: a byte for each value, of which there is a power of two."""
        return 1 << min((_FILTER * codes).bit_length(), 32)  # the other half of a code is a time

    def may_have(self, codes: UInt64s) -> Int64s:
        """Return the positions of those codes whose hash the run may have."""
        return np.flatnonzero(self.seen.take((codes >> self.shift).view(np.int64)))


@dataclass(slots=True)
class FilterWhenItPays:
    """The filter of a run, made when enough rows have looked for partners in the run.

    To make it costs about as much as to search for an eighth of the run's rows. Few rows may look into a large run, and
    into a run that merges soon.
    """

    searched: int = 0
    made: HashFilter | None = None

    def for_search(self, codes: UInt64s, rows: int) -> HashFilter | None:
        """Return the filter of a run with these codes, for a search of so many rows; None if it does not pay yet."""
        if self.made is None:
            self.searched += rows
            if self.searched >= len(codes) // _PAYS:
                self.made = HashFilter.of(codes)
        return self.made


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Rows in the order of their codes. Row i has the number `at[i]` in `rows`, which has another order.

    All times are in microseconds.
    """

    codes: UInt64s
    begins: Int64s
    ends: Int64s
    at: Int64s
    matched: Bools
    rows: RowParts
    filter: FilterWhenItPays
    #: The length of the longest span, the first and the last end, and approximately the median of the ends. `nbytes`
    #: counts the filter also before it is made.
    longest: int
    first_end: int
    last_end: int
    middle_end: int
    nbytes: int

    @classmethod
    def of(cls, codes: UInt64s, spans: Spans, at: Int64s, matched: Bools, rows: RowParts) -> Run:
        """Return a run of at least one row. The arguments are fields of the run; `spans` has the begins and the
        ends."""
        begins, ends = spans
        sample = np.sort(ends[:: len(ends) // _SAMPLE + 1])
        is_point = ends is begins
        arrays = (codes, begins, at, matched) if is_point else (codes, begins, ends, at, matched)
        return cls(
            codes=codes,
            begins=begins,
            ends=ends,
            at=at,
            matched=matched,
            rows=rows,
            filter=FilterWhenItPays(),
            longest=0 if is_point else max(int((ends - begins).max()), 0),
            first_end=int(ends.min()),
            last_end=int(ends.max()),
            middle_end=int(sample[len(sample) // 2]),
            nbytes=sum(array.nbytes for array in arrays) + rows.nbytes + HashFilter.nbytes_of(len(codes)),
        )  # fmt: skip

    @classmethod
    def of_rows(cls, probe: CodedRows, kept: Int64s | None) -> Run:
        """Return the rows `kept` as a run, at least one row. None means all rows."""
        rows = RowParts.of(probe.rows, probe.keys)
        run = cls.of(probe.codes, (probe.begins, probe.ends), probe.at, probe.matched, rows)
        return run if kept is None else run.take(kept)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, kept: Int64s) -> Run:
        """Return these rows, of which there is at least one, in the same order."""
        begins = self.begins.take(kept)
        ends = begins if self.ends is self.begins else self.ends.take(kept)
        at, rows = self.at.take(kept), self.rows
        if 2 * len(at) < len(rows):  # let go of the memory of the other rows
            rows, at = rows.taken(at)
        return Run.of(self.codes.take(kept), (begins, ends), at, self.matched.take(kept), rows)

    def living(self, gone: int) -> Int64s:
        """Return the rows that do not end before `gone`."""
        return np.flatnonzero(self.ends >= gone)

    @classmethod
    def merged(cls, runs: Sequence[Run]) -> Run:
        """Return the rows of all these runs."""
        codes = np.concatenate([run.codes for run in runs])
        order = np.argsort(codes, kind="stable")  # fast, because it finds the sorted parts
        begins = np.concatenate([run.begins for run in runs]).take(order)
        is_point = all(run.ends is run.begins for run in runs)
        ends = begins if is_point else np.concatenate([run.ends for run in runs]).take(order)
        starts = accumulate((len(run.rows) for run in runs), initial=0)
        at = np.concatenate([run.at + start for run, start in zip(runs, starts, strict=False)]).take(order)
        matched = np.concatenate([run.matched for run in runs]).take(order)
        rows = RowParts.joined([run.rows for run in runs])
        return cls.of(codes.take(order), (begins, ends), at, matched, rows)

    def candidates(self, low: UInt64s, high: UInt64s) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield pairs of a probing row and a row of this run whose code is from `low` to `high` of the probing row."""
        hits = np.arange(len(low))
        if (hashes := self.filter.for_search(self.codes, len(low))) is not None:
            hits = hashes.may_have(low)
            low, high = low.take(hits), high.take(hits)
        start = np.searchsorted(self.codes, low)
        first = self.codes.take(start, mode="clip")
        found = np.flatnonzero((first >= low) & (first <= high))
        if not len(found):
            return
        hits, start = hits.take(found), start.take(found)
        counts = np.searchsorted(self.codes, high.take(found), "right") - start
        until = np.cumsum(counts)
        begin = 0
        while begin < len(hits):
            done = int(until[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(until, done + _MOST_CANDIDATES, "right")), begin + 1)
            positions, _ = flat_ranges(start[begin:end], counts[begin:end])
            probing = np.repeat(hits[begin:end], counts[begin:end])
            for piece in range(0, len(probing), _MOST_CANDIDATES):
                yield probing[piece : piece + _MOST_CANDIDATES], positions[piece : piece + _MOST_CANDIDATES]
            begin = end


class SortedRuns:
    """The rows of one side. `keys` has the positions of the key columns.

    A row can find partners until the watermark has passed its end by `stays` microseconds. After that it is gone, even
    if a run still has it: a run lets go of such rows when they are about half of its rows.
    """

    def __init__(self, keys: Sequence[int], stays: int) -> None:
        self.keys = keys
        self.runs: list[Run] = []
        self.nbytes = 0
        self._stays = stays
        #: Rows that end before this time are gone.
        self.gone = MIN_TIME

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def add(self, run: Run) -> None:
        """Add rows."""
        self.runs.append(run)
        while count := _to_merge(self.runs):
            self.runs[-count:] = [Run.merged(self.runs[-count:])]
        self._count_bytes()

    def frozen(self) -> list[Run]:
        """Return the runs for a snapshot. Later changes of this object do not change them."""
        return [replace(run, matched=run.matched.copy()) for run in self.runs]

    def gone_at(self, watermark: int) -> int:
        """Return the time before which a row must end to be gone at this watermark."""
        return max(watermark - self._stays, MIN_TIME)

    def expire(self, watermark: int) -> None:
        """Let go of rows that can find no more partners."""
        self.gone = gone = max(self.gone, self.gone_at(watermark))
        if any(run.middle_end < gone for run in self.runs):
            runs = [run for run in self.runs if run.last_end >= gone]
            self.runs = [run.take(run.living(gone)) if run.middle_end < gone else run for run in runs]
            self._count_bytes()

    def take_unmatched(self, watermark: int) -> Iterator[tuple[Run, Int64s]]:
        """Yield the rows that will be gone at this watermark and have no partner: runs, and positions in them.

        A row is yielded only once.
        """
        gone = self.gone_at(watermark)
        for run in self.runs:
            if run.first_end < gone:
                due = np.flatnonzero((run.ends < gone) & ~run.matched)
                run.matched[due] = True
                if len(due):
                    yield run, due

    def partners(self, probe: CodedRows, codes: Codes) -> Iterator[tuple[Int64s, pa.RecordBatch, Int64s]]:
        """Yield the pairs of a probing row and a row of this side: probing rows, a batch, and positions in the batch.

        Both rows of each pair are marked as matched.
        """
        high = codes.of(probe.hashes, probe.ends)
        begins = np.maximum(probe.begins, self.gone)
        lows: dict[int, UInt64s] = {}
        for run in self.runs:
            if run.longest not in lows:
                lows[run.longest] = codes.of(probe.hashes, probe.begins - run.longest)
            for probing, positions in run.candidates(lows[run.longest], high):
                overlap = run.begins.take(positions) <= probe.ends.take(probing)
                overlap &= run.ends.take(positions) >= begins.take(probing)
                probing, positions = _those(overlap, probing, positions)
                mine = Picked(probe.rows, probe.keys, probe.at.take(probing))
                same = same_keys(mine, Picked(run.rows.keys, range(len(self.keys)), run.at.take(positions)))
                probing, positions = _those(same, probing, positions)
                probe.matched[probing] = True
                run.matched[positions] = True
                for batch, rows, places in run.rows.split(run.at.take(positions)):
                    if len(rows):
                        yield probing[places], batch, rows

    def _count_bytes(self) -> None:
        self.nbytes = sum(run.nbytes for run in self.runs)


def _to_merge(runs: Sequence[Run]) -> int:
    """Return how many of the last runs are to merge, or 0."""
    if len(runs) > 1 and len(runs[-2]) + len(runs[-1]) <= _SMALL:
        return 2
    last = runs[-_FAN:]
    if len(last) < _FAN or len(last[0]) >= 2 * len(last[-1]):
        return 0
    is_large = sum(map(len, last)) > _MOST_ROWS or sum(run.rows.keys.nbytes for run in last) > _MOST_BYTES
    return 0 if is_large else _FAN


def _those(mask: Bools, one: Int64s, other: Int64s) -> tuple[Int64s, Int64s]:
    return (one, other) if mask.all() else (one[mask], other[mask])
