"""The lab's sink: when rows came, how late each was, and what the sources did while a sink stood still.

Latencies of all rows are counted by the moment the row was due; what subtasks saw comes back to the
driver when the job ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.lab.experiment import Series
from headgate.lab.latencies import BUCKETS, Counts, buckets, percentile

#: Seconds that are counted together.
WINDOW = 0.1

_US = 1_000_000
_WINDOW_US = round(WINDOW * _US)


@dataclass(frozen=True, slots=True)
class Stall:
    """A subtask takes nothing for `seconds`, from `after` seconds on; it sleeps, or it burns Python."""

    after: float
    seconds: float
    burns: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time in which a source made no row, if it made them at full speed: seconds since `Seen.start`."""

    begin: float
    end: float
    #: Rows that were made before it and came after this subtask's stall had begun: in flight when the source stood.
    in_flight: int

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(slots=True)
class Seen:
    """What one subtask of the sink saw. Times are seconds since `start`; windows are of 0.1 s."""

    #: When the first row was due, seconds since the epoch.
    start: float

    #: Rows that came, by window.
    came: Counts
    #: Rows by the window they were due in and by latency.
    late: Counts
    #: When its stall began and ended; None without.
    stalled: tuple[float, float] | None
    #: By the source's subtask.
    gaps: Mapping[int, Gap]

    def rate(self, begin: float, end: float) -> float:
        """Rows/s that came between two times."""
        return float(self.came[round(begin / WINDOW) : round(end / WINDOW)].sum() / (end - begin))

    def latency(self, percent: float, begin: float, end: float) -> float:
        """Milliseconds, of all rows that were due between two times; nan without any."""
        return percentile(self.late[round(begin / WINDOW) : round(end / WINDOW)].sum(axis=0), percent)

    def curve(self, name: str, end: float) -> Series:
        """Rows/s over the time until `end`."""
        shown = self.came[: round(end / WINDOW)]
        return Series(name, tuple(WINDOW * at for at in range(len(shown))), tuple((shown / WINDOW).tolist()))


class Probe(Sink):
    """Takes rows of `flows.SCHEMA`; after the job `seen` holds what each subtask saw that got any. By subtask some may
    stall, or be slow: they take so many bytes/s."""

    def __init__(self, stalls: Mapping[int, Stall] | None = None, drains: Mapping[int, float] | None = None) -> None:
        self._stalls = dict(stalls or {})
        self._drains = dict(drains or {})
        self.seen: dict[int, Seen] = {}

    def writer(self, context: WriterContext) -> SinkWriter:
        """Watches its subtask's rows, and stalls it."""
        subtask = context.subtask
        return _ProbeWriter(subtask, self._stalls.get(subtask), self._drains.get(subtask))

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        self.seen = {each["subtask"]: _seen(each) for each in pending if each is not None}


@dataclass(slots=True)
class _CountTable:
    """Counts by window and bucket; grows."""

    buckets: int
    counts: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((64, self.buckets), dtype=np.int64)

    def add(self, window: int, rows: Counts) -> None:
        """`rows` are counts of some windows in a row, the first of which is `window`."""
        while window + len(rows) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        self.counts[window : window + len(rows)] += rows


@dataclass(slots=True)
class _SourceGap:
    """Rows of one are made in order, so the longest step between two batches' times is when it stood."""

    last_due: int
    gap: tuple[int, int] = (0, 0)
    in_flight: int = 0
    since_stall: int = 0

    def follow(self, due: Counts, stalled: bool) -> None:
        first = int(due[0])
        if first - self.last_due > self.gap[1] - self.gap[0]:
            self.gap = (self.last_due, first)
            self.in_flight = self.since_stall
        self.last_due = int(due[-1])
        if stalled:
            self.since_stall += len(due)


class _ProbeWriter(SinkWriter):
    def __init__(self, subtask: int, stall: Stall | None, drain: float | None) -> None:
        self._subtask = subtask
        self._stall = stall
        self._drain = drain
        self._start: int | None = None
        self._arrived = _CountTable(1)
        self._late = _CountTable(BUCKETS)
        self._stalled: tuple[float, float] | None = None
        self._gaps: dict[int, _SourceGap] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        due = batch.column("due").to_numpy()
        now = round(time.time() * _US)
        if self._start is None:
            self._start = int(due[0])
        self._arrived.add((now - self._start) // _WINDOW_US, np.array([[len(due)]]))
        self._count_latencies(now, due - self._start)
        self._follow_sources(batch.column("source").to_numpy(), due)
        if self._stall is not None and now >= self._start + self._stall.after * _US:
            stall, self._stall = self._stall, None
            _wait(stall)
            self._stalled = ((now - self._start) / _US, time.time() - self._start / _US)
        if self._drain is not None:
            time.sleep(batch.nbytes / self._drain)

    def _count_latencies(self, now: int, due: Counts) -> None:
        assert self._start is not None
        bucket = buckets(now - self._start - due)
        window = np.maximum(due, 0) // _WINDOW_US  # the first row seen may not be the first that was due
        first, last = int(window.min()), int(window.max())
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
            "subtask": self._subtask,
            "start": self._start / _US,
            "came": self._arrived.counts[:, 0].tolist(),
            "cells": cells.tolist(),
            "late": late.ravel()[cells].tolist(),
            "stalled": self._stalled,
            "gaps": {
                source: [(moment - self._start) / _US for moment in each.gap] + [each.in_flight]
                for source, each in self._gaps.items()
            },
        }


def _wait(stall: Stall) -> None:
    if not stall.burns:
        time.sleep(stall.seconds)
        return
    end = time.monotonic() + stall.seconds
    while time.monotonic() < end:
        pass


def _seen(wire: Mapping[str, Any]) -> Seen:
    cells = np.array(wire["cells"], dtype=np.int64)
    windows = 1 + int(cells.max(initial=0)) // BUCKETS
    late = np.zeros(windows * BUCKETS, dtype=np.int64)
    late[cells] = wire["late"]
    stalled = None if wire["stalled"] is None else (wire["stalled"][0], wire["stalled"][1])
    came = np.array(wire["came"], dtype=np.int64)
    gaps = {int(source): Gap(begin, end, rows) for source, (begin, end, rows) in wire["gaps"].items()}
    return Seen(wire["start"], came, late.reshape(-1, BUCKETS), stalled, gaps)
