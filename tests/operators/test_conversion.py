"""A value that Arrow would change silently is refused. A value that it stores unchanged is accepted."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.operators import conversion
from headgate.operators.conversion import CONVERSION_ERRORS, converted

BERLIN = "Europe/Berlin"
NOON = datetime(2021, 1, 1, 12)
POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])

LOST: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1.5),
    (pa.int32(), Decimal("1.0")),
    (pa.list_(pa.int64()), [1.5, 2.9]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
    (POINT, {"x": 1.5, "y": ""}),
    (POINT, {"x": 1, "typo": 7}),
    (POINT, {"X": 1}),
    (pa.list_(POINT), [{"x": 1}, {"z": 2}]),
    (pa.timestamp("s"), NOON.replace(microsecond=999_999)),
    (pa.timestamp("us"), pd.Timestamp("2021-01-01 00:00:00.000000001")),
    (pa.time32("s"), time(1, 2, 3, 4)),
    (pa.duration("s"), timedelta(seconds=1.9)),
    (pa.date32(), NOON),
    (pa.date64(), NOON),
    (pa.float32(), 1e300),
    (pa.list_(pa.float32()), [1e300]),
    (pa.list_(pa.int8()), [300]),
    (pa.list_(pa.int64()), ["1"]),
    (pa.list_(pa.int64()), "12"),
    (pa.large_list(pa.float64()), [2**53 + 1]),
    (pa.list_(pa.decimal128(3, 1)), [Decimal("1.25")]),
    (POINT, {"x": 1 << 70}),
    (POINT, {"x": 1, "y": 2}),
    (pa.binary(3), b"ab"),
    (pa.time64("us"), time(1, tzinfo=UTC)),
    (pa.list_(pa.time64("ns")), [time(1, tzinfo=UTC)]),
    (pa.duration("us"), pd.Timedelta(1, "ns")),
    (pa.duration("us"), timedelta.max),
    (pa.list_(pa.duration("us")), [timedelta.max]),
]

KEPT: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1),
    (pa.int64(), np.int32(1)),
    (pa.float64(), 1),
    (pa.float32(), 0.1),
    (pa.float32(), math.inf),
    (pa.float32(), math.nan),
    (pa.list_(pa.float32()), np.array([0.1, 2])),
    (pa.list_(pa.int64()), (1, None, 3)),
    (pa.list_(pa.int64()), [1.0]),
    (POINT, {"x": np.int64(1)}),
    (POINT, (1, "y")),
    (pa.map_(pa.string(), POINT), {"a": {"x": 1, "y": "b"}}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (pa.timestamp("s"), NOON),
    (pa.timestamp("us"), NOON.replace(tzinfo=timezone(timedelta(hours=3)))),
    (pa.timestamp("us", BERLIN), NOON),
    (pa.timestamp("us", BERLIN), datetime(2021, 10, 31, 2, 30, fold=1, tzinfo=ZoneInfo(BERLIN))),
    (pa.timestamp("ns"), pd.Timestamp("2021-01-01 00:00:00.000000001")),
    (pa.timestamp("us"), 1_600_000_000_000_000),
    (pa.date32(), date(2021, 1, 1)),
    (pa.date32(), datetime(2021, 1, 1)),
    (pa.duration("s"), timedelta(seconds=2)),
    (pa.decimal128(5, 2), Decimal("1.25")),
    (pa.list_(pa.decimal128(5, 2)), [Decimal("1.25"), 3]),
    (pa.string(), None),
]


#: Values of which each class is exact in its type: Arrow stores them unchanged, or refuses them.
EXACT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.time64("us"), [time(1, 2, 3, 4), None]),
    (pa.time64("ns"), [time(1, 2, 3, 4, fold=1)]),
    (pa.duration("us"), [timedelta(days=-1, microseconds=1), None]),
    (pa.binary(3), [b"abc", None]),
    (pa.date64(), [date(1, 1, 1), None]),
    (pa.list_(pa.int64()), [[1, None], (2,), [], None]),
    (pa.large_list(pa.large_string()), [["a"], None]),
    (pa.list_(pa.decimal128(5, 2)), [[Decimal("1.5"), 3]]),
    (pa.list_(pa.list_(pa.float64())), [[[0.5, math.inf, 7], None], []]),
    (POINT, [{"x": 1}, {"y": "b", "x": None}, {}, None]),
    (pa.list_(POINT), [[{"x": 1, "y": "a"}, None], [], None]),
    (pa.struct([("points", pa.list_(POINT)), ("at", pa.time64("us"))]), [{"points": [{"x": 1}], "at": time(1)}]),
    (pa.list_(pa.int64()), [None, None]),
]


@pytest.mark.parametrize(("kind", "values"), EXACT, ids=str)
def test_values_that_cannot_lose_anything_are_not_compared(
    kind: pa.DataType, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(given: object, stored: object) -> bool:
        raise AssertionError(f"{given} is compared with {stored}")

    monkeypatch.setattr(conversion, "is_kept", compared)
    assert converted(values, kind).equals(pa.array(values, kind))


def outcome(values: list[Any], kind: pa.DataType) -> str:
    try:
        return repr(converted(values, kind).to_pylist())
    except CONVERSION_ERRORS as error:
        return f"{type(error).__name__}: {error}"


NUMBERS = st.none() | st.booleans() | st.integers(-2, 2) | st.integers() | st.floats() | st.decimals(places=1)
POINTS = st.none() | st.dictionaries(st.sampled_from(["x", "y", "z"]), st.integers(0, 9) | st.text(max_size=1))
TIMES = st.times(timezones=st.none() | st.just(UTC)) | st.integers(0, 9)
BY_KIND: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((pa.list_(kind), st.none() | st.lists(NUMBERS, max_size=2))
      for kind in (pa.int8(), pa.float64(), pa.decimal128(3, 1), pa.bool_())),
    (POINT, POINTS),
    (pa.list_(POINT), st.lists(POINTS, max_size=2)),
    (pa.time64("us"), st.none() | TIMES),
    (pa.duration("us"), st.none() | st.timedeltas() | st.integers(0, 9) | st.just(pd.Timedelta(1, "ns"))),
    (pa.binary(2), st.none() | st.binary(max_size=2) | st.text(max_size=2)),
]  # fmt: skip


@given(st.data(), st.sampled_from(BY_KIND))
def test_every_value_is_stored_or_refused_as_by_a_comparison_of_each(
    data: st.DataObject, case: tuple[pa.DataType, st.SearchStrategy[Any]]
) -> None:
    kind, strategy = case
    values = data.draw(st.lists(strategy, max_size=3))
    at_once = outcome(values, kind)
    with mock.patch.multiple(conversion, _STRICT=(), _converted_at_once=lambda *_: None):
        assert at_once == outcome(values, kind)


@pytest.mark.parametrize(("kind", "value"), LOST, ids=str)
def test_a_value_that_arrow_would_change_is_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(CONVERSION_ERRORS):
        converted([None, value], kind)


@pytest.mark.parametrize(("kind", "value"), KEPT, ids=str)
def test_a_value_that_arrow_stores_unchanged_is_accepted(kind: pa.DataType, value: Any) -> None:
    array = converted([value, None], kind)
    assert array.type == kind
    assert len(array) == 2
    assert array[1].as_py() is None


def test_the_error_shows_what_the_value_would_become() -> None:
    with pytest.raises(ValueError, match=r"it would become \[1, 2\] \(list\)"):
        converted([[1.5, 2.9]], pa.list_(pa.int64()))


def test_both_times_of_a_repeated_hour_are_accepted() -> None:
    moments = [datetime(2021, 10, 31, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    assert converted(moments, pa.timestamp("us", BERLIN)).cast(pa.int64()).to_pylist() == [
        int(moment.timestamp() * 1e6) for moment in moments
    ]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_of_many_moments_the_one_that_would_be_cut_is_refused(unit: str) -> None:
    moments = [NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC, microsecond=1)]
    with pytest.raises(ValueError, match="it would become datetime"):
        converted(moments, pa.timestamp(unit, "UTC"))


def test_of_many_floats_the_one_that_would_become_infinite_is_refused() -> None:
    with pytest.raises(ValueError, match="it would become inf"):
        converted([0.5, math.inf, 1e300], pa.float32())
