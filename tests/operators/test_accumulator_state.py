"""Every aggregate's state is saved as columns and restored from them: exactly, and as a copy."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate
from headgate.state.snapshot import Snapshot, decode, encode

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [2**53 + 1, -(2**53) - 1, 2**56, -(2**56), 0, 7, None],
    pa.uint64(): [2**55 - 1, 0, 5, None],
    pa.int8(): [-128, 127, 3, None],
    pa.float64(): [0.1, 1e300, -1e300, 1e-300, -0.0, 0.0, NAN, OTHER_NAN, float("inf"), None],
    pa.float32(): [0.5, NAN, -0.0, None],
    pa.bool_(): [True, False, None],
    pa.string(): ["", "a", "ä" * 20, "b" * 9, None],
    pa.string_view(): ["", "a", "a string that is longer than twelve bytes", None],
    pa.dictionary(pa.int8(), pa.string()): ["x", "yy", None],
    pa.binary(): [b"", b"\0", b"\xff" * 17, None],
    pa.binary(3): [b"abc", b"\0\0\0", None],
    pa.timestamp("ns", "UTC"): [0, -1, 2**61, None],
    pa.date32(): [0, 20_000, -5, None],
    pa.decimal128(30, 2): [Decimal("1.25"), Decimal("-99999999999999999999.00"), None],
    pa.list_(pa.int64()): [[], [1, None], None],
}
OF_NUMBERS = (hg.sum, hg.mean, hg.stddev, hg.var)
SUMMED = (pa.int64(), pa.uint64(), pa.int8(), pa.float64(), pa.float32(), pa.decimal128(30, 2))


def aggregates_of(kind: pa.DataType) -> tuple[tuple[str, Aggregate], ...]:
    found = [("rows", hg.count())]
    for make in (
        hg.count,
        hg.first,
        hg.last,
        hg.collect_list,
        hg.count_distinct,
        hg.approx_count_distinct,
        hg.min,
        hg.max,
        *OF_NUMBERS,
    ):
        nested = pa.types.is_list(kind) and make in (hg.count_distinct, hg.approx_count_distinct, hg.min, hg.max)
        if not nested and (kind in SUMMED or make not in OF_NUMBERS):
            found.append((make.__name__, make("value")))
    return tuple(found)


def rows(kind: pa.DataType, count: int, chance: random.Random, nulls: bool) -> pa.RecordBatch:
    values = VALUES[kind] if nulls else [value for value in VALUES[kind] if value is not None]
    return pa.record_batch({"value": pa.array(chance.choices(values, k=count), kind, from_pandas=False)})


def exact(column: pa.Array) -> list[Any]:
    """Return the values, with floats as their bits; lists keep their order."""

    def bits(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if value != value else value.hex()
        return list(map(bits, value)) if isinstance(value, list) else value

    return [bits(value) for value in column.to_pylist()]


@pytest.mark.parametrize("nulls", [False, True], ids=["no nulls", "nulls"])
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_restored_state_behaves_like_state_that_was_never_saved(kind: pa.DataType, nulls: bool) -> None:
    chance = random.Random(f"{kind} {nulls}")
    specs, schema = aggregates_of(kind), pa.schema([("value", kind)])
    old, new = AccumulatorSet(specs, schema), AccumulatorSet(specs, schema)

    def feed(into: AccumulatorSet, size: int, slots: np.ndarray[Any, Any], batch: pa.RecordBatch, seed: int) -> None:
        times = np.random.default_rng(seed).permutation(len(slots)).astype(np.int64) + 1000 * seed
        into.update(size, slots, batch, times)

    size = 9
    for seed in range(3):
        slots = np.concatenate([np.arange(size), [chance.randrange(size) for _ in range(40)]])
        feed(old, size, slots, rows(kind, len(slots), chance, nulls), seed)
    some = np.array([7, 2, 3, 0])  # go to where one is already, and in another order
    feed(new, 2, np.array([0, 1]), rows(kind, 2, chance, nulls), 9)
    table = pa.table(old.columns(some))
    kept = [exact(column.combine_chunks()) for column in table.columns]
    [restored] = decode(encode({"node": Snapshot({"t": table})})).values()
    for batch in restored.tables["t"].to_batches():
        new.load(6, np.array([4, 2, 5, 3]), batch.columns)
    there = np.array([4, 2, 5, 3])
    assert [exact(c) for c in new.columns(there).values()] == kept, "what is loaded is what was held, bit for bit"
    for seed in range(4, 7):
        picks = np.array([chance.randrange(4) for _ in range(30)])
        batch = rows(kind, 30, chance, nulls)
        feed(old, size, some.take(picks), batch, seed)
        feed(new, 6, there.take(picks), batch, seed)
    got, expected = new.results(there), old.results(some)
    assert [exact(column) for column in got] == [exact(column) for column in expected]
    assert [column.type for column in got] == [column.type for column in expected]
    assert [exact(column.combine_chunks()) for column in table.columns] == kept, "later rows did not change it"


def test_a_sum_may_exceed_int64_for_a_time() -> None:
    specs, schema = (("total", hg.sum("value")), ("mean", hg.mean("value"))), pa.schema([("value", pa.int64())])
    for sign in (1, -1):
        old, new = AccumulatorSet(specs, schema), AccumulatorSet(specs, schema)
        slots = np.array([0] * 6 + [1, 2, 3])
        big = pa.array([sign * (2**63 - 1)] * 6 + [sign * (2**53 + 1), -(2**63), 2**63 - 1])
        old.update(4, slots, pa.record_batch({"value": big}), None)
        new.load(4, np.arange(4), list(old.columns(np.arange(4)).values()))
        less = pa.array([-sign * (2**63 - 1)] * 6 + [0, 1, -1])
        new.update(4, slots, pa.record_batch({"value": less}), None)
        assert new.results(np.arange(4))[0].to_pylist() == [0, sign * (2**53 + 1), -(2**63) + 1, 2**63 - 2]
        assert new.results(np.arange(4))[1].to_pylist()[0] == 0.0


def test_a_restored_sum_takes_one_word_if_it_fits_one() -> None:
    specs, schema = (("total", hg.sum("value")),), pa.schema([("value", pa.int64())])
    old, new = AccumulatorSet(specs, schema), AccumulatorSet(specs, schema)
    slots = np.arange(1000)
    old.update(1000, slots, pa.record_batch({"value": pa.array(np.full(1000, 2**60))}), None)
    new.load(1000, slots, list(old.columns(slots).values()))
    assert 2 * new.nbytes == old.nbytes  # for the old one, 1000 x 2^60 might have been one sum
    for _ in range(7):
        new.update(1000, slots, pa.record_batch({"value": pa.array(np.full(1000, 2**60))}), None)
    with pytest.raises(hg.DataError, match="is 9223372036854775808, which does not fit"):  # what was loaded counts
        new.results(slots)
    new.update(1000, slots, pa.record_batch({"value": pa.array(np.full(1000, -(2**60)))}), None)
    assert new.results(slots)[0].to_pylist() == [7 * 2**60] * 1000
