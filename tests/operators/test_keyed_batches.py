"""`KeyedBatchFunction`: the examples agree with loops over rows, at several parallelisms, with restores in between."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from examples.vectorised_state import FUNCTIONS, READINGS
from headgate.operators.keyed.keyed_batches import KeyedBatches
from headgate.operators.keyed.state_base import Current
from headgate.operators.operator import OperatorContext
from headgate.state.snapshot import decode, encode
from tests.operators.test_keyed_process import Clock
from tests.operators.window_rig import Side, attach

Row = dict[str, Any]
NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def running_sum(rows: list[tuple[Row, int]]) -> Iterator[tuple[Any, ...]]:
    total = 0.0
    for row, _ in rows:
        total += row["value"]
        yield *row.values(), total


def alert(rows: list[tuple[Row, int]]) -> Iterator[tuple[Any, ...]]:
    before = 0.0
    for row, _ in rows:
        if before <= 5.0 < row["value"]:
            yield tuple(row.values())
        before = row["value"]


def first_per_day(rows: list[tuple[Row, int]]) -> Iterator[tuple[Any, ...]]:
    seen = None
    for row, now in rows:
        if seen is None or now >= seen + 86_400_000_000:
            seen = now
            yield tuple(row.values())


def sessions(rows: list[tuple[Row, int]]) -> Iterator[tuple[Any, ...]]:
    number, before = 0, None
    for row, _ in rows:
        number += before is None or row["at"] - before > timedelta(minutes=30)
        before = row["at"]
        yield *row.values(), number


def average(rows: list[tuple[Row, int]]) -> Iterator[tuple[Any, ...]]:
    mean = None
    for row, _ in rows:
        mean = row["value"] if mean is None else mean + 0.5 * (row["value"] - mean)
        yield *row.values(), mean


LOOPS: dict[str, Callable[[list[tuple[Row, int]]], Iterator[tuple[Any, ...]]]] = {
    "running sum": running_sum,
    "alert": alert,
    "first per day": first_per_day,
    "sessions": sessions,
    "average": average,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 32), parallelisms=st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_an_example_agrees_with_a_loop_over_rows(name: str, seed: int, parallelisms: list[int]) -> None:
    chance, clock = random.Random(seed), Clock()
    function, schema = FUNCTIONS[name]
    arrived: dict[Any, list[tuple[Row, int]]] = defaultdict(list)
    emitted: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    sensors, before = [None, "", "b", "a sensor with a long name"], None
    for parallelism in parallelisms:
        side = Side(lambda: make(function, schema, clock=clock), parallelism)
        if before is not None:
            side.restore(before.snapshots())
        for _ in range(3):
            clock.now += chance.choice([0, 40_000_000_000])
            rows = [
                {
                    "sensor": chance.choice(sensors),
                    "value": chance.choice([0.1, 4.5, 5.0, 7.25, 1e9]),
                    "at": datetime(2026, 1, 1, chance.randrange(4), tzinfo=UTC),
                }
                for _ in range(chance.choice([1, 5, 300]))
            ]
            side.process(pa.RecordBatch.from_pylist(rows, READINGS), 1)
            for row in rows:
                arrived[row["sensor"]].append((row, clock.now))
        for kept in side.kept:
            for emission in kept.rows:
                emitted[emission[0]].append(emission)
        before = side
    assert emitted == {key: found for key, rows in arrived.items() if (found := list(LOOPS[name](rows)))}


def make(
    function: hg.KeyedBatchFunction, schema: pa.Schema = NUMBERS, keys: tuple[str, ...] = ("sensor",), **options: Any
) -> KeyedBatches:
    options = {"input_schema": READINGS, **options}
    return KeyedBatches(function, keys, schema=schema, sides={}, **options)


def opened(function: hg.KeyedBatchFunction, clock: Callable[[], float] = lambda: 0.0) -> KeyedBatches:
    operator = make(function, keys=("k",), input_schema=NUMBERS, clock=clock)
    attach(operator)
    operator.open(OperatorContext("job", "operator", 0, 1))
    return operator


def numbers(keys: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(np.ones(len(keys)))], schema=NUMBERS)


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=300))
@settings(max_examples=30, deadline=None)
def test_keys_of_a_batch(rows: list[tuple[int, int]]) -> None:
    column, values = map(list, zip(*rows, strict=True))
    keys = hg.BatchKeys.of(column)
    different = list(dict.fromkeys(column))
    assert [different[number] for number in keys.of_row] == column
    assert [column[row] for row in keys.first] == [column[row] for row in keys.last] == different
    assert keys.first.tolist() == [column.index(key) for key in different]
    assert keys.last.tolist() == [len(column) - 1 - column[::-1].index(key) for key in different]
    assert keys.counts.tolist() == [column.count(key) for key in different]
    sums, previous, last = dict.fromkeys(different, 100), [], dict.fromkeys(different, -1)
    running = []
    for key, value in rows:
        sums[key] += value
        running.append(sums[key])
        previous.append(last[key])
        last[key] = value
    assert keys.running_sum(values, before=100).tolist() == running
    assert keys.previous(values, before=[-1] * len(keys)).tolist() == previous
    rounds = [(order.tolist(), of.tolist()) for order, of in keys.rounds()]
    assert sorted(row for order, _ in rounds for row in order) == list(range(len(column)))
    for rank, (order, of) in enumerate(rounds):
        assert [different[number] for number in of] == [column[row] for row in order]
        assert all(column[:row].count(column[row]) == rank for row in order)


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64()])
def test_values_that_are_null_are_refused(kind: pa.DataType) -> None:
    """NumPy has NaN for them, and then each later sum of the key would be NaN."""
    keys, values = hg.BatchKeys.of(["a", "b"]), pa.array([1, None], kind)
    for call in (keys.running_sum, keys.previous):
        with pytest.raises(hg.DataError, match=r"1 of 2 values are null, .* pc\.fill_null"):
            call(values, 0)
    assert keys.running_sum(values.fill_null(0)).tolist() == [1, 0]


@pytest.mark.parametrize(("kind", "of_sums"), [(np.int32, np.int64), (np.uint8, np.uint64)])
def test_a_running_sum_of_small_integers_has_64_bits(kind: Any, of_sums: Any) -> None:
    largest = int(np.iinfo(kind).max)
    values = np.array([largest, largest], kind)
    sums = hg.BatchKeys.of(["a", "a"]).running_sum(values, before=np.zeros(1, kind))
    assert sums.tolist() == [largest, 2 * largest]
    assert sums.dtype == of_sums


def test_a_running_sum_is_not_disturbed_by_other_keys() -> None:
    sums = hg.BatchKeys.of([1, 2] * 100).running_sum([0.1, 1e300] * 99 + [0.1, np.inf])
    total = 0.0
    for got in sums[::2]:
        total += 0.1
        assert got == total


class Value(hg.KeyedBatchFunction):
    """A function that sets its state to `written`, and keeps what it reads."""

    value = hg.ColumnState(pa.int32(), default=7)

    def __init__(self, written: Any) -> None:
        self.written = written
        self.seen: list[Any] = []

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        self.seen.append(self.value.values().tolist())
        self.value.update(self.written)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ([1, 1 << 31], r"column state 'value': 2147483648 \(int\) does not fit int32"),
        ([1.0, 2.0], r"1.0 \(float\) does not fit int32"),
        (["a", "b"], r"does not fit int32"),
        ([None, 1], r"does not fit int32"),
        ([1, 2, 3], r"there are 2 keys, and values of the shape \(3,\)"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(written: Any, says: str) -> None:
    with pytest.raises(hg.UserFunctionError, match=f"TypeError: .*{says}"):
        opened(Value(written)).process(numbers([1, 2, 1]))


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        (pa.int64(), np.array([1, 2], np.int8), [1, 2]),
        (pa.uint8(), [0, 255], [0, 255]),
        (pa.float32(), [0.1, np.nan], [np.float32(0.1).item(), None]),
        (pa.bool_(), True, [True, True]),
        (pa.date32(), np.array(["2026-01-01", "NaT"], "datetime64[D]"), [datetime(2026, 1, 1).date(), None]),
        (pa.duration("ms"), np.array([5, 6], "timedelta64[s]"), [timedelta(seconds=5), timedelta(seconds=6)]),
        (pa.timestamp("ns", "UTC"), np.array(["2026-01-01", "NaT"], "datetime64[us]"), None),
        (pa.float16(), [1.5, 2.0], [1.5, 2.0]),
    ],
    ids=str,
)
def test_values_are_the_same_after_a_restore(kind: pa.DataType, given: Any, kept: Any) -> None:
    state = hg.ColumnState(kind).bound("state", Current())
    state.enter(np.array([4, 2]), 6)
    state.update(given)
    values = state.values()
    slots, columns = state.frozen().columns([4, 2])
    other = hg.ColumnState(kind).bound("state", Current())
    other.load(slots, columns, 0)
    other.enter(slots, 6)
    assert columns["value"].type == kind
    np.testing.assert_array_equal(other.values(), values)
    if kept is not None:
        seen = [None if value != value else value for value in columns["value"].to_pylist()]
        assert seen == kept


def test_a_state_refuses_what_numpy_cannot_hold() -> None:
    with pytest.raises(hg.PlanError, match=r"string cannot be the type of a column state.*hg\.ValueState"):
        hg.ColumnState(pa.string())
    with pytest.raises(hg.PlanError, match=r"default=1.5: a column state: 1.5 \(float\) does not fit int64"):
        hg.ColumnState(pa.int64(), default=1.5)
    with pytest.raises(RuntimeError, match="column state 'value' needs the keys of a batch"):
        opened(Value(1))._function.value.update(1)  # type: ignore[attr-defined]


def test_states_of_the_other_kind_of_function_are_refused() -> None:
    class Mixed(hg.KeyedBatchFunction):
        value = hg.ValueState(pa.int64())

        def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any: ...

    stream = hg.StreamEnvironment().from_source(hg.sources.iterable([numbers([1])])).key_by("k")
    with pytest.raises(hg.PlanError, match=r"Mixed: value is a hg\.ValueState; .*KeyedBatchFunction has hg\.ColumnS"):
        stream.process(Mixed(), schema=NUMBERS)
    with pytest.raises(hg.PlanError, match="must override process"):
        stream.process(hg.KeyedBatchFunction(), schema=NUMBERS)


def test_a_key_with_default_values_takes_no_memory() -> None:
    operator = opened(function := Value(7))
    for begin in range(0, 40_000, 4000):
        operator.process(numbers(range(begin, begin + 4000)))
    assert operator.state_keys() < 17_000
    assert function.seen[-1] == [7] * 4000
    snapshot = operator.snapshot()
    assert snapshot.tables["column state 'value'"].num_rows == 0


def test_used_keys_keep_their_values_when_others_are_removed() -> None:
    class Odd(hg.KeyedBatchFunction):
        value = hg.ColumnState(pa.int64(), ttl="10 us")

        def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
            chosen = np.asarray(batch["k"])[keys.first]
            self.value.update(chosen, where=chosen % 3 == 1)
            return pa.record_batch([pa.array(chosen), pa.array(self.value.values().astype(float))], schema=NUMBERS)

    clock = Clock()
    operator = opened(Odd(), clock)
    for begin in range(0, 40_000, 4000):
        operator.process(numbers(range(begin, begin + 4000)))
    operator.process(numbers([1, 2, 39_997, 4]))
    assert operator.output.rows[-4:] == [(1, 1.0), (2, 0.0), (39_997, 39_997.0), (4, 4.0)]  # type: ignore[attr-defined]
    taken = operator.snapshot()
    clock.now += 10
    restored = opened(Odd(), clock)
    restored.restore([decode(encode({"node": taken}))["node"]])
    assert taken.tables["column state 'value'"].num_rows == 13_333
    assert restored.snapshot().tables["column state 'value'"].num_rows == 0, "all values have expired"


def test_a_snapshot_is_a_copy() -> None:
    operator = opened(function := Value(1))
    operator.process(numbers([1, 2]))
    taken = operator.snapshot()
    object.__setattr__(operator._function, "written", 2)
    operator.process(numbers([1, 2]))
    assert taken.tables["column state 'value'"]["value"].to_pylist() == [1, 1]
    assert function.seen == [[7, 7], [1, 1]]


def test_times_and_side_outputs_of_a_job() -> None:
    class Late(hg.KeyedBatchFunction):
        def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
            is_early = ctx.timestamps < 60_000_000
            yield hg.SideOutput("early", batch.filter(pa.array(is_early)))
            yield batch.filter(pa.array(~is_early))

    at = pa.array([0, 120], pa.timestamp("s", "UTC")).cast(READINGS.field("at").type)
    rows = pa.record_batch([pa.array(["a", "b"]), pa.array([1.0, 2.0]), at], schema=READINGS)
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(hg.sources.iterable([rows]), watermark=hg.Watermark("at"))
    result = stream.key_by("sensor").process(Late(), schema=READINGS, side_outputs={"early": READINGS})
    assert result.collect()["sensor"].to_pylist() == ["b"]
