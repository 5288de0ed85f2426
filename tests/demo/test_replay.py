"""The replay of a source in event time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headgate.connectors import built_in_sources as sources
from headgate.connectors.connector import ReaderContext
from headgate.demo.replay import Replay

FIRST = datetime(2013, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that a test moves. It starts when the job does."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def replayed(minutes: list[list[int]], clock: Clock, speedup: float = 60.0) -> Any:
    """Return a reader over batches of rows, whose times are given in minutes after the first event."""
    times = [[FIRST + timedelta(minutes=minute) for minute in part] for part in minutes]
    batches = [pa.RecordBatch.from_pydict({"t": pa.array(part, pa.timestamp("us", "UTC"))}) for part in times]
    source = Replay(sources.iterable(batches), "t", FIRST, speedup)
    source.prepare()
    return source.reader(
        ReaderContext(
            job="job", operator="source", subtask=0, parallelism=1, wake=lambda: None, started_at=1000.0, clock=clock
        )
    )


def rows(batch: pa.RecordBatch | None) -> list[int]:
    """Return the times of the rows, in minutes after the first event."""
    return [] if batch is None else [(time - FIRST) // timedelta(minutes=1) for time in batch.column("t").to_pylist()]


def test_a_row_comes_when_it_is_due() -> None:
    clock = Clock()
    reader = replayed([[0, 0, 1, 2, 5]], clock)
    assert rows(reader.read()) == [0, 0]
    assert reader.read() is None
    assert reader.next_read() == 1001.0  # a minute takes a second
    clock.now = 1002.5
    assert rows(reader.read()) == [1, 2]
    clock.now = reader.next_read()
    assert clock.now == 1005.0
    assert rows(reader.read()) == [5]


def test_every_row_comes_once_and_then_the_reader_ends() -> None:
    clock = Clock()
    reader = replayed([[0, 3], [4, 4, 9]], clock)
    seen: list[int] = []
    for _ in range(100):
        seen += rows(reader.read())
        if reader.finished:
            break
        clock.now = max(clock.now, reader.next_read() or 0.0)
    assert seen == [0, 3, 4, 4, 9]
    assert clock.now == pytest.approx(1009.0, abs=0.1)


def test_rows_that_are_due_soon_come_in_one_batch() -> None:
    clock = Clock()
    reader = replayed([[1] * 3 + [2] * 3], clock, speedup=60_000.0)
    assert reader.read() is None
    assert reader.next_read() == pytest.approx(1000.02)
    clock.now = reader.next_read()
    assert len(rows(reader.read())) == 6


def test_a_delayed_reader_lags_and_catches_up() -> None:
    clock = Clock()
    reader = replayed([[0, 1, 2], [3, 60]], clock)
    assert rows(reader.read()) == [0]
    assert reader.lag() == 0.0
    clock.now = 1030.0
    assert reader.lag() == 29.0, "the row of the first minute was due at 1001"
    assert rows(reader.read()) == [1, 2]
    assert reader.lag() == 28.0, "as far as the reader knows: it has not read the second batch"
    assert rows(reader.read()) == [3]
    assert reader.lag() == 0.0
    assert reader.next_read() == 1060.0
    clock.now = 1070.0
    assert rows(reader.read()) == [60]
    assert reader.lag() == 10.0
    assert reader.read() is None
    assert reader.finished
    assert reader.lag() == 0.0
