"""Sums and means of decimals are exact, whatever their size, in windows and running, through merges and checkpoints."""

from __future__ import annotations

import decimal
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.errors import DataError
from headgate.operators.aggregates.accumulator_set import accumulator
from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.aggregates.aggregates import Aggregate
from tests.arrow_types import decimal32, decimal64

EXACT = decimal.Context(prec=300, rounding=decimal.ROUND_HALF_UP)
TYPES = [
    decimal32(5, 2), decimal64(15, 3), pa.decimal128(9, 2), pa.decimal128(20, 2), pa.decimal128(28, 0),
    pa.decimal128(38, 18), pa.decimal128(38, 36), pa.decimal256(60, 10), pa.decimal256(76, 0),
]  # fmt: skip


def make(kind: str, column: pa.DataType) -> Accumulator:
    return accumulator(Aggregate(kind, "d"), pa.schema({"d": column}))  # type: ignore[arg-type]


def values_of(kind: pa.DataType) -> st.SearchStrategy[Decimal | None]:
    """Return decimals with few digits or nearly all, and nulls. The sum and the mean of ten of them fit their types."""
    most = 10 ** min(kind.precision - 2, (76 if kind.bit_width == 256 else 38) - 5) - 1
    integers = st.one_of(
        st.integers(-99, 99), st.integers(-most, most), st.sampled_from([most, -most, 1 << 31, 1 << 63])
    )
    return st.one_of(
        st.none(), integers.filter(lambda n: abs(n) <= most).map(lambda n: EXACT.scaleb(Decimal(n), -kind.scale))
    )


def expected(kind: str, values: list[Decimal | None], result: pa.DataType) -> Decimal | None:
    there = [value for value in values if value is not None]
    if not there:
        return None
    total = Decimal(0)
    for value in there:
        total = EXACT.add(total, value)
    exact = total if kind == "sum" else EXACT.divide(total, Decimal(len(there)))
    return EXACT.quantize(exact, EXACT.scaleb(Decimal(1), -result.scale))


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("column", TYPES, ids=str)
@given(data=st.data())
def test_sums_and_means_are_exact_for_random_values_and_batches(
    kind: str, column: pa.DataType, data: st.DataObject
) -> None:
    """Some values are added, some absorbed from another accumulator, some restored. Slots are renumbered in between."""
    batches = data.draw(st.lists(st.lists(st.tuples(st.integers(0, 2), values_of(column)), max_size=3), max_size=3))
    ways = data.draw(st.lists(st.sampled_from(["update", "absorb", "restore"]), min_size=3, max_size=3))
    result_type = Aggregate(kind, "d").output_field("x", pa.schema({"d": column})).type  # type: ignore[arg-type]
    mine = make(kind, column)
    slots = np.arange(3)
    mine.update(3, slots, pa.array([None] * 3, column), None)
    for rows, way in zip(batches, ways, strict=False):
        owners = np.array([owner for owner, _ in rows], np.int64)
        batch = pa.array([Decimal(0), *(value for _, value in rows)], column)[1:]  # with an offset
        target = make(kind, column) if way == "absorb" else mine
        if target is not mine:
            target.update(3, slots, pa.array([None] * 3, column), None)
        target.update(3, owners, batch, None)
        if target is not mine:
            mine.absorb(3, slots, target, slots)
        if way == "restore":
            again = make(kind, column)
            again.load(3, slots[::-1].copy(), mine.frozen().columns(slots[::-1].copy()))
            mine = again
        mine.keep(slots)
    got = mine.result(slots)
    got.validate(full=True)
    assert got.type == result_type
    every = [row for rows in batches for row in rows]
    assert got.to_pylist() == [
        expected(kind, [value for owner, value in every if owner == slot], result_type) for slot in range(3)
    ]


def test_result_types_are_those_of_spark() -> None:
    """`test_decimals_are_those_of_spark_sql` in tests/spark compares them with Spark itself."""
    schema = pa.schema({"a": pa.decimal128(9, 2), "b": pa.decimal128(38, 18), "c": pa.decimal256(70, 3)})
    of = {
        (kind, name): Aggregate(kind, name).output_field("x", schema).type for kind in ("sum", "mean") for name in "abc"
    }
    assert of == {
        ("sum", "a"): pa.decimal128(19, 2), ("sum", "b"): pa.decimal128(38, 18), ("sum", "c"): pa.decimal256(76, 3),
        ("mean", "a"): pa.decimal128(13, 6), ("mean", "b"): pa.decimal128(38, 22), ("mean", "c"): pa.decimal256(74, 7),
    }  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1])
def test_only_a_final_result_that_does_not_fit_is_an_error(sign: int) -> None:
    column = pa.decimal128(38, 0)
    most = sign * (10**38 - 1)
    total = make("sum", column)
    total.update(1, np.zeros(3, np.int64), pa.array([most, most, -most], column), None)
    assert total.result(np.zeros(1, np.int64)).to_pylist() == [most]
    total.update(1, np.zeros(1, np.int64), pa.array([sign], column), None)
    with pytest.raises(DataError, match=rf"sum\('d'\) is {sign * 10**38}, which does not fit into decimal128\(38, 0\)"):
        total.result(np.zeros(1, np.int64))
    mean = make("mean", column)
    mean.update(1, np.zeros(2, np.int64), pa.array([most, most], column), None)
    with pytest.raises(DataError, match=r"mean\('d'\) is -?\d+ / 2, which does not fit into decimal128\(38, 4\)"):
        mean.result(np.zeros(1, np.int64))


@pytest.mark.parametrize("digits", [9, 20, 30])
def test_windows_and_running_aggregates_agree_with_duckdb(digits: int) -> None:
    random = np.random.default_rng(digits)
    most = 10 ** min(digits, 18)
    numbers = [int(n) * 10 ** max(0, digits - 19) for n in random.integers(-most, most, 900)]
    amounts = pa.array(
        [None if n % 7 == 0 else Decimal(n).scaleb(-2, EXACT) for n in numbers], pa.decimal128(digits + 1, 2)
    )
    rows = pa.table({
        "key": pa.array(random.integers(0, 5, 900)), "amount": amounts,
        "at": pa.array(np.arange(900) * 100_000, pa.timestamp("us")),
    })  # fmt: skip
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=False))
    stream = env.from_source(hg.sources.iterable(rows.to_batches(100)), watermark=hg.Watermark("at", "1 h")).key_by(
        "key"
    )
    aggregates = {"total": hg.sum("amount"), "least": hg.min("amount"), "most": hg.max("amount")}
    running = stream.aggregate(final=True, **aggregates).collect().sort_by("key")
    windows = stream.window(hg.tumble("10 s")).aggregate(**aggregates).collect()
    order = [("key", "ascending"), ("window_start", "ascending")]
    with duckdb.connect() as database:
        database.register("rows", rows)
        columns = "sum(amount) as total, min(amount) as least, max(amount) as most"
        by_key = database.sql(f"select key, {columns} from rows group by key order by key").to_arrow_table()
        by_window = database.sql(
            f'select key, time_bucket(interval 10 seconds, "at") as window_start, {columns} from rows group by all'
        ).to_arrow_table()
    assert running.to_pylist() == by_key.to_pylist()
    assert windows.drop_columns(["window_end"]).sort_by(order).to_pylist() == by_window.sort_by(order).to_pylist()
