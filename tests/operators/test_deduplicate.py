"""One row of each key is passed on, as a plain loop over the rows does it."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.operators.deduplicate import Deduplicate, KeepFirst, KeepLast, KeepLastToCome, apart_by
from headgate.operators.last_rows import LastRows
from headgate.operators.operator import Operator, OperatorContext
from headgate.state.snapshot import Snapshot, decode, encode
from tests.examples import examples
from tests.operators.window_rig import Kept, attach

SCHEMA = pa.schema([("key", pa.string()), ("t", pa.timestamp("us")), ("n", pa.int64())])
Row = tuple[str | None, int]
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-50, 50)), min_size=1, max_size=15),
    min_size=1,
    max_size=6,
)


def opened(operator: Operator) -> Kept:
    kept = attach(operator)
    operator.open(OperatorContext("job", "operator", 0, 1, 8))
    return kept


def batches_of(batches: list[list[Row]]) -> list[pa.RecordBatch]:
    """Return batches in which each row has a number."""
    made, number = [], 0
    for rows in batches:
        columns: list[Any] = [[row[0] for row in rows], [row[1] for row in rows], range(number, number + len(rows))]
        number += len(rows)
        made.append(pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
    return made


def numbers(kept: Kept) -> list[int]:
    return [row[2] for row in kept.rows]


@given(BATCHES)
def test_the_first_row_of_each_key(batches: list[list[Row]]) -> None:
    operator = KeepFirst(("key",), input_schema=SCHEMA)
    kept = opened(operator)
    for batch in batches_of(batches):
        operator.process(batch)
    rows = [row for rows in batches for row in rows]
    assert numbers(kept) == [n for n, (key, _) in enumerate(rows) if key not in {row[0] for row in rows[:n]}]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), max_size=60), st.integers(1, 40))
def test_rows_that_are_apart(rows: list[tuple[int, int]], ttl: int) -> None:
    slots, times = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    left = []
    last: dict[int, int] = {}
    for number, (slot, time) in enumerate(rows):
        if slot not in last or time >= last[slot] + ttl:
            left.append(number)
            last[slot] = time
    assert sorted(apart_by(slots, times, ttl).tolist()) == left


@settings(max_examples=examples(150))
@given(BATCHES, st.integers(1, 60), st.booleans())
def test_a_key_lives_for_its_time(batches: list[list[Row]], ttl: int, forgets: bool) -> None:
    operator = KeepFirst(("key",), input_schema=SCHEMA, ttl=ttl, time_column="t", time_offset=0)
    kept = opened(operator)
    held: dict[str | None, int] = {}
    wanted = []
    number = 0
    for rows, batch in zip(batches, batches_of(batches), strict=True):
        operator.process(batch)
        for key, time in rows:
            if key not in held or time >= held[key] + ttl:
                held[key] = time
                wanted.append(number)
            number += 1
        if forgets:
            operator.process_watermark(watermark := max(held.values()))
            operator._forget(watermark)
            live = {key: time for key, time in held.items() if time > watermark - ttl}
            held = live if 2 * len(live) <= len(held) else held
    assert numbers(kept) == wanted


@given(BATCHES)
def test_the_last_row_by_event_time(batches: list[list[Row]]) -> None:
    operator = KeepLast(("key",), input_schema=SCHEMA, time_column="t")
    kept = opened(operator)
    latest: dict[str | None, tuple[int, int]] = {}
    number = 0
    for rows, batch in zip(batches, batches_of(batches), strict=True):
        kept.events = []
        operator.process(batch)
        before = dict(latest)
        for key, time in rows:
            latest[key] = max(latest.get(key, (-100, 0)), (time, number))
            number += 1
        assert numbers(kept) == sorted(n for key, (_, n) in latest.items() if before.get(key) != latest[key])


@given(BATCHES)
def test_the_last_row_to_come(batches: list[list[Row]]) -> None:
    operator = KeepLastToCome(("key",), input_schema=SCHEMA)
    kept = opened(operator)
    number = 0
    for rows, batch in zip(batches, batches_of(batches), strict=True):
        kept.events = []
        operator.process(batch)
        assert numbers(kept) == sorted({key: number + at for at, (key, _) in enumerate(rows)}.values())
        number += len(rows)


@settings(max_examples=examples(100))
@given(BATCHES, st.booleans(), st.integers(0, 5))
def test_the_last_row_at_the_end(batches: list[list[Row]], by_time: bool, restart: int) -> None:
    make = partial(LastRows, ("key",), input_schema=SCHEMA, output=SCHEMA, time_column="t" if by_time else None)
    operator = make()
    kept = opened(operator)
    latest: dict[str | None, tuple[int, int]] = {}
    number = 0
    for at, (rows, batch) in enumerate(zip(batches, batches_of(batches), strict=True)):
        if at == restart:
            snapshot = operator.snapshot()
            operator = make()
            kept = opened(operator)
            operator.restore([decode(encode({"node": snapshot}))["node"]])
        operator.process(batch)
        for key, time in rows:
            latest[key] = max(latest.get(key, (-100, 0)), (time if by_time else 0, number))
            number += 1
    assert kept.rows == []
    operator.end_input()
    assert sorted(numbers(kept)) == sorted(n for _, n in latest.values())
    assert operator.snapshot().tables["keys"].num_rows == 0  # a restart does not emit them again


def test_replaced_rows_leave_the_state() -> None:
    operator = LastRows(("key",), input_schema=SCHEMA, output=SCHEMA)
    kept, keys = opened(operator), pa.array([f"key {n}" for n in range(30_000)])
    sizes = []
    for turn in range(12):
        columns = [keys, pa.nulls(len(keys), pa.timestamp("us")), pa.repeat(turn, len(keys))]
        operator.process(pa.record_batch(columns, schema=SCHEMA))
        sizes.append(operator.state_bytes())
    assert max(sizes[6:]) <= max(sizes[:6])
    operator.end_input()
    assert pa.Table.from_batches(kept.batches).equals(pa.table([keys, columns[1], columns[2]], schema=SCHEMA))


def test_the_clock_ends_the_life_of_a_key() -> None:
    now = [100.0]
    operator = KeepFirst(("key",), input_schema=SCHEMA, ttl=10_000_000, clock=lambda: now[0])
    kept = opened(operator)
    for seconds in (0, 0, 9, 10, 11, 20):
        now[0] = 100.0 + seconds
        operator.process(batches_of([[("a", 0), ("a", 0)]])[0])
    assert len(kept.batches) == 3
    assert all(batch["n"].to_pylist() == [0] for batch in kept.batches)


@pytest.mark.parametrize("earlier_version", [False, True])
def test_a_job_may_resume_with_a_time_to_live(earlier_version: bool) -> None:
    """Earlier versions kept no times without a `ttl`: their keys live from the resume on."""
    now = [1000.0]
    first = KeepFirst(("key",), input_schema=SCHEMA, clock=lambda: now[0])
    opened(first)
    first.process(batches_of([[("a", 0), ("b", 0)]])[0])
    snapshot = first.snapshot()
    if earlier_version:
        keys = snapshot.tables["keys"]
        snapshot = Snapshot({"keys": keys.set_column(2, "time", pa.array([0, 0], pa.int64()))}, snapshot.values)
    now[0] = 1004.0
    second = KeepFirst(("key",), input_schema=SCHEMA, ttl=10_000_000, clock=lambda: now[0])
    kept = opened(second)
    second.restore([decode(encode({"node": snapshot}))["node"]])
    end = 1014.0 if earlier_version else 1010.0
    passed = []
    for now[0] in (1004.0, end - 0.001, end, end + 9.0, end + 10.0):
        second.process(batches_of([[("a", 0)]])[0])
        passed += [now[0]] * len(kept.batches)
        kept.events = []
    assert passed == [end, end + 10.0]
    third = KeepFirst(("key",), input_schema=SCHEMA, clock=lambda: 1e9)  # and without one again
    kept = opened(third)
    third.restore([decode(encode({"node": second.snapshot()}))["node"]])
    third.process(batches_of([[("a", 0), ("b", 0), ("c", 0)]])[0])
    assert numbers(kept) == [2]


def test_a_job_with_event_time_cannot_resume_with_a_time_to_live() -> None:
    first = KeepFirst(("key",), input_schema=SCHEMA)
    second = KeepFirst(("key",), input_schema=SCHEMA, ttl=10, time_column="t")
    opened(first)
    opened(second)
    first.process(batches_of([[("a", 0)]])[0])
    with pytest.raises(hg.CheckpointError, match="time is processing time there and t . 0 us here"):
        second.restore([first.snapshot()])


def test_keys_are_forgotten_as_event_time_passes() -> None:
    operator = KeepFirst(("key",), input_schema=SCHEMA, ttl=1000, time_column="t")
    opened(operator)
    sizes = []
    for begin in range(0, 1_000_000, 10_000):
        keys = pa.array([f"key {n}" for n in range(begin, begin + 10_000)])
        times = pa.array(range(begin, begin + 10_000), pa.timestamp("us"))
        operator.process(pa.record_batch([keys, times, pa.nulls(10_000, pa.int64())], schema=SCHEMA))
        operator.process_watermark(begin + 10_000)
        sizes.append(operator.state_keys())
    assert max(sizes) <= 30_000


@pytest.mark.parametrize("make", [
    lambda: KeepFirst(("key",), input_schema=SCHEMA),
    lambda: KeepFirst(("key",), input_schema=SCHEMA, ttl=20, time_column="t"),
    lambda: KeepLast(("key",), input_schema=SCHEMA, time_column="t"),
])  # fmt: skip
def test_a_restored_operator_goes_on(make: Any) -> None:
    chance = random.Random(3)
    batches = batches_of([[(chance.choice("abcdefg"), chance.randint(0, 99)) for _ in range(20)] for _ in range(6)])
    whole, first, second = make(), make(), make()
    all_rows, some, others = opened(whole), opened(first), opened(second)
    for at, batch in enumerate(batches):
        whole.process(batch)
        if at == 3:
            second.restore([decode(encode({"node": first.snapshot()}))["node"]])
        (first if at < 3 else second).process(batch)
    assert some.rows + others.rows == all_rows.rows


def test_state_of_another_operator_is_refused() -> None:
    first: Deduplicate = KeepFirst(("key",), input_schema=SCHEMA, ttl=5, time_column="t")
    last = KeepLast(("key",), input_schema=SCHEMA, time_column="t")
    for operator in (first, last):
        opened(operator)
    operator.process(batches_of([[("a", 1)]])[0])
    with pytest.raises(hg.CheckpointError, match="deduplication that keeps last rows there and .* first rows here"):
        first.restore([last.snapshot()])
    table = last.snapshot().tables["keys"]
    no_time = table.set_column(2, "time", pa.nulls(1, pa.int64()))
    with pytest.raises(ValueError, match="a key has no time"):
        last.restore([Snapshot({"keys": no_time}, last.snapshot().values)])


def test_null_event_times_are_an_error() -> None:
    operator = KeepLast(("key",), input_schema=SCHEMA, time_column="t")
    opened(operator)
    with pytest.raises(hg.DataError, match="'t' is null in 1 of 1 rows, and deduplicate needs event times here"):
        operator.process(pa.record_batch([["a"], pa.nulls(1, pa.timestamp("us")), [1]], schema=SCHEMA))


@pytest.mark.parametrize("final", [False, True])
def test_nanoseconds_of_one_microsecond_are_one_event_time(final: bool) -> None:
    """The later row stays, whether or not a combiner has seen the rows: it compares nanoseconds, and sees none."""
    env = hg.StreamEnvironment()
    times = pa.array([1999 - n % 999 for n in range(400)], pa.timestamp("ns"))
    rows = pa.table({"k": [0] * 400, "n": range(400), "t": times})
    stream = env.from_source(hg.sources.iterable(rows.to_batches()), watermark=hg.Watermark("t"))
    kept = stream.deduplicate("k", keep="last", final=final)
    assert kept.collect().to_pylist()[-1]["n"] == 399
