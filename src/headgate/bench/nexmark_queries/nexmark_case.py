"""`nexmark`: rows/s per core of the queries of Nexmark, compared with Flink SQL.

Both engines read the same Parquet files: two for each kind of event, with one row group each. So each subtask reads one
file from its beginning to its end. Each rate comes from a small and a large set of files: the difference of their rows,
divided by the difference of their times. The start-up time is in both sets, so it cancels out. Queries in which each
result comes from one bid read the large files several times, or their time would be too short. Headgate and Flink run
in turn, query by query and round by round. Both drop their results, and both work in large pieces: Flink in
mini-batches of 2 s, Headgate in messages of 1 MiB. Some queries run on Headgate alone. Of the queries that read what q0
reads, the time of q0 is also subtracted on both sides: the smaller of the two ratios counts.
"""

from __future__ import annotations

import runpy
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.nexmark_queries.flink_nexmark import FlinkNexmark
from headgate.bench.nexmark_queries.nexmark_latency import WINDOWED, latencies, sustained_rate
from headgate.bench.report import CaseResult, Figure, Skipped, ratios
from headgate.connectors.generate_source import GenerateSource
from headgate.errors import HeadgateError

PARALLELISM: Final = 2
RATE: Final = 100_000
MEAN_TARGET, LEAST_TARGET = 5.0, 1.0
#: Options for throughput, as Flink has mini-batches. A batch of an operator is mostly what its buffers hold.
OPTIONS: Final[dict[str, Any]] = {"message_size": "1 MiB", "floating_buffers_per_gate": 128}
#: Events of the small and of the large set of files.
EVENTS, QUICK_EVENTS = (500_000, 5_000_000), (100_000, 2_000_000)
#: The events of a small and of a large job whose sources make them.
MADE: Final = (500_000, 5_000_000)
#: Persons and auctions are 8 % of all events. The files of the queries that read nothing else have so many times the
#: events: otherwise most of their time would be the start.
_RARE: Final = 10
ROUNDS: Final = 3
#: The queries of which each result comes from one bid. They are fast: otherwise most of their time would be the start.
#: They read the large files of bids so many times in one job.
_OF_EACH_BID: Final = ("q0", "q1", "q2", "q13", "q14", "q21", "q22")
_COPIES: Final = 5
#: How often a query is measured if the large set of files takes no longer than the small one.
_TRIES: Final = 3
NAMES: Final = ("q0", "q1", "q2", "q3", "q5", "q7", "q8", "q11", "q14", "q20", "q21", "q22")
_MORE: Final = ("q9", "q15", "q16", "q17", "q18", "q19")
#: The queries that Flink does not run here: the clock decides what q12 emits, and q13 needs a connector for lookups.
_ALONE: Final = ("q12", "q13")
#: The queries that read the same rows as q0: the bids.
_OF_BIDS: Final = ("q1", "q2", "q5", "q7", "q11", "q14", "q15", "q16", "q17", "q18", "q19", "q21", "q22")
#: The least time of a query without its reading, in times of the reading.
_LEAST_NET: Final = 0.1
_Kind = Literal["persons", "auctions", "bids"]
_KINDS: Final[tuple[_Kind, ...]] = ("persons", "auctions", "bids")
_BLOCK: Final = 8192
#: The example with the queries: its copy in a wheel, or else the file of the checkout.
_EXAMPLES: Final = (Path(__file__).with_name("example.py"), Path(__file__).parents[4] / "examples" / "nexmark.py")
_MS: Final = pa.timestamp("ms", tz="UTC")
#: Rows per second and core, and the peak of the resident memory in MB.
Measured = tuple[float, float]


class NoRate(HeadgateError):
    """The large set of files took no longer than the small one."""


