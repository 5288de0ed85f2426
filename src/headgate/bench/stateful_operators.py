"""`operators`: rows/s and processor time of joins, windows and other operators with state, each in a job of its own.

A job has parallelism 1, and all its threads are in this process. Each rate comes from a small and a large job: the
difference of their rows, divided by the difference of their times. The start-up, which both have, therefore does not
count. Making the rows and moving them counts; the figure `rows alone` says how much that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import CaseResult, Figure, Skipped
from headgate.errors import HeadgateError

KEYS: Final = 100_000
#: The keys of the jobs with many keys.
MANY_KEYS: Final = 1_000_000
GROUPS: Final = 1000
ROUNDS: Final = 3
#: The least rows/s of a join, by processor time.
TARGET: Final = 1_000_000
#: The seconds that the large job should take.
_SECONDS: Final = 3.0
#: How often a pair of jobs may run until the large one takes longer than the small one.
_TRIES: Final = 3
_BATCH: Final = 8192
#: The microseconds of event time between two rows of a stream: 100,000 rows/s.
_APART: Final = 10
_MULTIPLIER: Final = np.uint64(2654435761)
_LOW: Final = np.uint64((1 << 32) - 1)
_ROWS: Final = pa.schema({"key": pa.int64(), "group": pa.int64(), "value": pa.int64(), "at": pa.timestamp("us", "UTC")})


def timed_rows(start: int, n: int, *, salt: int, keys: int = KEYS) -> pa.RecordBatch:
    """Return rows with a key, a group, a value and a time. `salt` tells streams apart. Row i is always the same."""
    number = np.arange(start, start + n, dtype=np.uint64)
    mixed = (number + np.uint64(salt)) * _MULTIPLIER & _LOW
    mixed = (mixed ^ (mixed >> np.uint64(15))) * _MULTIPLIER & _LOW
    key, group = (mixed * np.uint64(most) >> np.uint64(32) for most in (keys, GROUPS))
    numbers = [key, group, mixed & np.uint64(8191)]
    times = pa.array(number.astype(np.int64) * _APART).cast(_ROWS.field("at").type)
    columns = [pa.array(each.view(np.int64)) for each in numbers]
    return pa.RecordBatch.from_arrays([*columns, times], schema=_ROWS)


_SECOND: Final = hg.tumble("1 s")
Add = Callable[[hg.DataStream, hg.DataStream], hg.DataStream]


@dataclass(frozen=True, slots=True)
class StatefulJob:
    """A job: the operator that it adds to two streams, and the rows/s to expect. Some operators use one stream."""

    name: str
    rate: int
    add: Add
    is_join: bool = False
    keys: int = KEYS

    def run(self, rows: int) -> tuple[float, float]:
        """Run the job on `rows` rows of all its streams. Returns its seconds, and its seconds of processor time.

        Raises the job's error, and HeadgateError if it read another number of rows or wrote none.
        """
        environment = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        streams = 2 if self.is_join else 1
        left, right = (self._stream(environment, rows // streams, salt) for salt in (0, 1 << 24))
        self.add(left, right).sink_to(hg.sinks.null())
        began, used = time.perf_counter(), time.process_time()
        result = environment.execute(self.name)
        elapsed, used = time.perf_counter() - began, time.process_time() - used
        if result.rows_in != rows or not result.rows_out:
            raise HeadgateError(f"{self.name} read {result.rows_in:,} rows of {rows:,}, and wrote {result.rows_out:,}")
        return elapsed, used

    def _stream(self, environment: hg.StreamEnvironment, rows: int, salt: int) -> hg.DataStream:
        source = hg.sources.generate(partial(timed_rows, salt=salt, keys=self.keys), rows=rows)
        return environment.from_source(source, watermark=hg.Watermark("at"))


def _interval_join(left: hg.DataStream, right: hg.DataStream) -> hg.DataStream:
    return left.join(right, on="key", within=("-1 s", "1 s"), suffix="_right")


def _window_join(left: hg.DataStream, right: hg.DataStream) -> hg.DataStream:
    return left.select("key", "value").join(right.select("key", "value"), on="key", window=_SECOND, suffix="_right")


def _as_of_join(left: hg.DataStream, right: hg.DataStream) -> hg.DataStream:
    return left.join_as_of(right, on="key", suffix="_right")


def _ttl_join(left: hg.DataStream, right: hg.DataStream) -> hg.DataStream:
    return left.join(right, on="key", ttl="1 s", suffix="_right")


def _in_windows(windows: Any, key: str, **aggregates: Any) -> Add:
    return lambda rows, _: rows.key_by(key).window(windows).aggregate(**aggregates)


_TOTAL: Final = {"rows": hg.count(), "total": hg.sum("value")}
JOBS: Final = (
    StatefulJob("rows alone", 10_000_000, lambda rows, _: rows.rebalance().filter("value >= 0")),
    StatefulJob("tumbling window", 5_000_000, _in_windows(_SECOND, "group", **_TOTAL)),
    StatefulJob("count window", 5_000_000, _in_windows(hg.count_window(100), "group", **_TOTAL)),
    StatefulJob("count window, overlapping", 1_000_000, _in_windows(hg.count_window(10, every=1), "group", **_TOTAL)),
    StatefulJob("session", 1_000_000, _in_windows(hg.session("500 ms"), "key", **_TOTAL)),
    StatefulJob("top", 1_000_000, lambda rows, _: rows.key_by("group").window(_SECOND).top(3, by="value")),
    StatefulJob("quantile", 1_000_000, _in_windows(_SECOND, "group", middle=hg.quantile("value", 0.5))),
    StatefulJob("interval join", 1_000_000, _interval_join, is_join=True),
    StatefulJob("window join", 1_000_000, _window_join, is_join=True),
    StatefulJob("as-of join", 1_000_000, _as_of_join, is_join=True),
    StatefulJob("interval join, a million keys", 1_000_000, _interval_join, is_join=True, keys=MANY_KEYS),
    StatefulJob("window join, a million keys", 1_000_000, _window_join, is_join=True, keys=MANY_KEYS),
    StatefulJob("as-of join, a million keys", 1_000_000, _as_of_join, is_join=True, keys=MANY_KEYS),
    StatefulJob("ttl join, a million keys", 500_000, _ttl_join, is_join=True, keys=MANY_KEYS),
)


@dataclass(slots=True)
class _Times:
    """The rows/s and the seconds of processor time per million rows of a job, round by round."""

    rates: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)


def run(options: Options) -> CaseResult:
    """Measure every job in turn, round by round."""
    times = {job.name: _Times() for job in JOBS}
    failed: dict[str, str] = {}
    for number in range(1 if options.quick else ROUNDS):
        for job in JOBS:
            if job.name in failed:
                continue
            options.say(f"operators: round {number + 1}, {job.name}")
            try:
                _measure(job, times[job.name], _SECONDS * (0.1 if options.quick else 1.0))
            except HeadgateError as error:
                failed[job.name] = str(error)
    figures = []
    for name, each in times.items():
        if each.rates:
            figures.append(Figure(name, "rows/s", tuple(each.rates)))
            figures.append(Figure(f"{name}: processor time", "s per million rows", tuple(each.used)))
    joins = [times[job.name].used for job in JOBS if job.is_join]
    return CaseResult(
        case="operators",
        target=f"each join at least {TARGET:,} rows per second of processor time",
        met=all(used and median(used) <= 1e6 / TARGET for used in joins),
        figures=tuple(figures),
        settings={"keys": KEYS, "many keys": MANY_KEYS, "groups": GROUPS, "parallelism": 1},
        skipped=tuple(Skipped(name, reason) for name, reason in failed.items()),
    )


def _measure(job: StatefulJob, times: _Times, seconds: float) -> None:
    large = max(round(seconds * job.rate / _BATCH), 10) * _BATCH
    small = large // 10 // (2 * _BATCH) * 2 * _BATCH or 2 * _BATCH
    for _ in range(_TRIES):
        (short, little), (long, much) = job.run(small), job.run(large)
        if long > short and much > little:
            times.rates.append((large - small) / (long - short))
            times.used.append((much - little) / (large - small) * 1e6)
            return
    raise HeadgateError(f"{large:,} rows took no longer than {small:,}; the machine is busy")
