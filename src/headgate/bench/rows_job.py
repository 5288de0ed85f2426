"""The tasks of the case `rows`: functions on rows and functions with state, alone and in a whole job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.errors import HeadgateError
from headgate.operators.operator import Operator, OperatorContext

KEYS: Final = 1000
#: The rows of a batch for an operator alone: as many as a source of Headgate emits at once.
BATCH: Final = 8192
_BATCHES: Final = 10
_MULTIPLIER: Final = 2654435761

ROWS: Final = pa.schema([("key", pa.int64()), ("value", pa.float64()), ("name", pa.string())])
TIMED_ROWS: Final = ROWS.append(pa.field("at", pa.timestamp("us", "UTC")))
TOTALS: Final = pa.schema([("key", pa.int64()), ("total", pa.float64())])
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


class BatchSum(hg.KeyedBatchFunction):
    """Emit, for each row, the sum of the key's values so far."""

    total = hg.ColumnState(pa.float64())

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        totals = keys.running_sum(batch["value"], before=self.total.values())
        self.total.update(totals[keys.last])
        return pa.RecordBatch.from_arrays([batch["key"], pa.array(totals)], schema=TOTALS)


@dataclass(frozen=True, slots=True)
class RowTask:
    """A task. `peer` is the task of Bytewax with the same result, and `timed` says whether the rows have a time.

    `rate` is the rows/s to expect, and `add` adds the task's operator to a stream.
    """

    name: str
    peer: str
    timed: bool
    rate: int
    add: Callable[[hg.DataStream], hg.DataStream]

    def alone(self, rows: int) -> float:
        """Return the seconds of processor time that the operator alone takes for about `rows` rows."""
        operator = self._operator()
        batches = [numbered_rows(begin, BATCH, timed=self.timed) for begin in range(0, BATCH * _BATCHES, BATCH)]
        for batch in batches:
            operator.process(batch)
        began = time.process_time()
        for number in range(rows // BATCH):
            operator.process(batches[number % _BATCHES])
        return time.process_time() - began

    def _operator(self) -> Operator:
        """Return the operator that the plan of a job would have, opened, with an output that drops rows."""
        stream = self.add(_stream(hg.StreamEnvironment(), 0, self.timed))
        factory = stream._rows.graph[stream._rows.last(self.name)].operator
        assert factory is not None
        operator = factory()
        operator.output = _Dropped()
        operator.open(OperatorContext("rows", self.name, 0, 1))
        return operator

    def in_a_job(self, rows: int) -> float:
        """Run a job with parallelism 1 on `rows` rows, and return its processor time in seconds, start-up included.

        All threads of the job are in this process. Raises the job's error, and HeadgateError if the job read another
        number of rows.
        """
        environment = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        self.add(_stream(environment, rows, self.timed)).sink_to(hg.sinks.null())
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


def _stream(environment: hg.StreamEnvironment, rows: int, timed: bool) -> hg.DataStream:
    return environment.from_source(hg.sources.generate(partial(numbered_rows, timed=timed), rows=rows))


def _with_state(function: Any) -> Callable[[hg.DataStream], hg.DataStream]:
    return lambda rows: rows.key_by("key").process(function, schema=TOTALS)


TASKS: Final = (
    RowTask("map", "map", True, 500_000, lambda rows: rows.map(changed, schema=TIMED_ROWS)),
    RowTask("map without a time", "map", False, 1_000_000, lambda rows: rows.map(changed, schema=ROWS)),
    RowTask("flat_map", "flat_map", True, 500_000, lambda rows: rows.flat_map(changed_in_list, schema=TIMED_ROWS)),
    RowTask("flat_map without a time", "flat_map", False, 1_000_000,
         lambda rows: rows.flat_map(changed_in_list, schema=ROWS)),
    RowTask("process_element", "stateful_map", True, 400_000, _with_state(RowSum())),
    RowTask("process", "stateful_map", True, 150_000, _with_state(KeySum())),
    RowTask("vectorised", "stateful_map", True, 6_000_000, _with_state(BatchSum())),
)  # fmt: skip
