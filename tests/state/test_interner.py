"""Different strings get different ids, even when all hashes are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.records.canonical import PackedBytes, UInt64s, pack
from headgate.records.hashing import hash_bytes
from headgate.state.interner import Interner


def constant(packed: PackedBytes) -> UInt64s:
    return np.full(len(packed), 42, np.uint64)


@pytest.mark.parametrize("hashing", [hash_bytes, constant], ids=["hashed", "all collide"])
@given(batches=st.lists(st.lists(st.binary(max_size=40), max_size=20), max_size=4))
def test_ids_agree_with_a_dict(hashing: Callable[[PackedBytes], UInt64s], batches: list[list[bytes]]) -> None:
    interner, model = Interner(hashing), dict[bytes, int]()
    for values in batches:
        for value, number in zip(
            values, interner.find_or_add(pack(pa.array(values, pa.binary()))).tolist(), strict=True
        ):
            assert model.setdefault(value, number) == number
    assert sorted(model.values()) == list(range(len(interner)))
    back = interner.strings(np.arange(len(interner)), None, pa.binary()).to_pylist()
    assert {value: number for number, value in enumerate(back)} == model


def test_strings_that_differ_in_one_far_byte_or_in_length_alone() -> None:
    base = b"0123456789abcdef" * 3
    values = [
        base,
        base[:-1] + b"!",
        base[:-1] + b"\0",
        base[:-1],
        base + b"\0",
        base[:20] + b"!" + base[21:],
        base[:16],
    ]
    interner = Interner(constant)
    numbers = interner.find_or_add(pack(pa.array(values * 2, pa.binary()))).tolist()
    assert len(interner) == len(values)
    assert numbers[: len(values)] == numbers[len(values) :]


def test_keep_renumbers_and_frees() -> None:
    interner = Interner()
    values = [f"{number:040}" for number in range(20_000)]
    numbers = interner.find_or_add(pack(pa.array(values)))
    before = interner.nbytes
    interner.keep(numbers[[7, 3]])
    assert interner.strings(np.arange(2), None, pa.string()).to_pylist() == [values[7], values[3]]
    assert interner.find_or_add(pack(pa.array([values[3], "new", values[7]]))).tolist() == [1, 2, 0]
    assert interner.nbytes < before / 2
