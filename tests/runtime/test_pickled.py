"""What travels to TaskManagers as bytes."""

from __future__ import annotations

import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headgate.runtime.pickled import pickled

ROWS = 100_000


def table() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table({
        "number": number,
        "text": pa.array(number).cast(pa.string()),
        "word": pa.array(number % 7).cast(pa.string()).dictionary_encode(),
        "list": pa.array([[1, None], None, []] * (ROWS // 3) + [[2]]),
        "exact": pa.array([Decimal("1.25")] * ROWS),
    })  # fmt: skip


def test_batches_of_one_table_take_as_much_as_the_table() -> None:
    batches = table().to_batches(max_chunksize=1000)
    travelled = pickled(batches)
    assert len(travelled) < 1.5 * table().nbytes
    assert pickle.loads(travelled) == batches


@pytest.mark.parametrize("part", [slice(0, 10), slice(ROWS - 10, ROWS), slice(50, 50)])
def test_a_slice_takes_as_much_as_its_rows(part: slice) -> None:
    rows = table().slice(part.start, part.stop - part.start)
    for each in (rows, *rows.to_batches()):
        travelled = pickled(each)
        assert len(travelled) < 10_000
        back = pickle.loads(travelled)
        assert back == each
        assert back.schema.equals(each.schema, check_metadata=True)


def test_what_a_function_holds_is_cut_too() -> None:
    batch = table().to_batches(max_chunksize=10)[5]

    def held() -> pa.RecordBatch:
        return batch

    travelled = pickled(held)
    assert len(travelled) < 10_000
    assert pickle.loads(travelled)() == batch
