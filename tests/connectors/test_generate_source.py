"""The source of generated rows: the same rows for every parallelism, on time by a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headgate as hg
from headgate.connectors.connector import ReaderContext, SourceReader
from headgate.connectors.generate_source import _DueTimes

Read = Callable[..., list[pa.Table]]


def squares(start: int, n: int) -> pa.RecordBatch:
    rows = np.arange(start, start + n)
    return pa.record_batch({"i": rows, "square": rows * rows})


class Clock:
    """A wall clock that the test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def reader(
        self,
        source: Any,
        subtask: int = 0,
        parallelism: int = 1,
        started_at: float = 1000.0,
        positions: Sequence[Any] | None = None,
    ) -> SourceReader:
        context = ReaderContext(
            job="job",
            operator="source",
            subtask=subtask,
            parallelism=parallelism,
            wake=lambda: None,
            started_at=started_at,
            clock=self,
            positions=positions,
        )
        return source.reader(context)  # type: ignore[no-any-return]


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 4))
def test_every_row_comes_once_whatever_the_blocks(rows: int, batch_rows: int, parallelism: int) -> None:
    source = hg.sources.generate(squares, rows=rows, batch_rows=batch_rows)
    seen = []
    for subtask in range(parallelism):
        reader = Clock(0.0).reader(source, subtask, parallelism)
        while (batch := reader.read()) is not None:
            assert batch.column("i")[0].as_py() // batch_rows % parallelism == subtask
            seen += batch.column("i").to_pylist()
        assert reader.finished
    assert sorted(seen) == list(range(rows))


@pytest.mark.parametrize("time", [None, "ts"])
def test_metadata_of_the_functions_batches_is_dropped(time: str | None) -> None:
    def noted(start: int, n: int) -> pa.RecordBatch:
        return squares(start, n).replace_schema_metadata({"start": str(start)})

    source = hg.sources.generate(noted, rows=4, time=time, batch_rows=2)
    reader = Clock(0.0).reader(source)
    batches = [reader.read(), reader.read()]
    assert all(batch is not None and batch.schema.equals(source.schema, check_metadata=True) for batch in batches)


def test_schema_and_bounds() -> None:
    source = hg.sources.generate(squares, time="ts")
    assert source.schema == pa.schema({"i": pa.int64(), "square": pa.int64(), "ts": pa.timestamp("us", "UTC")})
    assert not source.bounded
    assert hg.sources.generate(squares, rows=5).bounded
    calls = []
    fn = lambda start, n: calls.append((start, n)) or squares(start, n)  # noqa: E731
    schema = squares(0, 0).schema
    assert hg.sources.generate(fn, schema=schema).schema == schema
    assert calls == []
    assert Clock(0.0).reader(hg.sources.generate(squares, rows=8, batch_rows=8), 1, 2).finished


@pytest.mark.parametrize(
    ("rate", "block"), [(None, 16_384), (1, 1), (1999, 1), (10_000, 10), (16_384_000, 16_384), (1e9, 16_384)]
)
def test_a_block_is_a_millisecond_at_most(rate: float | None, block: int) -> None:
    reader = Clock(1e6).reader(hg.sources.generate(squares, rate=rate))
    assert [reader.read().num_rows for _ in range(3)] == [block] * 3


@pytest.mark.parametrize(("batch_time", "block"), [("2 ms", 8000), (0.0005, 2000), ("1 s", 16_384), ("1 us", 4)])
def test_a_block_spans_the_batch_time(batch_time: str | float, block: int) -> None:
    reader = Clock(1e6).reader(hg.sources.generate(squares, rate=4e6, batch_time=batch_time))
    assert [reader.read().num_rows for _ in range(3)] == [block] * 3
    whole = Clock(1e6).reader(hg.sources.generate(squares, batch_time=batch_time))  # without a rate no time is asked
    assert whole.read().num_rows == 16_384


def test_a_block_comes_when_its_last_row_is_due_and_never_before() -> None:
    clock = Clock(999.0)
    reader = clock.reader(hg.sources.generate(squares, rate=4000, rows=10, time="ts"))  # blocks of 4: 1 ms
    assert reader.read() is None
    assert reader.next_read() == 1000 + 3 / 4000
    clock.now = 1000.0006  # rows 0, 1, 2 are due
    assert reader.read() is None
    clock.now = reader.next_read()  # type: ignore[assignment]
    assert reader.read().column("i").to_pylist() == [0, 1, 2, 3]
    assert reader.read() is None
    assert reader.next_read() == 1000 + 7 / 4000
    clock.now = 5000.0
    assert [reader.read().column("i").to_pylist() for _ in range(2)] == [[4, 5, 6, 7], [8, 9]]
    assert (reader.read(), reader.finished) == (None, True)


def test_a_task_that_waits_until_next_read_gets_whole_blocks_at_the_full_rate() -> None:
    """The rate has due times that are no round numbers, and the date is one at which a float resolves 0.2 us."""
    clock, start = Clock(1.7e9), 1.7e9
    reader = clock.reader(
        hg.sources.generate(squares, rate=9_999_991.0, rows=200_000, batch_rows=8192), 1, 3, started_at=start
    )
    rows = []
    while not reader.finished:
        batch = reader.read()
        if batch is None:
            due = reader.next_read()
            assert due is None or due > clock.now
            clock.now = due or clock.now
        else:
            rows.append(batch.num_rows)
    assert set(rows[:-1]) == {8192}
    assert clock.now == pytest.approx(start + 8192 * 23 / 9_999_991.0, abs=1e-5)  # block 22 is the subtask's last


