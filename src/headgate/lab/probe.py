"""The lab's sink. It records when rows arrive, how late each row is, and when the sources stop during a stall.

The sink counts the latencies of all rows by the time at which the rows were due. The records of the subtasks reach the
driver when the job ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.lab.experiment import Series
from headgate.lab.latencies import BUCKETS, Counts, buckets, percentile

#: Rows are counted in windows of this length, in seconds.
WINDOW = 0.1

_US = 1_000_000
_WINDOW_US = round(WINDOW * _US)


@dataclass(frozen=True, slots=True)
class Stall:
    """A stall of a subtask: from `after` seconds on it reads nothing for `seconds`.

    The subtask sleeps. With `burns` it runs a Python loop instead.
    """

    after: float
    seconds: float
    burns: bool = False


@dataclass(frozen=True, slots=True)
class Slow:
    """A subtask that reads `rate` rows/s. From `after` seconds on it reads `slow_rate` rows/s, for `seconds`.

    If it had no rows for a time, it makes up for at most `saved` seconds of it. If it was woken too late, it makes up
    for all of that, so that a busy machine does not make it slower.
    """

    rate: float
    after: float = 0.0
    seconds: float = 0.0
    slow_rate: float = 0.0
    saved: float = 0.01

    def rate_at(self, at: float) -> float:
        return self.slow_rate if self.after <= at < self.after + self.seconds else self.rate


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time in which a source at full speed made no row, in seconds since `Seen.start`."""

    begin: float
    end: float
    #: Rows in flight when the source stopped: made before the gap, and read after this subtask's stall.
    in_flight: int

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(slots=True, kw_only=True)
class Seen:
    """The record of one subtask of the sink. Times are seconds since `start`. Windows are 0.1 s long."""

    #: When the first row was due, seconds since the epoch.
    start: float

    #: Rows that arrived, by window.
    arrived: Counts
    #: Rows by the window in which they were due and by the bucket of their latency.
    late: Counts
    #: The start and the end of the subtask's stall; None without a stall.
    stalled: tuple[float, float] | None
    #: The longest gap of each source, by its subtask.
    gaps: Mapping[int, Gap]
    #: The longest latency in microseconds, by the window in which rows were due.
    longest: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def rate(self, begin: float, end: float) -> float:
        """Return the rows/s that arrived between two times."""
        return float(self.arrived[round(begin / WINDOW) : round(end / WINDOW)].sum() / (end - begin))

    def latency(self, percent: float, begin: float, end: float) -> float:
        """Return a percentile of the latency, in milliseconds, of the rows due between two times; nan without rows.

        That of 100 % is exact.
        """
        due = slice(round(begin / WINDOW), round(end / WINDOW))
        within = percentile(self.late[due].sum(axis=0), percent)
        return within if percent < 100 or np.isnan(within) else float(self.longest[due].max() / 1000)

    def curve(self, name: str, end: float) -> Series:
        """Return the curve of rows/s over time until `end`."""
        shown = self.arrived[: round(end / WINDOW)]
        return Series(name, tuple(WINDOW * at for at in range(len(shown))), tuple((shown / WINDOW).tolist()))


class Probe(Sink):
    """A sink for rows of `flows.SCHEMA`. After the job, `seen` holds the record of each subtask that got rows.

    `stalls` gives the stall of a subtask, `drains` gives how many bytes/s a subtask reads, and `slows` gives how many
    rows/s, all by subtask.
    """

    def __init__(
        self,
        stalls: Mapping[int, Stall] | None = None,
        drains: Mapping[int, float] | None = None,
        slows: Mapping[int, Slow] | None = None,
    ) -> None:
        self._stalls = dict(stalls or {})
        self._drains = dict(drains or {})
        self._slows = dict(slows or {})
        self.seen: dict[int, Seen] = {}

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return the writer that records a subtask's rows and stalls or slows it."""
        subtask = context.subtask
        writer = _ProbeWriter(context, self._stalls.get(subtask), self._drains.get(subtask))
        writer.slow = self._slows.get(subtask)
        return writer

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        self.seen = {record["subtask"]: _seen(record) for record in pending if record is not None}


@dataclass(slots=True)
class _CountTable:
    """Counts by window and bucket, in an array that grows."""

    buckets: int
    counts: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((64, self.buckets), dtype=np.int64)

    def add(self, window: int, rows: Counts) -> None:
        """Add the counts of successive windows. The first of them is `window`."""
        while window + len(rows) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        self.counts[window : window + len(rows)] += rows


