"""Each aggregate agrees with plain Python, in random batches, with slots removed in between. Errors are tested, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import DataError, PlanError
from headgate.operators.aggregates import aggregates as hg
from headgate.operators.aggregates.accumulator_set import AccumulatorSet, accumulator
from tests.arrow_types import array_of, decimal32
from tests.examples import examples
from tests.operators.window_rig import canonical

SCHEMA = pa.schema([("whole", pa.int64()), ("real", pa.float64()), ("text", pa.string()), ("flag", pa.bool_())])


def over_values(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return the result of an aggregate in SQL: it ignores nulls, and is null over no values."""

    def aggregate(values: list[Any]) -> Any:
        known = [value for value in values if value is not None]
        return function(known) if known else None

    return aggregate


def order(value: Any) -> Any:
    return (value != value, value) if isinstance(value, float) else value


def total(values: list[Any]) -> Any:
    return sum(values) if isinstance(values[0], int) else float(np.sum(values))


MODELS: dict[str, Callable[[list[Any]], Any]] = {
    "count": lambda values: sum(value is not None for value in values),
    "sum": over_values(total),
    "mean": over_values(lambda values: total(values) / len(values)),
    "min": over_values(lambda values: min(values, key=order)),
    "max": over_values(lambda values: max(values, key=order)),
    "count_distinct": lambda values: len({canonical(value) for value in values if value is not None}),
    "collect_list": lambda values: [value for value in values if value is not None],
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}
COLUMNS = {
    "whole": st.one_of(st.none(), st.integers(-(2**54), 2**54), st.integers(-3, 3)),
    "real": st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, 1.5, -2.0, 1e9])),
    "text": st.one_of(st.none(), st.text(st.sampled_from("abé\0"), max_size=20)),
    "flag": st.one_of(st.none(), st.booleans()),
}
PAIRS = [
    (kind, name) for name in COLUMNS for kind in MODELS if name in ("whole", "real") or kind not in ("sum", "mean")
]


@pytest.mark.parametrize(("kind", "name"), PAIRS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_aggregates_are_those_of_plain_python(kind: Any, name: str, data: st.DataObject) -> None:
    spec, column_type = hg.Aggregate(kind, name), SCHEMA.field(name).type
    state, model, clock = accumulator(spec, SCHEMA), list[list[Any]](), 0
    for batch in data.draw(st.lists(st.lists(st.tuples(st.integers(0, 5), COLUMNS[name]), min_size=1), max_size=5)):
        numbers = sorted({slot for slot, _ in batch if slot >= len(model)})
        slots = [slot if slot < len(model) else len(model) + numbers.index(slot) for slot, _ in batch]
        model += [[] for _ in numbers]
        for slot, (_, value) in zip(slots, batch, strict=True):
            model[slot].append(value)
        times = np.arange(clock, clock + len(batch))
        clock += len(batch)
        values = pa.array([value for _, value in batch], column_type, from_pandas=False)
        state.update(len(model), np.array(slots), values, times)
        if data.draw(st.booleans()):
            live = data.draw(st.lists(st.sampled_from(range(len(model))), unique=True))
            state.keep(np.array(live, np.int64))
            model = [model[slot] for slot in live]
    wanted = data.draw(st.permutations(range(len(model))))
    result = state.result(np.array(wanted, np.int64))
    result.validate(full=True)
    assert result.type == spec.output_field("x", SCHEMA).type
    expected = [MODELS[kind](model[slot]) for slot in wanted]
    assert [canonical(value) for value in result.to_pylist()] == [canonical(value) for value in expected]


OTHER_TYPES = [
    (pa.int8(), [3, None, -128, 127]),
    (pa.uint64(), [2**64 - 1, None, 0, 5]),
    (pa.float32(), [1.5, None, -2.5, math.inf]),
    (pa.float16(), [1.5, None, -2.5, 8.0]),
    (pa.date32(), [date(2013, 1, 1), None, date(1960, 5, 5), date(2020, 2, 2)]),
    (pa.time64("us"), [time(1), None, time(0, 30), time(2)]),
    (pa.timestamp("ms"), [datetime(2013, 1, 1), None, datetime(1960, 1, 1), datetime(2020, 1, 1)]),
    (pa.decimal128(20, 2), [Decimal("1.50"), None, Decimal("-9.25"), Decimal("7.00")]),
    (decimal32(5, 2), [Decimal("1.50"), None, Decimal("-9.25"), Decimal("7.00")]),
    (pa.binary(), [b"b", None, b"", b"c"]),
    (pa.binary(2), [b"bb", None, b"aa", b"cc"]),
    (pa.large_string(), ["b", None, "a", "c"]),
    (pa.string_view(), ["b", None, "a", "c"]),
    (pa.dictionary(pa.int8(), pa.string()), ["b", None, "a", "c"]),
]


@pytest.mark.parametrize(("kind", "values"), OTHER_TYPES, ids=[str(kind) for kind, _ in OTHER_TYPES])
def test_other_column_types(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("x", kind)])
    kinds: list[Any] = ["min", "max", "first", "last", "count_distinct", "collect_list", "count"]
    specs = tuple((name, hg.Aggregate(name, "x")) for name in kinds)
    state = AccumulatorSet(specs, schema)
    for begin in (0, 2):
        part = array_of(values[begin : begin + 2], kind)
        state.update(1, np.array([0, 0]), pa.record_batch([part], schema=schema), np.array([begin, begin + 1]))
    known = [value for value in values if value is not None]
    expected = [min(known), max(known), values[0], values[-1], 3, known, 3]
    assert [column.to_pylist()[0] for column in state.results(np.array([0]))] == expected
    fields = [spec.output_field(name, schema) for name, spec in specs]
    assert [column.type for column in state.results(np.array([0]))] == [field.type for field in fields]


