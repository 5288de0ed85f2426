"""Random pipelines that branch: several sources, outputs and sinks, unions and side outputs, and what must come out.

A pipeline is drawn from a seed, so another process can build the same. Each row has a number; a stream is known by how
often it has each number. That stays so whatever exchanges the rows pass, and is what the sinks are compared with.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import headgate as hg
from headgate.connectors.connector import Source

KEYS = 50
#: Event time from row to row, microseconds, and how many rows a window has.
STEP, PER_WINDOW = 1000, 700
SCHEMA = pa.schema(
    {"n": pa.int64(), "key": pa.int64(), "pad": pa.string(), "stamp": pa.int64(), "at": pa.timestamp("us", "UTC")}
)
#: How rows are partitioned without regard to their key.
SPREADS: dict[str, Callable[[hg.DataStream], hg.DataStream]] = {
    "rebalance": lambda stream: stream.rebalance(),
    "load_aware": lambda stream: stream.rebalance(load_aware=True),
    "shuffle": lambda stream: stream.shuffle(),
    "rescale": lambda stream: stream.rescale(),
    "to_one": lambda stream: stream.to_one(),
    "broadcast": lambda stream: stream.broadcast(),
}
#: The rows of all streams, in rows of the sources, are about as many as this at the most.
_MOST = 8


@dataclass(frozen=True)
class Step:
    """Makes a stream of others. `how` says more about it: a spread, or a function's rhythm."""

    kind: str
    inputs: tuple[int, ...] = ()
    how: Any = None


@dataclass(frozen=True)
class Flow:
    """A stream. `copies`: how often each row is there. `in_order`: rows of one subtask of a source that have one key
    come as they were read; `is_stamped`: that was so where they got their stamps."""

    step: Step
    copies: np.ndarray
    in_order: bool = False
    is_stamped: bool = False


