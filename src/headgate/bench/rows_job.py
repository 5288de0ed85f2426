"""The tasks of the case `rows`: functions on rows and functions with state, alone and in a whole job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.bench.keyed_rows import string_keyed_rows
from headgate.errors import HeadgateError
from headgate.operators.operator import Operator, OperatorContext

KEYS: Final = 1000
#: The keys of the tasks with many keys, which are strings.
MANY_KEYS: Final = 1_000_000
#: The rows of a batch for an operator alone: as many as a source of Headgate emits at once.
BATCH: Final = 8192
#: The pause after which a session ends. A key has a row about each second.
_PAUSE: Final = timedelta(seconds=10)
_MULTIPLIER: Final = 2654435761

ROWS: Final = pa.schema([("key", pa.int64()), ("value", pa.float64()), ("name", pa.string())])
TIMED_ROWS: Final = ROWS.append(pa.field("at", pa.timestamp("us", "UTC")))
TOTALS: Final = pa.schema([("key", pa.int64()), ("total", pa.float64())])
SESSIONS: Final = pa.schema([("key", pa.int64()), ("rows", pa.int64()), ("total", pa.float64())])
STRING_TOTALS: Final = pa.schema([("key", pa.string()), ("total", pa.float64())])
_NAMES: Final = pa.array([f"name {key}" for key in range(KEYS)])


def numbered_rows(start: int, n: int, *, timed: bool) -> pa.RecordBatch:
    """Return rows with an integer, a float and a string, and with a time if `timed`. Row i is always the same."""
    number = np.arange(start, start + n, dtype=np.uint64)
    keys = (number * np.uint64(_MULTIPLIER) % np.uint64(1 << 32) % np.uint64(KEYS)).astype(np.int64)
    names = _NAMES.take(pa.array(keys))
    columns = [pa.array(keys), pa.array((number % np.uint64(1000)).astype(np.float64)), names]
    if timed:
        columns.append(pa.array(number.astype(np.int64) * 1000).cast(TIMED_ROWS.field("at").type))
    return pa.RecordBatch.from_arrays(columns, schema=TIMED_ROWS if timed else ROWS)


def keys_per_row() -> float:
    """Return the number of different keys in a batch, divided by its number of rows."""
    return len(numbered_rows(0, BATCH, timed=False)["key"].unique()) / BATCH


def changed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "value": row["value"] * 2.0}


def changed_in_list(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [changed(row)]


class RowSum(hg.KeyedProcessFunction):
    """Emit, for each row, the sum of the key's values so far."""

    total = hg.ValueState(pa.float64())

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        total = self.total.value(0.0) + row["value"]
        self.total.update(total)
        return {"key": row["key"], "total": total}


class KeySum(hg.KeyedProcessFunction):
    """Emit, for each key of a batch, the sum of the key's values so far."""

    total = hg.ValueState(pa.float64())

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Any:
        total = self.total.value(0.0) + float(batch["value"].to_numpy().sum())
        self.total.update(total)
        return {"key": ctx.key[0], "total": total}


class Session(hg.KeyedProcessFunction):
    """Collect the values of a key, and emit their number and sum after a pause, or when the times start again."""

    values = hg.ListState(pa.float64())
    last = hg.ValueState(TIMED_ROWS.field("at").type)

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        last, ended = self.last.value(), None
        if last is not None and not timedelta() <= row["at"] - last < _PAUSE:
            ended = {"key": row["key"], "rows": len(self.values), "total": sum(self.values)}
            self.values.clear()
        self.last.update(row["at"])
        self.values.add(row["value"])
        return ended


