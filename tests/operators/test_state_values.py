"""How keyed state checks, stores and returns values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.operators.keyed.keyed_state import ListState, MapState, ValueState
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


def test_many_entries_of_a_map_expire_at_once(at: Current) -> None:
    state = MapState(pa.int64(), pa.int64(), ttl="10 us").bound("state", at)
    for at.now, keys in ((0, range(1000)), (5, range(1000, 1003))):
        state.put_all(dict.fromkeys(keys, 1))
    at.now = 10
    assert list(state.keys()) == [1000, 1001, 1002]
    at.now = 15
    assert state.is_empty()
    assert state.nbytes == 0
