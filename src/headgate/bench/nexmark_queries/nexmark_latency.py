"""How late the results of windows are: from the time at which a window's last row was due to the row's arrival.

The sources are paced, so an event's number fixes when it is due. The first rows of a source show when its clock began.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.connectors.for_each_batch_sink import BatchInfo
from headgate.connectors.nexmark.numbered_events import FIRST_MS
from headgate.errors import HeadgateError

#: The queries with results of windows.
WINDOWED: Final = ("q5", "q7", "q8")
_WINDOW: Final = 10_000_000
#: The events of a second of event time in a job at full speed.
_FULL_SPEED: Final = 100_000
#: The suffixes of the files with sources' and with sinks' times.
_BEGUN, _ARRIVED = "begun", "arrived"


def _ends(name: str, batch: pa.RecordBatch) -> Any:
    """Return the end of each result's window, in microseconds of event time."""

    def times(column: str) -> Any:
        return batch.column(column).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()

    if name == "q5":
        return times("window_end")
    return (times("date_time") // _WINDOW + 1) * _WINDOW if name == "q7" else times("window_start") + _WINDOW


@dataclass(frozen=True, slots=True)
class _Begun:
    """Notes for each batch of a source when the clock of its events began, in microseconds since the epoch."""

    folder: Path

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            last = batch.column("date_time")[batch.num_rows - 1].value
            _note(self.folder, _BEGUN, np.array([_now() - last]))
        return batch


@dataclass(frozen=True, slots=True)
class _Arrived:
    """Notes for each result when it arrived, minus the end of its window, in microseconds.

    Windows that end after `until` are left out: they do not end by an event, but with the input.
    """

    folder: Path
    name: str
    until: int

    def __call__(self, batch: pa.RecordBatch, _info: BatchInfo) -> None:
        ends = _ends(self.name, batch)
        _note(self.folder, _ARRIVED, _now() - ends[ends < self.until])


def _now() -> int:
    return round(time.time() * 1e6)


def _note(folder: Path, suffix: str, times: Any) -> None:
    with (folder / f"{threading.get_native_id()}.{suffix}").open("ab") as file:
        file.write(times.astype(np.int64).tobytes())


def _noted(folder: Path, suffix: str) -> Any:
    parts = [np.fromfile(path, np.int64) for path in folder.glob(f"*.{suffix}")]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def events_per_s(
    query: Callable[..., hg.DataStream], kinds: Sequence[str], events: tuple[int, int], *, parallelism: int,
    density: int = _FULL_SPEED,
) -> float:  # fmt: skip
    """Return how many events a second a query takes at full speed from sources that make them. A second of event time
    has `density` events.

    The start does not count: the result is the difference of a small and a large number of `events`, divided by the
    difference of their times. Raises HeadgateError if there is none.
    """
    took = []
    for count in events:
        environment = hg.StreamEnvironment(parallelism=parallelism)
        streams = {kind: _made(environment, kind, count, density, paced=False) for kind in kinds}
        query(**streams).sink_to(hg.sinks.null())
        began = time.perf_counter()
        environment.execute("nexmark rate")
        took.append(time.perf_counter() - began)
    if took[1] <= took[0]:
        raise HeadgateError(f"{events[1]:,} events took no longer than {events[0]:,}; the machine is busy")
    return (events[1] - events[0]) / (took[1] - took[0])


def sustained_rate(
    query: Callable[..., hg.DataStream], kinds: Sequence[str], events: tuple[int, int], *, parallelism: int
) -> float:
    """Return how many events a second a query takes if its windows are as large as in a paced job.

    Larger windows cost more for each event. So the rate of `events_per_s`, which comes first, fixes the windows of a
    second measurement, of one window and of three. They are a little too large: its rate is lower than the first.
    """
    density = round(events_per_s(query, kinds, events, parallelism=parallelism))
    window = density * _WINDOW // 1_000_000
    return events_per_s(query, kinds, (window, 3 * window), parallelism=parallelism, density=density)


def latencies(
    name: str, query: Callable[..., hg.DataStream], kinds: Sequence[str], *, rate: int, seconds: float, parallelism: int
) -> Any:
    """Return the latency of each result of a query in milliseconds, at `rate` events per second for `seconds`.

    Raises HeadgateError if the query has no result.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as root:
        folder = Path(root)
        environment = hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(buffer_timeout="adaptive"))
        streams = {kind: _paced(environment, kind, rate, seconds, folder) for kind in kinds}
        until = FIRST_MS * 1000 + round(seconds * 1e6)
        query(**streams).sink_to(hg.sinks.for_each_batch(_Arrived(folder, name, until)))
        environment.execute("nexmark latency")
        begun, arrived = _noted(folder, _BEGUN), _noted(folder, _ARRIVED)
    if not len(arrived):
        raise HeadgateError(f"{name} has no result in {seconds:g} s")
    return (arrived - begun.min()) / 1000


def _paced(environment: hg.StreamEnvironment, kind: Any, rate: int, seconds: float, folder: Path) -> hg.DataStream:
    rows = _made(environment, kind, round(rate * seconds), rate, paced=True)
    return rows.map_batches(_Begun(folder), schema=rows.schema)


def _made(environment: hg.StreamEnvironment, kind: Any, events: int, rate: int, *, paced: bool) -> hg.DataStream:
    source = hg.sources.nexmark(kind, events=events, rate=rate, paced=paced)
    return environment.from_source(source, watermark=hg.Watermark("date_time"))