@dataclass(frozen=True, slots=True)
class Files:
    """The Parquet files of one set of events."""

    folder: Path
    rows: dict[str, int]

    @classmethod
    def written(cls, folder: Path, events: int, kinds: Sequence[_Kind] = _KINDS) -> Files:
        """Write the files of some kinds of events."""
        rows: dict[str, int] = {}
        for kind in kinds:
            (folder / kind).mkdir(parents=True)
            source: Any = hg.sources.nexmark(kind, events, rate=RATE)
            rows[kind] = source.rows
            for part in range(PARALLELISM):
                table = _blocks(source, part)
                pq.write_table(table, folder / kind / f"{part}.parquet", row_group_size=max(1, table.num_rows))
        return cls(folder, rows)

    def copied(self, folder: Path, copies: int) -> Files:
        """Return these files so many times, as links in a new folder."""
        for kind in self.rows:
            (folder / kind).mkdir(parents=True)
            for copy in range(copies):
                for file in (self.folder / kind).iterdir():
                    (folder / kind / f"{copy}-{file.name}").hardlink_to(file)
        return Files(folder, {kind: rows * copies for kind, rows in self.rows.items()})


def _blocks(source: GenerateSource, part: int) -> pa.Table:
    """Return every second block of the rows, with times in milliseconds: the unit of Flink's timestamps."""
    last = source.rows or 0
    starts = range(part * _BLOCK, last, PARALLELISM * _BLOCK)
    batches = [source.make(start, min(_BLOCK, last - start)) for start in starts]
    types = [(name, _MS if pa.types.is_timestamp(kind) else kind)
             for name, kind in zip(source.schema.names, source.schema.types, strict=True)]  # fmt: skip
    return pa.Table.from_batches(batches, source.schema).cast(pa.schema(types))


@dataclass(frozen=True, slots=True)
class _Sets:
    """The small and the large set of files: of all kinds of events, with more events without bids, and with the large
    files several times."""

    of_all: list[Files]
    of_rare: list[Files]
    of_copies: list[Files]

    @classmethod
    def written(cls, root: Path, events: tuple[int, int]) -> _Sets:
        """Write the files of so many events to a folder."""
        small, large = of_all = [Files.written(root / str(count), count) for count in events]
        rare = [Files.written(root / f"rare-{count}", _RARE * count, ("persons", "auctions")) for count in events]
        return cls(of_all, rare, [small, large.copied(root / "copies", _COPIES)])

    def of(self, name: str, kinds: Sequence[str]) -> list[Files]:
        """Return the sets for a query, which reads these kinds."""
        if name in _OF_EACH_BID:
            return self.of_copies
        return self.of_all if "bids" in kinds else self.of_rare


@dataclass(slots=True)
class _Query:
    """What was measured of a query, round by round: rows/s per core, and the peak of the resident memory in MB."""

    ours: list[float] = field(default_factory=list)
    flinks: list[float] = field(default_factory=list)
    our_memory: list[float] = field(default_factory=list)
    flinks_memory: list[float] = field(default_factory=list)

    def net_ratio(self, reading: _Query) -> float | None:
        """Return the ratio to Flink without the time that the query `reading` takes on each side.

        Returns None if that leaves too little on one side: less than a tenth of the time of `reading`, or less than the
        rounds differ.
        """
        if not (self.flinks and reading.flinks):
            return None
        if max(self.ours) >= min(reading.ours) or max(self.flinks) >= min(reading.flinks):
            return None
        ours, flinks = (
            median(reads) / median(rates) - 1
            for rates, reads in ((self.ours, reading.ours), (self.flinks, reading.flinks))
        )  # in times of `reading`
        if min(ours, flinks) < _LEAST_NET:
            return None
        return flinks * median(reading.ours) / (ours * median(reading.flinks))

    def add(self, ours: Measured, flinks: Measured | None) -> None:
        """Add a round of Headgate, and of Flink or None if Flink does not run."""
        self.ours.append(ours[0])
        self.our_memory.append(ours[1])
        if flinks is not None:
            self.flinks.append(flinks[0])
            self.flinks_memory.append(flinks[1])


