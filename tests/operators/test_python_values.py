"""Rows of Python values are the same as Arrow's own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import DataError
from headgate.operators.python_values import python_rows, python_values

#: Before and after the epoch, in and around repeated and skipped hours, the first and the last moment of Python.
MOMENTS = [
    0, -1, 1, None, 1_635_638_400_000_000, 1_635_642_000_000_001, 1_616_893_200_000_000, -62_135_596_800_000_000,
    253_402_300_799_999_999,
]  # fmt: skip
ZONES = [None, "UTC", "Europe/Berlin", "+03:00", "America/St_Johns"]


def column(unit: str, zone: str | None, moments: list[int | None]) -> pa.Array:
    per_second = {"s": 10**6, "ms": 10**3, "us": 1}[unit]
    return pa.array([None if each is None else each // per_second for each in moments], pa.timestamp(unit, zone))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_timestamps_are_those_of_arrow(unit: str, zone: str | None) -> None:
    moments = MOMENTS if zone in (None, "UTC") else MOMENTS[:-2]  # the zone's offset would leave Python's years
    values = column(unit, zone, moments)
    for given in (values, values[2:5], values[:0], values[3:4]):
        assert python_values(given, "t") == given.to_pylist()
        zones = [(moment.tzinfo, moment.fold) for moment in python_values(given, "t") if moment is not None]
        assert zones == [(moment.tzinfo, moment.fold) for moment in given.to_pylist() if moment is not None]


@pytest.mark.parametrize("moment", [-62_135_596_800_000_001, 253_402_300_800_000_000, 1 << 62])
def test_a_moment_that_python_does_not_have_is_named(moment: int) -> None:
    batch = pa.record_batch({"n": [1], "when": pa.array([moment], pa.timestamp("us", "UTC"))})
    with pytest.raises(DataError, match="column 'when' of type timestamp"):
        python_rows(batch)


COLUMNS: dict[str, pa.Array] = {
    "a": pa.array([1, None, 3]),
    'it\'s "quoted"\n': pa.array(["x", None, "z"]),
    "v0": pa.array([[1], None, []]),
    "class": pa.array([datetime(2021, 1, 1), None, datetime(1960, 1, 1)]),
}


@pytest.mark.parametrize("count", range(len(COLUMNS) + 1))
def test_rows_are_those_of_arrow(count: int) -> None:
    names = list(COLUMNS)[:count]
    rows: list[dict[str, Any]] = pa.table({name: COLUMNS[name] for name in names}).to_pylist() if names else []
    batch = pa.RecordBatch.from_arrays([COLUMNS[name] for name in names], names=names)
    assert python_rows(batch) == rows


def test_every_row_has_a_dict_of_its_own() -> None:
    first, second = python_rows(pa.record_batch({"n": [1, 1]}))
    first["n"] = 2
    assert second == {"n": 1}