def sums(*batches: list[int], kind: pa.DataType | None = None) -> Any:
    schema = pa.schema([("x", kind or pa.int64())])
    state = accumulator(hg.sum("x"), schema)
    for values in batches:
        state.update(1, np.zeros(len(values), np.int64), pa.array(values, schema.field("x").type), None)
    return state.result(np.array([0])).to_pylist()[0]


def test_integer_sums_are_exact_even_if_they_overflow_on_the_way() -> None:
    most, least = 2**63 - 1, -(2**63)
    assert sums([2**53, 1]) == 2**53 + 1
    assert sums([most], [most], [least], [least], [1]) == -1
    assert sums([most, most, most, least, least, least]) == -3
    assert sums([least]) == least
    assert sums([least, most]) == -1
    assert sums([2**63 - 1, 0], kind=pa.uint64()) == most
    assert sums([2**62] * 100, [-(2**62)] * 99) == 2**62


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63 - 1, 1], pa.int64()),
        ([-(2**63), -1], pa.int64()),
        ([2**62] * 50, pa.int64()),
        ([2**63], pa.uint64()),
        ([2**64 - 1] * 3, pa.uint64()),
    ],
)
def test_an_integer_sum_beyond_64_bits_is_an_error_with_its_value(values: list[int], kind: pa.DataType) -> None:
    with pytest.raises(DataError, match=rf"sum\('x'\) is {sum(values)}, which does not fit into int64; make 'x' a"):
        sums(values, kind=kind)


def test_a_mean_of_integers_is_right_if_their_sum_exceeds_64_bits() -> None:
    state = accumulator(hg.mean("x"), pa.schema([("x", pa.int64())]))
    state.update(1, np.zeros(4, np.int64), pa.array([2**62] * 4), None)
    assert state.result(np.array([0])).to_pylist() == [2.0**62]


def test_nan_is_greater_than_any_number() -> None:
    schema = pa.schema([("x", pa.float64())])
    for spec, expected in ((hg.max("x"), "NaN"), (hg.min("x"), -math.inf)):
        state = accumulator(spec, schema)
        column = pa.array([math.nan, -math.inf, math.inf, math.nan], from_pandas=False)
        state.update(2, np.array([0, 0, 0, 1]), column, None)
        first, second = state.result(np.array([0, 1])).to_pylist()
        assert canonical(first) == expected
        assert math.isnan(second)


def test_replaced_values_are_freed() -> None:
    schema = pa.schema([("x", pa.string())])
    state = accumulator(hg.last("x"), schema)
    column = pa.array(["a value of some length"] * 1000)
    sizes = []
    for step in range(300):
        state.update(1000, np.arange(1000), column, np.full(1000, step))
        sizes.append(state.nbytes)
    assert max(sizes) < 4_000_000


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (hg.sum("sum"), r"x=sum\('sum'\): there is no column 'sum'; there are: whole, real, text, flag, twice, twice"),
        (hg.sum("text"), r"x=sum\('text'\): column 'text' is string, and sum takes numbers"),
        (hg.mean("flag"), "column 'flag' is bool, and mean takes numbers"),
        (hg.max("list"), r"column 'list' is list<item: int64>, and max takes numbers, times, strings"),
        (hg.count_distinct("list"), "and count_distinct takes numbers, times, strings, binaries and booleans"),
        (hg.count("twice"), "there is more than one column 'twice'"),
        (hg.Aggregate("sum"), r"x=sum\(\) needs a column"),
    ],
)
def test_impossible_aggregates_are_refused(spec: hg.Aggregate, message: str) -> None:
    schema = SCHEMA.append(pa.field("twice", pa.int64())).append(pa.field("twice", pa.int64()))
    schema = schema.append(pa.field("list", pa.list_(pa.int64())))
    with pytest.raises(PlanError, match=message):
        spec.output_field("x", schema)


def test_first_last_and_lists_take_values_of_any_type() -> None:
    schema = pa.schema([("x", pa.list_(pa.int64()))])
    for spec, expected in ((hg.first("x"), [1]), (hg.last("x"), [3]), (hg.collect_list("x"), [[1], [3]])):
        state = accumulator(spec, schema)
        state.update(1, np.zeros(3, np.int64), pa.array([[1], None, [3]]), np.array([1, 2, 3]))
        assert state.result(np.array([0])).to_pylist() == [expected]
        assert state.result(np.array([0])).type == spec.output_field("y", schema).type