def run(options: Options) -> CaseResult:
    """Measure Headgate and Flink in turn. Without Flink, measure one round of Headgate alone."""
    names = NAMES if options.quick else (*NAMES, *_MORE, *_ALONE)
    case = _Case(*_queries(), {name: _Query() for name in names}, [])
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as root:
        events = QUICK_EVENTS if options.quick else EVENTS
        sets = _Sets.written(Path(root), events)
        _seconds(case.queries["q0"], ["bids"], sets.of_all[0])  # the first run starts a server for processes
        try:
            with FlinkNexmark(PARALLELISM, options.say) as flink:
                flink.seconds("q0", sets.of_all[0].folder)  # the first run starts the JVM
                for _ in range(1 if options.quick else ROUNDS):
                    case.round(sets, flink, options)
        except ChildFailed as error:
            case.skipped.append(Skipped("Flink", str(error)))
            case.measured = {name: _Query() for name in names}
            case.round(sets, None, options)
    figures, met = _figures(case.measured)
    figures += case.lateness(options)
    return CaseResult(
        case="nexmark", met=met and not case.skipped, figures=tuple(figures), skipped=tuple(case.skipped),
        target=f"at least {MEAN_TARGET:g} times Flink SQL in the geometric mean, {LEAST_TARGET:g} in each query",
        settings={**OPTIONS, "parallelism": PARALLELISM, "events per second": RATE, "events": events,
                  "times as many events for queries without bids": _RARE, "copies for queries of each bid": _COPIES},
    )  # fmt: skip


@dataclass(slots=True)
class _Case:
    """The queries and what they read, what was measured of each, and what could not be measured."""

    queries: dict[str, Any]
    kinds: Any
    measured: dict[str, _Query]
    skipped: list[Skipped]

    def round(self, sets: _Sets, flink: FlinkNexmark | None, options: Options) -> None:
        """Measure each query once: on Headgate, and on `flink` if given and able. A query without a rate on one, in
        `_TRIES` tries, is skipped."""
        for name, query in self.measured.items():
            for attempt in range(1, _TRIES + 1):
                options.say(f"nexmark: {name}")
                try:
                    query.add(*self._rates(name, sets, flink))
                    break
                except NoRate as error:
                    if attempt == _TRIES:
                        self.skipped.append(Skipped(name, str(error)))

    def _rates(self, name: str, sets: _Sets, flink: FlinkNexmark | None) -> tuple[Measured, Measured | None]:
        """Return the rate and the memory of a query on Headgate, and on `flink` if given and able. Raises NoRate."""
        kinds = self.kinds(name)
        files = sets.of(name, kinds)
        ours = _ours(self.queries[name], kinds, files, 0 if flink is None else flink.pid)
        return ours, None if flink is None or name in _ALONE else _flinks(name, kinds, files, flink)

    def lateness(self, options: Options) -> list[Figure]:
        """Return how late the results of windows are at half of the rate that is found with a source that makes its
        events. A query without results is skipped."""
        figures: list[Figure] = []
        for name in WINDOWED:
            options.say(f"nexmark: {name}, latency at 50 %")
            try:
                seconds, rounds = (25.0, 1) if options.quick else (45.0, ROUNDS)
                figures += self._latency(name, seconds, rounds)
            except HeadgateError as error:
                self.skipped.append(Skipped(f"{name}: latency", str(error)))
        return figures

    def _latency(self, name: str, seconds: float, rounds: int) -> Iterator[Figure]:
        """Find the rate of a query once, and measure the latency at half of it, round by round."""
        query, kinds = self.queries[name], self.kinds(name)
        many = 1 if "bids" in kinds else _RARE
        made = MADE[0] * many, MADE[1] * many
        found = sustained_rate(query, kinds, made, parallelism=PARALLELISM)
        late = [
            latencies(name, query, kinds, rate=round(found / 2), seconds=seconds, parallelism=PARALLELISM)
            for _ in range(rounds)
        ]
        yield Figure(f"{name}: rate found", "events/s", (found,))
        for percent in (50, 99):
            of_rounds = tuple(float(np.percentile(of_round, percent)) for of_round in late)
            yield Figure(f"{name}: p{percent} latency at 50 %", "ms", of_rounds)


def _queries() -> tuple[dict[str, Any], Any]:
    """Return the queries of the example by name, and the function that says what a query reads."""
    example = runpy.run_path(str(next(path for path in _EXAMPLES if path.exists())))
    return example["QUERIES"], example["kinds"]


def _ours(query: Any, kinds: list[str], sets: list[Files], other: int) -> Measured:
    """Return the rate of a query and the peak of the memory, without the process `other`. Raises NoRate."""
    with _peak([psutil.Process()], other) as peak:
        seconds = [_seconds(query, kinds, files) for files in _with_a_first(sets)][1:]
    return _rate(kinds, sets, seconds), peak[0]


