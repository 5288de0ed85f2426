"""`ValueLog` keeps texts in chunks that Arrow can hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.records.canonical import Int64s
from headgate.state import values
from headgate.state.values import ValueLog


def test_large_chunks_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_MOST_BYTES", 4000)
    log = ValueLog(pa.string())
    for number in range(20):
        log.append(pa.array([f"{number:0500}"]))
    assert max(chunk.nbytes for chunk in log._chunks) <= 4000
    assert log.take(np.arange(20)).to_pylist() == [f"{number:0500}" for number in range(20)]


def test_what_is_too_large_for_one_array_is_kept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ValueLog(pa.string())
    log.append(pa.array(["a", "b", "c", "d", "e"]))
    whole = ValueLog.take

    def take(self: ValueLog, positions: Int64s) -> pa.Array:
        if len(positions) > 2:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return whole(self, positions)

    with monkeypatch.context() as patch:
        patch.setattr(ValueLog, "take", take)
        log.keep(np.array([4, 3, -1, 0]))
    assert len(log) == 4
    assert log.take(np.arange(4)).to_pylist() == ["e", "d", None, "a"]