class BatchSum(hg.KeyedBatchFunction):
    """Emit, for each row, the sum of the key's values so far."""

    total = hg.ColumnState(pa.float64())

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        totals = keys.running_sum(batch["value"], before=self.total.values())
        self.total.update(totals[keys.last])
        return pa.RecordBatch.from_arrays([batch["key"], pa.array(totals)], names=["key", "total"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTask:
    """A task. `peer` is the task of Bytewax with the same result, or "", and `timed` says whether the rows have a time.

    `rate` is the rows/s to expect, and `add` adds the task's operator to a stream. `make(start, n)` makes rows; without
    it they are those of `numbered_rows`. The operator alone gets `batches` different batches again and again.
    """

    name: str
    peer: str
    timed: bool
    rate: int
    add: Callable[[hg.DataStream], hg.DataStream]
    make: Callable[[int, int], pa.RecordBatch] | None = None
    batches: int = 10

    def alone(self, rows: int) -> float:
        """Return the seconds of processor time that the operator alone takes for about `rows` rows.

        It has seen all their keys before.
        """
        operator = self._operator()
        batches = [self._rows(begin, BATCH) for begin in range(0, BATCH * self.batches, BATCH)]
        for batch in batches:
            operator.process(batch)
        began = time.process_time()
        for number in range(rows // BATCH):
            operator.process(batches[number % self.batches])
        return time.process_time() - began

    @property
    def _rows(self) -> Callable[[int, int], pa.RecordBatch]:
        return self.make or partial(numbered_rows, timed=self.timed)

    def _operator(self) -> Operator:
        """Return the operator that the plan of a job would have, opened, with an output that drops rows."""
        stream = self.add(self._stream(hg.StreamEnvironment(), 0))
        factory = stream._rows.graph[stream._rows.last(self.name)].operator
        assert factory is not None
        operator = factory()
        operator.output = _Dropped()
        operator.open(OperatorContext("rows", self.name, 0, 1))
        return operator

    def _stream(self, environment: hg.StreamEnvironment, rows: int) -> hg.DataStream:
        return environment.from_source(hg.sources.generate(self._rows, rows=rows))

    def in_a_job(self, rows: int) -> float:
        """Run a job with parallelism 1 on `rows` rows, and return its processor time in seconds, start-up included.

        All threads of the job are in this process. Raises the job's error, and HeadgateError if the job read another
        number of rows.
        """
        environment = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        self.add(self._stream(environment, rows)).sink_to(hg.sinks.null())
        began = time.process_time()
        result = environment.execute("rows")
        seconds = time.process_time() - began
        if result.rows_in != rows:
            raise HeadgateError(f"rows read {result.rows_in:,} rows of {rows:,}")
        return seconds


class _Dropped:
    """The output of an operator alone."""

    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


def _with_state(function: Any, schema: pa.Schema = TOTALS) -> Callable[[hg.DataStream], hg.DataStream]:
    return lambda rows: rows.key_by("key").process(function, schema=schema)


TASKS: Final = (
    RowTask(name="map", peer="map", timed=True, rate=500_000,
         add=lambda rows: rows.map(changed, schema=TIMED_ROWS)),
    RowTask(name="map without a time", peer="map", timed=False, rate=1_000_000,
         add=lambda rows: rows.map(changed, schema=ROWS)),
    RowTask(name="flat_map", peer="flat_map", timed=True, rate=500_000,
         add=lambda rows: rows.flat_map(changed_in_list, schema=TIMED_ROWS)),
    RowTask(name="flat_map without a time", peer="flat_map", timed=False, rate=1_000_000,
         add=lambda rows: rows.flat_map(changed_in_list, schema=ROWS)),
    RowTask(name="process_element", peer="stateful_map", timed=True, rate=400_000, add=_with_state(RowSum())),
    RowTask(name="process", peer="stateful_map", timed=True, rate=150_000, add=_with_state(KeySum())),
    RowTask(name="session by hand", peer="", timed=True, rate=200_000, add=_with_state(Session(), SESSIONS)),
    RowTask(name="vectorised", peer="stateful_map", timed=True, rate=6_000_000, add=_with_state(BatchSum())),
    RowTask(name="vectorised, a million strings", peer="", timed=False, rate=3_000_000,
         add=_with_state(BatchSum(), STRING_TOTALS), make=partial(string_keyed_rows, keys=MANY_KEYS), batches=512),
)  # fmt: skip