def _flinks(name: str, kinds: list[str], sets: list[Files], flink: FlinkNexmark) -> Measured:
    with _peak([psutil.Process(flink.pid)], 0) as peak:
        seconds = [flink.seconds(name, files.folder) for files in _with_a_first(sets)][1:]
    return _rate(kinds, sets, seconds), peak[0]


def _with_a_first(sets: list[Files]) -> list[Files]:
    """Return the sets, and before them one whose time does not count: Flink may still collect the garbage of its last
    query."""
    return [sets[0], *sets]


def _seconds(query: Any, kinds: list[str], files: Files) -> float:
    """Return the seconds of a job, start-up included. Raises HeadgateError if it has not read all rows."""
    env = hg.StreamEnvironment(parallelism=PARALLELISM, config=hg.Config(**OPTIONS))
    watermark = hg.Watermark("date_time", out_of_orderness="4 s")
    streams = {kind: env.from_source(hg.sources.parquet(files.folder / kind), watermark=watermark) for kind in kinds}
    query(**streams).sink_to(hg.sinks.null())
    began = time.perf_counter()
    result = env.execute("nexmark")
    seconds = time.perf_counter() - began
    rows = sum(files.rows[kind] for kind in kinds)
    if result.rows_in != rows or result.late_rows:
        raise HeadgateError(f"{query.__name__} read {result.rows_in:,} rows of {rows:,}, {result.late_rows:,} late")
    return seconds


def _rate(kinds: list[str], sets: list[Files], seconds: list[float]) -> float:
    small, large = (sum(files.rows[kind] for kind in kinds) for files in sets)
    if seconds[1] <= seconds[0]:
        slower = f"{large:,} rows took {seconds[1]:.2f} s, and {small:,} took {seconds[0]:.2f} s"
        raise NoRate(f"{slower}; the machine is busy")
    return (large - small) / (seconds[1] - seconds[0]) / PARALLELISM


@contextmanager
def _peak(roots: list[psutil.Process], other: int) -> Iterator[list[float]]:
    """Sample the resident memory of processes and their children during the block. Afterwards, the list has the peak in
    MB.

    The process `other` and its children do not count.
    """
    peak, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.1):
            peak[0] = max(peak[0], sum(map(_resident, _tree(roots, other))) / 1e6)

    thread = threading.Thread(target=sample, name="memory")
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _tree(roots: list[psutil.Process], other: int) -> set[psutil.Process]:
    found: set[psutil.Process] = set(roots)
    with suppress(psutil.Error):
        for root in roots:
            found.update(root.children(recursive=True))
        if other:
            away = psutil.Process(other)
            found -= {away, *away.children(recursive=True)}
    return found


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _figures(measured: dict[str, _Query]) -> tuple[list[Figure], bool]:
    """Return the figures, and whether the targets are met."""
    figures, least = [], {}
    for name, query in measured.items():
        if not query.ours:
            continue
        figures.append(Figure(f"{name}: Headgate", "rows/s per core", tuple(query.ours)))
        figures.append(Figure(f"{name}: Headgate, peak memory", "MB", tuple(query.our_memory)))
        if query.flinks:
            ratio = Figure(f"{name}: ratio to Flink", "", ratios(query.ours, query.flinks))
            figures += [
                Figure(f"{name}: Flink SQL", "rows/s per core", tuple(query.flinks)),
                Figure(f"{name}: Flink SQL, peak memory", "MB", tuple(query.flinks_memory)),
                ratio,
            ]
            least[name] = median(ratio.values)
            net = query.net_ratio(measured["q0"]) if name in _OF_BIDS and "q0" in measured else None
            if net is not None:
                figures.append(Figure(f"{name}: ratio to Flink, net of q0", "", (net,)))
                least[name] = min(least[name], net)
    if not least:
        return figures, False
    mean = exp(sum(map(log, least.values())) / len(least))
    figures += [Figure("geometric mean of the ratios", "", (mean,)), Figure("least ratio", "", (min(least.values()),))]
    return figures, mean >= MEAN_TARGET and min(least.values()) >= LEAST_TARGET
