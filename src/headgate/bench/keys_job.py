"""The job of the case `keys`: the job of `keyed-sum`, with several kinds of keys and any number of keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import headgate as hg
from headgate.bench.keyed_job import keyed_environment
from headgate.bench.keyed_rows import keyed_rows, pair_keyed_rows, string_keyed_rows
from headgate.errors import HeadgateError

#: Seconds between two looks at the job's state. TaskManagers report just as often.
_POLL_INTERVAL = 0.25


@dataclass(frozen=True, slots=True)
class KeyKind:
    """A kind of key. `rows(start, n, keys)` makes n rows with `keys` different values in `columns`."""

    name: str
    rows: Callable[..., pa.RecordBatch]
    columns: tuple[str, ...]


KINDS = (
    KeyKind("int", keyed_rows, ("key",)),
    KeyKind("string", string_keyed_rows, ("key",)),
    KeyKind("two columns", pair_keyed_rows, ("area", "key")),
)


@dataclass(slots=True)
class KeyedRun:
    """The outcome of a run: its seconds, start-up included, and the size of its state when it was largest."""

    seconds: float = 0.0
    state_bytes: int = 0
    state_keys: int = 0

    @property
    def bytes_per_key(self) -> float:
        return self.state_bytes / max(self.state_keys, 1)


def run_keyed(kind: KeyKind, keys: int, rows: int) -> KeyedRun:
    """Run one-second sums and counts of `keys` keys over `rows` rows at full speed. Raises the job's error."""
    environment = keyed_environment()
    source = hg.sources.generate(partial(kind.rows, keys=keys), rows=rows, time="ts")
    stream = environment.from_source(source, watermark=hg.Watermark("ts")).key_by(*kind.columns)
    sums = stream.window(hg.tumble("1 s")).aggregate(total=hg.sum("value"), rows=hg.count())
    sums.sink_to(hg.sinks.null())
    run, began = KeyedRun(), time.perf_counter()
    job = environment.execute_async("keys")
    result = None
    while result is None:
        try:
            result = job.wait(_POLL_INTERVAL)
        except TimeoutError:
            _note_largest_state(job.metrics(), run)
    run.seconds = time.perf_counter() - began
    _note_largest_state(result.metrics, run)
    if result.rows_in != rows or not result.metrics["remote_bytes"]:
        raise HeadgateError(f"keys read {result.rows_in:,} rows of {rows:,}, or none of them crossed a socket")
    return run


def _note_largest_state(metrics: dict[str, Any], run: KeyedRun) -> None:
    for operator in metrics["operators"].values():
        if operator["state_bytes"] > run.state_bytes:
            run.state_bytes, run.state_keys = operator["state_bytes"], operator["state_keys"]