def test_all_blocks_that_are_due_come_as_one_batch() -> None:
    clock = Clock(1000.0)
    reader: Any = clock.reader(hg.sources.generate(squares, rate=1000, time="ts", batch_time="2 ms"))
    assert reader.read_due(100) is None
    clock.now += 0.006  # rows 0 to 6 are due
    batch = reader.read_due(100)
    assert batch.column("i").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert batch.column("ts").cast(pa.int64()).to_pylist() == [10**9 + 1000 * row for row in range(6)]
    clock.now += 0.1
    assert [reader.read_due(3).num_rows, reader.read_due(4).num_rows] == [4, 4]


def test_a_delayed_source_catches_up_and_never_slips() -> None:
    clock = Clock(1000.0)
    source = hg.sources.generate(squares, rate=1000, time="ts", batch_rows=1)
    reader = clock.reader(source)
    clock.now += 0.5
    batches = [reader.read() for _ in range(501)]
    assert reader.read() is None
    times = [batch.column("ts").cast(pa.int64())[0].as_py() for batch in batches]
    assert times == [1_000_000_000 + 1000 * row for row in range(501)]
    assert reader.next_read() == pytest.approx(1000.501)


@example(10**14, 1e8, 5)
@given(st.integers(0, 10**9), st.floats(0.01, 1e9), st.integers(1, 5))
def test_a_rows_time_depends_on_its_number_alone(first: int, rate: float, n: int) -> None:
    times = _DueTimes(rate, block_rows=1, step=1, start_us=10**9)
    together = times.of_rows(np.arange(first, first + n)).tolist()
    assert together == [times.of(first + i, 1).cast(pa.int64())[0].as_py() for i in range(n)]
    assert together == pytest.approx([1e9 + (first + i) / rate * 1e6 for i in range(n)], abs=1.0)


def times_by_row(batches: Iterable[pa.RecordBatch]) -> dict[int, int]:
    found: dict[int, int] = {}
    for batch in batches:
        times = batch.column("ts").cast(pa.int64()).to_pylist()
        found.update(zip(batch.column("i").to_pylist(), times, strict=True))
    return found


@given(st.floats(10, 1e4), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
def test_a_rows_time_is_the_same_for_every_parallelism(
    rate: float, batch_rows: int, before: int, after: int, read: int
) -> None:
    """One subtask has read `read` blocks before the parallelism changes, the others none."""
    clock = Clock(1e12)
    source = hg.sources.generate(squares, rate=rate, rows=300, time="ts", batch_rows=batch_rows, batch_time="1 s")
    readers = [clock.reader(source, subtask, before) for subtask in range(before)]
    batches = [batch for _ in range(read) if (batch := readers[0].read()) is not None]
    positions = [reader.position() for reader in readers]
    for subtask in range(after):
        reader = clock.reader(source, subtask, after, positions=positions)
        while (batch := reader.read()) is not None:
            batches.append(batch)
    assert sum(batch.num_rows for batch in batches) == 300
    assert times_by_row(batches) == {row: 10**9 + int(row * 1e6 / rate) for row in range(300)}


def test_without_a_rate_the_time_is_when_the_batch_was_made() -> None:
    clock = Clock(7.25)
    reader = clock.reader(hg.sources.generate(squares, rows=3, time="ts", batch_rows=2))
    assert reader.read().column("ts").cast(pa.int64()).to_pylist() == [7_250_000] * 2
    clock.now = 8.0
    assert reader.read().column("ts").cast(pa.int64()).to_pylist() == [8_000_000]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda start, n: squares(start, n + (n > 0)), r"fn\(0, 5\) returned 6 rows, not 5"),
        (lambda start, n: squares(start, n).select(["i", "square"][: 1 if n else 2]), r"returned columns \(i int64\)"),
        (
            lambda start, n: pa.record_batch({"i": [7] * n}),
            r"not \(i null\), the types of fn\(0, 0\); give schema=",
        ),
        (lambda start, n: squares(start, n) if not n else None, r"fn\(0, 5\) returned a NoneType, not a RecordBatch"),
        (lambda start, n: squares(start, n) if not n else 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_function_that_returns_other_rows_is_named(fn: Any, message: str) -> None:
    reader = Clock(0.0).reader(hg.sources.generate(fn, rows=5))
    with pytest.raises(hg.UserFunctionError, match=message):
        reader.read()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": -1}, "rows=-1 must not be negative"),
        ({"rate": 0}, "rate=0 must be above 0 rows per second"),
        ({"rate": float("inf")}, "rate=inf must be above 0"),
        ({"batch_rows": 0}, "batch_rows=0 must be at least 1"),
        ({"batch_time": 0}, "batch_time is 0 us; it must be at least 1 us"),
        ({"batch_time": "soon"}, "'soon' is not a duration"),
        ({"time": "i"}, "time='i': the function's rows have a column of that name"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hg.ConfigError, match=message):
        hg.sources.generate(squares, **options)


def test_a_function_that_fails_for_no_rows_needs_a_schema() -> None:
    with pytest.raises(
        hg.UserFunctionError, match="division by zero(.|\n)*generate calls fn\\(0, 0\\), for no rows.*schema="
    ):
        hg.sources.generate(lambda start, n: pa.record_batch({"i": [1 / n] * n}))
