"""The combiner of `top`: its consumer makes the same rows of what it leaves as of the whole batch."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.operators.first_rows import FirstRows
from tests.examples import examples

SCHEMA = pa.schema([("key", pa.string()), ("other", pa.int32()), ("value", pa.float64()), ("n", pa.int64())])


def made(seed: int, count: int, keys: int, values: int = 5) -> pa.RecordBatch:
    """Rows with so many keys and so many different values, one of them NaN."""
    chance = random.Random(seed)
    key, other = ([chance.randrange(keys) for _ in range(count)] for _ in range(2))
    value = [float("nan") if (one := chance.randrange(values)) == 0 else one - 3.5 for _ in range(count)]
    columns = [[f"key {each}" for each in key], other, value, range(count)]
    return pa.record_batch(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def order(column: str, numbered: tuple[Any, int]) -> tuple[bool, Any]:
    value = numbered[0][column]
    return (value != value, value if value == value else 0)  # NaN is greatest


def expected(batch: pa.RecordBatch, first: FirstRows) -> list[int]:
    """The numbers of the first rows of each key by a plain sort, in ascending order."""
    by_key: dict[Any, list[tuple[Any, int]]] = {}
    rows = batch.to_pylist()
    for row in reversed(rows) if first.later_first else rows:
        by_key.setdefault(tuple(row[key] for key in first.keys), []).append((row, row["n"]))
    of_keys = list(by_key.values())
    for column, greatest in reversed(first.by):  # sorts are stable
        of_keys = [sorted(of_key, key=partial(order, column), reverse=greatest) for of_key in of_keys]
    return sorted(number for of_key in of_keys for _, number in of_key[: first.most])


@settings(max_examples=examples(60))
@given(
    st.builds(made, st.integers(0, 1 << 20), st.integers(128, 300), st.integers(1, 12)),
    st.builds(
        FirstRows,
        st.sampled_from([(), ("key",), ("other",), ("other", "key")]),
        st.sampled_from(
            [
                (),
                (("value", True),),
                (("value", False),),
                (("value", True), ("other", False)),
                (("other", True), ("value", True)),
            ]
        ),
        st.integers(1, 5),
        st.booleans(),
    ),
)
def test_it_leaves_the_first_rows_of_each_key(batch: pa.RecordBatch, first: FirstRows) -> None:
    left = first().combine(batch)
    wanted = expected(batch, first)
    assert left.column("n").to_pylist() == (
        list(range(batch.num_rows)) if len(wanted) > 0.75 * batch.num_rows else wanted
    )


@pytest.mark.parametrize("column", ["key", "other", "value"])
def test_batches_with_nulls_stay_whole(column: str) -> None:
    """A row without a value has no rank, and rows without a key have the key null: the consumer knows the rules."""
    batch = made(1, 200, 3)
    index = SCHEMA.get_field_index(column)
    some = pa.array([None, *batch.column(index).to_pylist()[1:]], SCHEMA.types[index])
    batch = batch.set_column(index, SCHEMA.field(index), some)
    assert FirstRows(("key", "other"), (("value", True),))().combine(batch) is batch


def test_keys_with_the_same_hash_stay_apart() -> None:
    batch = made(2, 200, 3)
    with patch("headgate.operators.first_rows.key_hash", lambda keys: np.zeros(len(keys[0]), np.uint64)):
        assert FirstRows(("key",), (("value", True),))().combine(batch) is batch


def test_it_rests_where_keys_do_not_repeat() -> None:
    combiner = FirstRows(("n",), (("value", True),))()
    repeating = made(3, 200, 3).set_column(3, SCHEMA.field(3), pa.array([7] * 200))
    assert combiner.combine(made(3, 200, 3)).num_rows == 200
    assert [combiner.combine(repeating).num_rows for _ in range(16)] == [*[200] * 15, 1]


def test_small_batches_pass() -> None:
    batch = made(4, 127, 1)
    assert FirstRows(("key",), (("value", True),))().combine(batch) is batch


@pytest.mark.parametrize("final", [False, True])
def test_fewer_rows_leave_than_were_emitted(final: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan says so, and the exchange counts what it sends."""
    rows = made(5, 20_000, 4).drop_columns(["value"])
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
    best = env.from_source(hg.sources.iterable(rows)).key_by("key").max_by("n", final=final)
    best.sink_to(hg.sinks.null())
    env.explain()
    assert "by key group of key (sends of each batch at most 1 row of a key)" in capsys.readouterr().out
    metrics = env.execute().metrics
    [exchange] = metrics["edges"].values()
    assert metrics["operators"]["iterable"]["rows_out"] == 20_000
    assert exchange["rows_out"] == metrics["operators"]["top"]["rows_in"] < 1_000


@pytest.mark.parametrize(("keep", "final"), [("first", False), ("last", False), ("last", True)])
@pytest.mark.parametrize("timed", [False, True])
def test_a_deduplication_gives_what_it_gives_row_by_row(
    keep: Literal["first", "last"], final: bool, timed: bool
) -> None:
    """Of rows with equal times, the last one counts. Batches of one row are not combined."""
    chance = random.Random(6)
    rows = [{"k": chance.randrange(9), "t": chance.randrange(50), "n": number} for number in range(3_000)]
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us"), "n": pa.int64()})
    found = []
    for size in (1, 1000):
        batches = [pa.RecordBatch.from_pylist(rows[at : at + size], schema=schema) for at in range(0, 3_000, size)]
        env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
        watermark = hg.Watermark("t", out_of_orderness="1 s") if timed else None
        stream = env.from_source(hg.sources.iterable(batches), watermark=watermark)
        kept = stream.deduplicate("k", keep=keep, final=final).collect().to_pylist()
        found.append({row["k"]: row["n"] for row in kept})  # the last row of each key
    assert found[0] == found[1]
    assert len(found[0]) == 9