@dataclass(slots=True)
class _SourceGap:
    """The search for the longest gap of one source. A source makes rows in order, and a gap is between two rows. These
    may be in one batch, since a task joins small batches."""

    last_due: int
    gap: tuple[int, int] = (0, 0)
    in_flight: int = 0
    since_stall: int = 0

    def follow(self, due: Counts, stalled: bool) -> None:
        steps = np.diff(due, prepend=self.last_due)
        longest = int(steps.argmax())
        if steps[longest] > self.gap[1] - self.gap[0]:
            self.gap = (int(due[longest] - steps[longest]), int(due[longest]))
            self.in_flight = self.since_stall + longest * stalled
        self.last_due = int(due[-1])
        if stalled:
            self.since_stall += len(due)


class _ProbeWriter(SinkWriter):
    """A writer that records the rows of one subtask, and stalls or slows the subtask."""

    def __init__(self, context: WriterContext, stall: Stall | None, drain: float | None) -> None:
        self._context = context
        self._clock = context.clock
        self._stall = stall
        self._drain = drain
        self.slow: Slow | None = None
        self._free_at = self._worked_until = 0.0
        self._start: int | None = None
        self._arrived = _CountTable(1)
        self._late = _CountTable(BUCKETS)
        self._longest: dict[int, int] = {}
        self._stalled: tuple[float, float] | None = None
        self._gaps: dict[int, _SourceGap] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        due = batch.column("due").to_numpy()
        now = round(self._clock() * _US)
        if self._start is None:
            self._start = int(due[0])
        self._arrived.add((now - self._start) // _WINDOW_US, np.array([[len(due)]]))
        self._count_latencies(now, due - self._start)
        self._follow_sources(batch.column("source").to_numpy(), due)
        if self._stall is not None and now >= self._start + self._stall.after * _US:
            stall, self._stall = self._stall, None
            _wait(stall, self._context)
            self._stalled = ((now - self._start) / _US, self._clock() - self._start / _US)
        if self._drain is not None:
            self._context.sleep(batch.nbytes / self._drain)
        if self.slow is not None:
            self._work(len(due), self.slow)

    def _work(self, rows: int, slow: Slow) -> None:
        """Take as long as the rows need. If a sleep took too long, the next ones are shorter."""
        assert self._start is not None
        now = self._clock()
        if now - self._worked_until > slow.saved:  # it had no rows
            self._free_at = max(self._free_at, now - slow.saved)
        self._free_at += rows / slow.rate_at(now - self._start / _US)
        self._context.sleep(max(0.0, self._free_at - now))
        self._worked_until = self._clock()

    def _count_latencies(self, now: int, due: Counts) -> None:
        assert self._start is not None
        late = now - self._start - due
        bucket = buckets(late)
        window = np.maximum(due, 0) // _WINDOW_US  # a row that was due before the first one may arrive after it
        first, last = int(window.min()), int(window.max())
        for each in range(first, last + 1):
            longest = int(late[window == each].max(initial=0))
            self._longest[each] = max(longest, self._longest.get(each, 0))
        counts = np.bincount((window - first) * BUCKETS + bucket, minlength=(last - first + 1) * BUCKETS)
        self._late.add(first, counts.reshape(-1, BUCKETS))

    def _follow_sources(self, sources: Counts, due: Counts) -> None:
        for source in np.unique(sources).tolist():
            made = due[sources == source]
            producer = self._gaps.setdefault(source, _SourceGap(int(made[0])))
            producer.follow(made, self._stalled is not None)

    def finish(self) -> Any:
        if self._start is None:
            return None
        late = self._late.counts
        cells = np.flatnonzero(late)
        return {
            "subtask": self._context.subtask,
            "start": self._start / _US,
            "came": self._arrived.counts[:, 0].tolist(),
            "cells": cells.tolist(),
            "late": late.ravel()[cells].tolist(),
            "longest": [self._longest.get(window, 0) for window in range(max(self._longest) + 1)],
            "stalled": self._stalled,
            "gaps": {
                source: [(moment - self._start) / _US for moment in search.gap] + [search.in_flight]
                for source, search in self._gaps.items()
            },
        }


def _wait(stall: Stall, context: WriterContext) -> None:
    if not stall.burns:
        context.sleep(stall.seconds)
        return
    end = context.clock() + stall.seconds
    while context.clock() < end:
        pass


def _seen(wire: Mapping[str, Any]) -> Seen:
    cells = np.array(wire["cells"], dtype=np.int64)
    windows = 1 + int(cells.max(initial=0)) // BUCKETS
    late = np.zeros(windows * BUCKETS, dtype=np.int64)
    late[cells] = wire["late"]
    stalled = None if wire["stalled"] is None else (wire["stalled"][0], wire["stalled"][1])
    arrived = np.array(wire["came"], dtype=np.int64)
    gaps = {int(source): Gap(begin, end, rows) for source, (begin, end, rows) in wire["gaps"].items()}
    longest = np.array(wire["longest"], dtype=np.int64)
    return Seen(
        start=wire["start"],
        arrived=arrived,
        late=late.reshape(-1, BUCKETS),
        stalled=stalled,
        gaps=gaps,
        longest=longest,
    )
