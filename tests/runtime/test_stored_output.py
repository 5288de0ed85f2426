"""Output that waits for its batch: it leaves in order, whether its rows are in memory or on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import NetworkMemoryFull
from headgate.exchange.spill_file import SpillFile
from headgate.memory.memory_guard import MemoryGuard
from headgate.runtime.taskmanager.throttling.stored_output import StoredOutput

EIGHT = 8


def guard_of(size: int) -> MemoryGuard:
    return MemoryGuard(size, lambda: 12.34)


def batch_of(number: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([number] * rows, pa.int64())})


@given(st.lists(st.one_of(st.integers(1, 9), st.none(), st.just("pass on")), max_size=60), st.integers(0, 20))
def test_any_output_leaves_in_its_order(steps: list[int | str | None], guard: int) -> None:
    stored, seen, wanted = StoredOutput(guard_of(guard * EIGHT), SpillFile(None)), list[int](), list[int]()
    for number, step in enumerate(steps):
        if step == "pass on":
            if stored:
                stored.pass_on()
        elif isinstance(step, int):
            stored.add_rows(number, batch_of(number, step), lambda batch: seen.extend(batch["n"].to_pylist()))
            wanted += [number] * step
        else:
            stored.add(number, lambda number=number: seen.append(-number))  # type: ignore[misc]
            wanted.append(-number)
    while stored:
        stored.pass_on()
    assert seen == wanted
    stored.close()


def test_it_says_how_many_rows_left_and_what_is_first() -> None:
    stored = StoredOutput(guard_of(1 << 20), None)
    stored.add_rows(3, batch_of(1, 5), lambda _batch: None)
    stored.add(4, lambda: None)
    assert stored.first == 3
    assert stored.pass_on() == 5
    assert stored.first == 4
    assert stored.pass_on() == 0
    assert len(stored) == 0


def test_rows_that_have_left_make_room_in_memory() -> None:
    stored = StoredOutput(guard_of(5 * EIGHT), None)
    for _ in range(3):
        stored.add_rows(0, batch_of(1, 5), lambda _batch: None)
        stored.pass_on()
    stored.add_rows(0, batch_of(1, 5), lambda _batch: None)
    wanted = "out of memory at 12.3 s: .* 48 bytes of rows for later batches, and network_memory has 40 bytes"
    with pytest.raises(NetworkMemoryFull, match=wanted):
        stored.add_rows(0, batch_of(1, 1), lambda _batch: None)


def test_dictionaries_keep_their_values_on_disk(tmp_path: Path) -> None:
    stored, seen = StoredOutput(guard_of(0), SpillFile(str(tmp_path))), []
    batch = pa.record_batch({"city": pa.array(["Rome", "Oslo", "Rome"]).dictionary_encode()})
    stored.add_rows(0, batch, seen.append)
    stored.pass_on()
    assert seen[0].to_pylist() == batch.to_pylist()
    stored.close()
