"""How keyed state checks, stores and returns values."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headgate.operators.keyed.keyed_state import ListState, MapState, ValueState
from headgate.operators.keyed.plain_values import Unfit
from headgate.operators.keyed.state_base import Current
from headgate.operators.keyed.state_values import StoredValues

POINT = pa.struct([("x", pa.int64()), ("names", pa.list_(pa.string()))])

NESTED: list[tuple[pa.DataType, Any]] = [
    (POINT, {"x": 1, "names": ["a", None, "ü", "\U0001f600"]}),
    (POINT, {"x": None, "names": None}),
    (pa.list_(POINT), [{"x": 1, "names": []}, None]),
    (pa.large_list(pa.list_(pa.float64())), [[1.5], [], None]),
    (pa.struct([("at", pa.timestamp("us"))]), {"at": datetime(2021, 1, 1)}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (pa.list_(pa.binary(2), 2), [b"ab", b"cd"]),
]


@pytest.fixture
def at() -> Current:
    """Return the current key for states: the first key."""
    current = Current()
    current.slot = 0
    return current


@pytest.mark.parametrize(("kind", "value"), NESTED, ids=str)
def test_nested_values_are_read_as_they_were_written(kind: pa.DataType, value: Any) -> None:
    values = StoredValues(kind, "value")
    stored = values.check(value)
    assert values.read(stored) == value
    assert values.size(stored) > 0
    column = values.column([stored, stored])
    assert column.type == kind
    assert column.to_pylist() == [value, value]
    assert [values.read(each) for each in values.of_column(column)] == [value, value]


def test_changing_a_list_or_dict_does_not_change_the_state(at: Current) -> None:
    state = ValueState(pa.list_(POINT)).bound("state", at)
    written = [{"x": 1, "names": ["a"]}]
    state.update(written)
    written[0]["names"].append("b")  # type: ignore[attr-defined]
    read = state.value()
    assert read == [{"x": 1, "names": ["a"]}]
    read[0]["names"].clear()
    read.clear()
    assert state.value() == [{"x": 1, "names": ["a"]}]


def test_arrow_checks_struct_fields_that_python_classes_do_not_show(at: Current) -> None:
    """Python takes a boolean for an int, and a str may have a lone surrogate. Arrow checks both."""
    state = ValueState(POINT).bound("state", at)
    for wrong in ({"x": 1, "names": ["\ud800"]}, {"x": "1", "names": []}, {"x": 1.5, "names": []}, {"y": 1}, [1]):
        with pytest.raises(TypeError, match="value state 'state'"):
            state.update(wrong)
    state.update({"x": 1})
    assert state.value() == {"x": 1, "names": None}


@pytest.mark.parametrize("null", [None, pa.scalar(None, pa.int64())], ids=repr)
def test_a_null_is_refused(at: Current, null: object) -> None:
    with pytest.raises(TypeError, match="list state 'l'"):
        ListState(pa.int64()).bound("l", at).add(null)
    with pytest.raises(TypeError, match="map state 'm'"):
        MapState(pa.int64(), pa.int64()).bound("m", at).put(null, 1)


@pytest.mark.parametrize("beyond", [2**62, datetime.max], ids=repr)
def test_a_time_that_python_does_not_know_is_an_error_with_the_states_name(at: Current, beyond: object) -> None:
    state = ValueState(pa.timestamp("us") if beyond == 2**62 else pa.timestamp("ns")).bound("state", at)
    with pytest.raises(TypeError, match="value state 'state'"):
        state.update(beyond)


def test_two_times_of_a_repeated_hour_are_two_keys(at: Current) -> None:
    kind = pa.timestamp("us", "Europe/Berlin")
    state = MapState(kind, pa.int64()).bound("state", at)
    moments = [datetime(2021, 10, 31, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    for hour, moment in enumerate(moments):
        state.put(moment, hour)
    assert [state.get(moment) for moment in moments] == [0, 1]
    keys = list(state.keys())
    assert [key.astimezone(UTC) for key in keys] == moments
    assert {str(key.tzinfo) for key, _ in state.items()} == {"Europe/Berlin"}
    slots, columns = state.columns([0])
    other = MapState(kind, pa.int64()).bound("state", at)
    other.load(slots, columns, 0)
    assert list(other.items()) == list(state.items())


def test_nanoseconds_of_a_time_are_kept(at: Current) -> None:
    state = ValueState(pa.time64("ns")).bound("state", at)
    state.update(1_234_567_891)
    slots, columns = state.columns([0])
    assert columns["value"].cast(pa.int64()).to_pylist() == [1_234_567_891]
    other = ValueState(pa.time64("ns")).bound("state", at)
    other.load(slots, columns, 0)
    assert other.columns([0])[1]["value"].equals(columns["value"])


ZONES = [None, UTC, timezone(timedelta(hours=2)), ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/Lima")]
#: Values around the limits of the types.
LIMITS: list[Any] = [
    *(
        sign * (1 << bits) + add
        for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64)
        for sign in (1, -1)
        for add in (-1, 0, 1)
    ),
    *(np.int64(5), np.uint8(255), np.float64(1.5), np.float32(0.1), np.float16(7), np.bool_(True)),
    *(True, 0.1, -0.0, 1e300, 65519.0, 65520.0, 3.4028235e38, 3.4028236e38, math.inf, 1e-46),
    *("", "ü", "\ud800", b"", b"ab", b"abc", None, [1], object()),
    *(
        date(1, 1, 1),
        date.max,
        time(1, 2, 3),
        time(1, 2, 3, 4000),
        time(1, 2, 3, 4),
        time(1, fold=1),
        time(1, tzinfo=UTC),
    ),
    *(
        timedelta.max,
        timedelta.min,
        timedelta(days=106_751_991),
        timedelta(days=-3, milliseconds=5),
        timedelta(seconds=1),
    ),
    *map(Decimal, ("0", "-0", "1.5", "-1.50", "1.55", "1E+2", "99999", "999.99", "NaN", "Infinity")),
    *(datetime(2021, 10, 31, 2, 30, fold=fold, tzinfo=zone) for fold in (0, 1) for zone in ZONES),
    *(datetime(2021, 3, 28, 2, 30, 1, 5_000, tzinfo=zone) for zone in ZONES),
    *(day.replace(tzinfo=zone) for day in (datetime.min, datetime.max, datetime(2300, 1, 1)) for zone in ZONES),
    *(pd.Timestamp("2021-10-31 00:30:00.000000001", tz=zone) for zone in ZONES),
    *(pd.Timestamp.min, pd.Timestamp.max, pd.Timestamp(2021, 1, 1).as_unit("s"), pd.Timestamp(2300, 1, 1).as_unit("s")),
    *(pd.Timedelta(1, "ns"), pd.Timedelta.min, pd.Timedelta.max, pd.Timedelta(np.timedelta64(10**12, "s")), pd.NaT),
]
PLAIN = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.binary(2)),
    *(pa.date32(), pa.date64(), pa.decimal128(5, 1), pa.decimal128(5, -1), pa.decimal256(50, 2)),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns")),
    *(
        pa.timestamp(unit, zone)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "+02:00", "Europe/Berlin")
    ),
]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.timestamp("ns", "Europe/Berlin"), pd.Timestamp(7, tz="UTC")), (pa.duration("ns"), pd.Timedelta(7, "ns"))],
    ids=str,
)
def test_times_of_pandas_are_taken_with_their_nanoseconds(kind: pa.DataType, value: Any) -> None:
    """These are the values that functions get from their rows, so Arrow need not convert them."""
    assert pa.array([7], pa.int64()).view(kind)[0].as_py() == value
    assert StoredValues(kind, "value")._take(value) == 7


def stored(check: Callable[[Any], Any], value: Any) -> Any:
    """Return what `check` stores for the value, in a form that shows its class and zone, or that it is an error."""
    try:
        result = check(value)
    except TypeError:
        return "an error"
    return repr(result), type(result), getattr(result, "fold", 0)


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_a_value_is_stored_as_arrow_would_store_it(kind: pa.DataType) -> None:
    values = StoredValues(kind, "value")
    taken = 0
    for value in LIMITS:
        assert stored(values.check, value) == stored(values._converted, value), repr(value)
        with suppress(Unfit):
            taken += values._take(value) is not None
    assert taken, "Arrow converted every value"


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_a_stored_value_is_the_same_after_a_restore(kind: pa.DataType) -> None:
    values = StoredValues(kind, "value")
    for value in LIMITS:
        with suppress(TypeError):
            kept = values.check(value)
            assert values.column([kept]).type == kind
            assert repr(values.of_column(values.column([kept]))) == repr([kept])
            assert values.read(kept) is not None
            assert values.size(kept) > 0


def test_a_map_may_change_while_it_is_read(at: Current) -> None:
    state = MapState(pa.int64(), pa.int64()).bound("state", at)
    state.put_all(dict.fromkeys(range(3), 0))
    items, again = state.items(), state.keys()
    assert next(items) == (0, 0)
    for number, _ in state.items():
        state.put(number + 10, 1)
    state.remove(1)
    assert list(items) == [(1, 0), (2, 0)]
    assert list(again) == [0, 1, 2]
    assert sorted(state.keys()) == [0, 2, 10, 11, 12]
    at.slot = 1
    assert list(state.values()) == []


def test_reading_a_map_copies_nothing(at: Current) -> None:
    state = MapState(pa.int64(), pa.int64()).bound("state", at)
    state.put(1, 1)
    cell = state._cells[0]
    for _ in state.items():
        pass
    for _ in state.values():
        break
    state.put(2, 2)
    assert state._cells[0] is cell


def test_a_list_may_change_while_it_is_read(at: Current) -> None:
    state = ListState(pa.int64(), ttl="10 us").bound("state", at)
    state.add_all([1, 2])
    for element in state:
        state.add(element + 10)
    assert state.get() == [1, 2, 11, 12]
    elements = iter(state)
    at.now = 5
    state.add(3)
    at.now = 10
    assert len(state) == 1
    assert list(elements) == [1, 2, 11, 12]
    assert list(state) == [3]


def test_an_append_after_a_snapshot_copies_no_list(at: Current) -> None:
    state = ListState(pa.int64(), ttl="10 us").bound("state", at)
    state.add_all([1, 2])
    cell = state._cells[0]
    snapshot = state.frozen()
    state.add(3)
    assert state._cells[0] is cell
    at.now = 10
    assert state.get() == []
    assert snapshot.columns([0])[1]["values"].to_pylist() == [[1, 2]]
    assert snapshot.columns([0])[1]["written"].to_pylist() == [[0, 0]]


def test_many_entries_of_a_map_expire_at_once(at: Current) -> None:
    state = MapState(pa.int64(), pa.int64(), ttl="10 us").bound("state", at)
    for at.now, keys in ((0, range(1000)), (5, range(1000, 1003))):
        state.put_all(dict.fromkeys(keys, 1))
    at.now = 10
    assert list(state.keys()) == [1000, 1001, 1002]
    at.now = 15
    assert state.is_empty()
    assert state.nbytes == 0