class RandomPipeline:
    """For `rows` rows and an environment of that parallelism. `stalls` is False for functions that take no time."""

    def __init__(self, seed: int, rows: int, parallelism: int, *, stalls: bool = True) -> None:
        self._chance = random.Random(seed)
        self._rows, self._parallelism, self._stalls = rows, parallelism, stalls
        self._batch_rows = self._chance.choice([16, 200, 2000])
        self._pad = self._chance.choice([0, 10, 300])
        self.flows: list[Flow] = []
        self.sinks: list[tuple[str, int]] = []
        self._of_source = rows // self._chance.choice([1, 1, 2])
        for first in range(0, rows, self._of_source):
            copies = np.zeros(rows, np.int64)
            copies[first : first + self._of_source] = 1
            self.flows.append(Flow(Step("source", (), first), copies, in_order=True))
        self._branch()
        for _ in range(self._chance.randint(1, 5)):
            self._draw(self._any_flow())
        self._end()

    def __repr__(self) -> str:
        steps = [
            f"{at}: {flow.step.kind}{flow.step.inputs} {flow.step.how or ''}" for at, flow in enumerate(self.flows)
        ]
        return "; ".join([f"{self._rows} rows", *steps, f"sinks {self.sinks}"])

    # --- drawing

    def _branch(self) -> None:
        """What every pipeline has: all sources together, and that stream read by a keyed exchange and by another."""
        together = 0
        if len(self.flows) > 1:
            together = self._add("union", tuple(range(len(self.flows))), in_order=True)
        self._keyed(together)
        self._spread(together)

    def _draw(self, at: int) -> None:
        draws: list[Callable[[int], object]] = [self._keyed, self._spread, self._split, self._split, self._union]
        self._chance.choice(draws)(at)

    def _any_flow(self) -> int:
        """Draw a flow. Flows that nothing reads yet are likelier; a flow that is read twice has two outputs."""
        unread = [at for at in range(len(self.flows)) if not self._is_read(at)]
        return self._chance.choice(unread if self._chance.random() < 0.6 else range(len(self.flows)))

    def _is_read(self, at: int) -> bool:
        return any(at in flow.step.inputs for flow in self.flows)

    def _add(self, kind: str, inputs: tuple[int, ...], how: Any = None, factor: Any = 1, **law: bool) -> int:
        copies = sum(self.flows[at].copies for at in inputs) * factor
        self.flows.append(Flow(Step(kind, inputs, how), copies, **law))
        return len(self.flows) - 1

    def _has_room(self, more: int) -> bool:
        return sum(int(flow.copies.sum()) for flow in self.flows) + more <= _MOST * self._rows

    def _keyed(self, at: int) -> int:
        kind, flow = self._chance.choice(["key_by", "key_by", "partition_by"]), self.flows[at]
        return self._add(kind, (at,), self._rhythm(), in_order=flow.in_order, is_stamped=flow.in_order)

    def _spread(self, at: int) -> int:
        flow, how = self.flows[at], self._chance.choice(list(SPREADS))
        if how == "broadcast" and not self._has_room(int(flow.copies.sum()) * self._parallelism):
            how = "rebalance"
        factor = self._parallelism if how == "broadcast" else 1
        return self._add("spread", (at,), (how, self._rhythm()), factor, is_stamped=flow.is_stamped)

    def _split(self, at: int) -> None:
        """A function with a side output: what goes aside, and what does not."""
        flow, number = self.flows[at], np.arange(self._rows)
        law = {"in_order": flow.in_order, "is_stamped": flow.is_stamped}
        one_in = self._chance.choice([2, 5])
        main = self._add("split", (at,), one_in, number % one_in != 0, **law)
        self.flows.append(Flow(Step("aside", (main,)), flow.copies * (number % one_in == 0), **law))

    def _union(self, at: int) -> None:
        others = [other for other in range(len(self.flows)) if other != at]
        other = self._chance.choice(others)
        if self._has_room(int(self.flows[at].copies.sum() + self.flows[other].copies.sum())):
            self._add("union", (at, other))

    def _rhythm(self) -> tuple[int, float]:
        """A function stands still for so long at each so-manieth batch."""
        return self._chance.choice([3, 17, 1000]), self._chance.choice([0.001, 0.01, 0.05])

    def _end(self) -> None:
        for at in range(len(self.flows)):
            if not self._is_read(at) or self._chance.random() < 0.15:
                kinds = ["rows"] if self.flows[at].is_stamped else ["rows", "csv", "sums", "windows"]
                self.sinks.append((self._chance.choice(kinds), at))

    # --- building

    def build(self, env: hg.StreamEnvironment, folder: Path, around: Callable[[Source], Source] | None = None) -> None:
        """To sinks below `folder`/out. `around` is put around each source."""
        streams: list[hg.DataStream] = []
        for flow in self.flows:
            streams.append(self._stream(env, flow.step, streams, around))
        for number, (kind, at) in enumerate(self.sinks):
            stream, path = streams[at], folder / "out" / str(number)
            sink = hg.sinks.csv(path) if kind == "csv" else hg.sinks.parquet(path)
            _summed(stream, kind).sink_to(sink)

    def _stream(
        self,
        env: hg.StreamEnvironment,
        step: Step,
        streams: list[hg.DataStream],
        around: Callable[[Source], Source] | None,
    ) -> hg.DataStream:
        if step.kind == "source":
            made = hg.sources.generate(_numbers(self._pad, step.how), rows=self._of_source, batch_rows=self._batch_rows)
            return env.from_source(around(made) if around is not None else made, watermark=hg.Watermark("at"))
        first, *others = (streams[at] for at in step.inputs)
        match step.kind:
            case "union":
                return first.union(*others)
            case "key_by":
                return self._worked(first.key_by("key"), step.how, stamp=True)
            case "partition_by":
                return self._worked(first.partition_by(_by_key), step.how, stamp=True)
            case "spread":
                return self._worked(SPREADS[step.how[0]](first), step.how[1], stamp=False)
            case "split":
                return first.map_batches(_splitting(step.how), schema=SCHEMA, side_outputs={"aside": SCHEMA})
            case _:
                return first.side_output("aside")

    def _worked(self, stream: hg.DataStream, rhythm: tuple[int, float], *, stamp: bool) -> hg.DataStream:
        most = self._rows // 1000 if self._stalls else 0
        return stream.map_batches(_working(rhythm, most, stamp), schema=SCHEMA)

    # --- what comes out

    def check(self, folder: Path, *, exactly_once: bool = True) -> None:
        """All rows are in each sink as often as they should, or (at least once) no row is missing; those that were to
        be in order are, if nothing failed on the way. Raises AssertionError."""
        for number, (kind, at) in enumerate(self.sinks):
            path, flow = folder / "out" / str(number), self.flows[at]
            if exactly_once:
                assert not list(path.glob("_*")), f"hidden files are left in {path}"
            table = ds.dataset(path, format="csv" if kind == "csv" else "parquet").to_table()
            what, expected = self._counted(kind, table), self._expected(kind, flow.copies)
            if exactly_once:
                assert what == expected, f"sink {number} of {self!r}: {_difference(what, expected)}"
            missing = {key: count for key, count in expected.items() if what.get(key, (0,))[0] < count[0]}
            assert not missing, f"sink {number} of {self!r} lacks {dict(itertools.islice(missing.items(), 3))}"

    def check_nothing_doubled(self, folder: Path) -> None:
        """Of a job that failed: what is visible is part of what should be. Raises AssertionError."""
        for number, (kind, at) in enumerate(self.sinks):
            files = [path for path in (folder / "out" / str(number)).glob("part-*") if path.stat().st_size]
            if files:
                table = ds.dataset(files, format="csv" if kind == "csv" else "parquet").to_table()
                what, expected = self._counted(kind, table), self._expected(kind, self.flows[at].copies)
                doubled = {key: found for key, found in what.items() if found[0] > expected.get(key, (0,))[0]}
                assert not doubled, f"sink {number} of {self!r}: {_difference(doubled, expected)}"

    def check_order(self, folder: Path) -> None:
        """Rows of one subtask of a source that have one key were stamped in order. Raises AssertionError."""
        for number, (kind, at) in enumerate(self.sinks):
            if kind == "rows" and self.flows[at].is_stamped:
                table = ds.dataset(folder / "out" / str(number), format="parquet").to_table()
                n, key, stamp = (table.column(name).to_numpy() for name in ("n", "key", "stamp"))
                blocks = n % self._of_source // self._batch_rows  # they go in turn
                source = n // self._of_source * self._parallelism + blocks % self._parallelism
                order = np.lexsort((n, stamp, key, source))
                same = (np.diff(key[order]) == 0) & (np.diff(source[order]) == 0) & (np.diff(n[order]) != 0)
                assert np.all(np.diff(n[order])[same] > 0), f"sink {number} of {self!r}: reordered"

    def _counted(self, kind: str, table: pa.Table) -> dict[Any, tuple[int, int]]:
        """By row, key or window how many rows there are, and the sum of their numbers."""
        if kind in ("rows", "csv"):
            n = table.column("n").to_numpy()
            assert np.array_equal(table.column("key").to_numpy(), _key_of(n)), "damaged"
            lengths = [len(pad or "") for pad in table.column("pad").to_pylist()]
            assert np.array_equal(lengths, n * 7 % (self._pad + 1)), "damaged"
            return {int(i): (int(c), int(i * c)) for i, c in zip(*np.unique(n, return_counts=True), strict=True)}
        rows, totals = table.column("rows").to_pylist(), table.column("total").to_pylist()
        keys = table.column("key").to_pylist()
        if kind == "windows":
            begins = table.column("window_start").cast(pa.int64()).to_numpy() // (STEP * PER_WINDOW)
            keys = list(zip(keys, begins.tolist(), strict=True))
        found: dict[Any, tuple[int, int]] = {}
        for key, count, total in zip(keys, rows, totals, strict=True):
            before = found.get(key, (0, 0))
            found[key] = before[0] + count, before[1] + total
        return found

    def _expected(self, kind: str, copies: np.ndarray) -> dict[Any, tuple[int, int]]:
        found: dict[Any, tuple[int, int]] = {}
        for n in np.flatnonzero(copies).tolist():
            key = n if kind in ("rows", "csv") else int(_key_of(n))
            if kind == "windows":
                key = (key, n // PER_WINDOW)  # type: ignore[assignment]
            count = int(copies[n])
            before = found.get(key, (0, 0))
            found[key] = before[0] + count, before[1] + n * count
        return found


def _difference(what: dict[Any, Any], expected: dict[Any, Any]) -> dict[Any, Any]:
    """The first few that differ: what is there, and what should be."""
    keys = [key for key in {**what, **expected} if what.get(key) != expected.get(key)]
    return {key: (what.get(key), expected.get(key)) for key in keys[:3]}


def _key_of(n: Any) -> Any:
    return n * 2654435761 % KEYS


def _summed(stream: hg.DataStream, kind: str) -> hg.DataStream:
    totals = {"rows": hg.count(), "total": hg.sum("n")}
    if kind == "sums":
        return stream.key_by("key").aggregate(final=True, **totals)
    if kind == "windows":
        window = hg.tumble(STEP * PER_WINDOW / 1e6)
        return stream.key_by("key").window(window).aggregate(**totals)
    return stream


# What runs in tasks, which may be in other processes.


def _numbers(pad: int, first: int) -> Callable[[int, int], pa.RecordBatch]:
    """Row i has number `first` + i, a key made of it, and up to `pad` bytes that depend on it."""
    schema, step, keys = SCHEMA, STEP, KEYS

    def made(start: int, rows: int) -> pa.RecordBatch:
        n = np.arange(first + start, first + start + rows)
        padding = ["x" * (int(number) * 7 % (pad + 1)) for number in n]
        columns = [pa.array(n), pa.array(n * 2654435761 % keys), pa.array(padding, pa.string())]
        columns += [pa.array(np.zeros(rows, np.int64)), pa.array(n * step, schema.field("at").type)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return made


def _by_key(batch: pa.RecordBatch, subtasks: int) -> Any:
    return batch.column("key").to_numpy() % subtasks


def _splitting(one_in: int) -> Callable[[pa.RecordBatch], list[Any]]:
    def split(batch: pa.RecordBatch) -> list[Any]:
        aside = pa.array(batch.column("n").to_numpy() % one_in == 0)
        rest = pa.array(batch.column("n").to_numpy() % one_in != 0)
        return [batch.filter(rest), hg.SideOutput("aside", batch.filter(aside))]

    return split


def _working(rhythm: tuple[int, float], most: int, stamp: bool) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Stands still now and then, in its own rhythm, `most` times; with `stamp` it says when each row came: one subtask
    has all rows of a key, so its clock tells their order."""
    every, pause = rhythm
    calls = itertools.count(1)

    def work(batch: pa.RecordBatch) -> pa.RecordBatch:
        call = next(calls)
        if call % every == 0 and call <= every * most:
            time.sleep(pause)  # the load itself: a user's function that takes its time
        if not stamp:
            return batch
        first = time.monotonic_ns()
        stamps = pa.array(np.arange(first, first + batch.num_rows))
        return batch.set_column(batch.schema.get_field_index("stamp"), "stamp", stamps)

    return work
