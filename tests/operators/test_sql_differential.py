"""Random expressions have the same results as in DuckDB, whose rules for null and NaN are those of Spark SQL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.operators.sql.expressions import compile_expression


class Pair(NamedTuple):
    """An expression for Headgate, and the same for DuckDB, which has narrower literals and no default escape."""

    ours: str
    theirs: str


def join(*parts: Pair | str) -> Pair:
    texts = [part if isinstance(part, Pair) else Pair(part, part) for part in parts]
    return Pair(" ".join(text.ours for text in texts), " ".join(text.theirs for text in texts))


def columns(*names: str) -> st.SearchStrategy[Pair]:
    return st.sampled_from([Pair(name, name) for name in names])


def binary(operand: st.SearchStrategy[Pair], *operators: str) -> st.SearchStrategy[Pair]:
    return st.builds(lambda a, o, b: join("(", a, o, b, ")"), operand, st.sampled_from(operators), operand)


def listed(operand: st.SearchStrategy[Pair], items: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def build(a: Pair, word: str, values: list[Pair]) -> Pair:
        inner = [part for value in values for part in (value, ",")][:-1]
        return join("(", a, word, "(", *inner, ")", ")")

    return st.builds(build, operand, st.sampled_from(["in", "not in"]), st.lists(items, min_size=1, max_size=4))


def between(operand: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    word = st.sampled_from(["between", "not between"])
    return st.builds(lambda a, w, b, c: join("(", a, w, b, "and", c, ")"), operand, word, operand, operand)


NULL = st.just(Pair("null", "null"))
INT_LITERALS = st.integers(-9, 9).map(lambda n: Pair(str(n), f"({n})::bigint"))
FLOAT_LITERALS = st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, 1e300]).map(lambda x: Pair(repr(x), f"({x!r})::double"))
STRINGS = ["", "a", "ab", "b", "A", "é", "a%", "a_b", "a\\b", "%", "a\nb", " a b "]
quoted = {text: text.replace("\\", "\\\\") for text in STRINGS}
STRING_LITERALS = st.sampled_from([Pair(f"'{quoted[text]}'", f"'{text}'") for text in STRINGS])
TIME_LITERALS = st.sampled_from(["1969-12-31 23:59:59.999999", "1970-01-01", "2024-02-29 12:00:00"]).map(
    lambda text: Pair(f"timestamp '{text}'", f"timestamp '{text}'")
)
PATTERNS = st.lists(st.sampled_from(["%", "_", "a", "b", "é", "!%", "!_", "!!", "\n"]), max_size=4).map("".join)


def called(operand: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Return calls of functions that mean the same in both, and `case`."""
    names = st.sampled_from(["coalesce", "greatest", "least", "nullif"])
    calls = st.builds(lambda name, a, b: join(f"{name}(", a, ",", b, ")"), names, operand, operand)
    test = columns("f", "g")
    return calls | st.builds(lambda f, a, b: join("case when", f, "then", a, "else", b, "end"), test, operand, operand)


def forms(operands: st.SearchStrategy[Pair], *texts: str) -> st.SearchStrategy[Pair]:
    """Return the texts with an operand at each `{}`. DuckDB has other names for some functions."""

    def build(text: str, operand: Pair) -> Pair:
        theirs = text.replace("startswith", "starts_with").replace("endswith", "ends_with")
        return Pair(text.replace("{}", operand.ours), theirs.replace("{}", operand.theirs))

    return st.builds(build, st.sampled_from(texts), operands)


PARTS = ("year", "quarter", "month", "day", "dayofyear", "weekofyear", "hour", "minute")
UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
times = st.recursive(
    columns("t", "v") | TIME_LITERALS,
    lambda inner: (
        forms(inner, *(f"date_trunc('{unit}', {{}})" for unit in UNITS))
        | forms(inner, "({} + interval 90 minutes)", "({} - interval 3 days)", "({} + interval 1 month)")
        | called(inner)
    ),
    max_leaves=2,
)
names: st.SearchStrategy[Pair] = st.deferred(lambda: strings)
ints = st.recursive(
    columns("i", "j", "k")
    | INT_LITERALS
    | forms(times, *(f"{part}({{}})" for part in PARTS))
    | forms(names, "length({})", "instr({}, 'a')"),
    lambda inner: (
        binary(inner, "+", "-", "*", "%")
        | inner.map(lambda a: join("( -", a, ")"))
        | inner.map(lambda a: join("abs(", a, ")"))
        | called(inner)
    ),
    max_leaves=5,
)
#: Headgate computes with float32 as with float64.
FLOAT32 = st.just(Pair("z", "z::double"))
floats = st.recursive(
    columns("x", "y") | FLOAT32 | FLOAT_LITERALS,
    lambda inner: (
        binary(inner | ints, "+", "-", "*", "/", "%")
        | inner.map(lambda a: join("( -", a, ")"))
        | forms(inner, "abs({})", "degrees({})")
        | called(inner)
    ),
    max_leaves=5,
)
strings: st.SearchStrategy[Pair] = st.recursive(
    columns("s", "r") | STRING_LITERALS,
    lambda inner: (
        binary(inner, "||")
        | inner.map(lambda a: join("substring(", a, ", 2, 2)"))
        | inner.map(lambda a: join("replace(", a, ", 'a', 'bc')"))
        | forms(inner, "reverse({})", "upper({})", "lower({})", "trim({})", "ltrim({})", "rtrim({})", "repeat({}, 2)")
        | forms(inner, "left({}, 2)", "right({}, 1)", "lpad({}, 3, 'xy')", "rpad({}, 3, 'z')", "substring({}, 2)")
        | forms(inner, "split_part({}, 'a', 1)", "concat_ws('-', {}, 'c', {})")
        | called(inner)
    ),
    max_leaves=3,
)
numbers = ints | floats
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "!=", "==")
conditions = st.recursive(
    st.one_of(
        columns("f", "g"),
        NULL.map(lambda null: Pair(null.ours, "null::boolean")),
        *(binary(operand, *COMPARISONS) for operand in (numbers, strings, times)),
        *(between(operand) for operand in (numbers, strings, times)),
        listed(ints, INT_LITERALS | NULL | columns("j")),
        listed(floats, FLOAT_LITERALS | NULL),
        listed(strings, STRING_LITERALS | NULL),
        listed(times, TIME_LITERALS | NULL | columns("v")),
        st.builds(
            lambda a, w, p: Pair(f"({a.ours} {w} '{p}' escape '!')", f"({a.theirs} {w} '{p}' escape '!')"),
            strings,
            st.sampled_from(["like", "not like"]),
            PATTERNS,
        ),
        st.builds(
            lambda a, w: join("(", a, w, ")"), numbers | strings | times, st.sampled_from(["is null", "is not null"])
        ),
        forms(strings, "contains({}, 'a')", "startswith({}, 'a')", "endswith({}, 'b')"),
    ),
    lambda inner: binary(inner, "and", "or", "=", "<") | inner.map(lambda a: join("( not", a, ")")),
    max_leaves=6,
)


def rows(values: list[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(st.sampled_from([None, *values]), min_size=ROWS, max_size=ROWS)


ROWS = 12
FLOATS = [0.0, -0.0, 1.5, -2.0, 1e300, math.inf, -math.inf, math.nan]
TIMES = [-1, 0, 1_709_208_000_000_000]
COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "i": (pa.int64(), [-9, -1, 0, 1, 2, 7]),
    "j": (pa.int64(), [-9, 0, 3]),
    "k": (pa.int32(), [-2, 0, 5]),
    "x": (pa.float64(), list(FLOATS)),
    "y": (pa.float64(), list(FLOATS)),
    "z": (pa.float32(), [0.0, -0.0, 0.1, -2.0, 3e38, math.inf, math.nan]),
    "s": (pa.string(), list(STRINGS)),
    "r": (pa.string(), list(STRINGS)),
    "t": (pa.timestamp("us"), list(TIMES)),
    "v": (pa.timestamp("us"), list(TIMES)),
    "f": (pa.bool_(), [True, False]),
    "g": (pa.bool_(), [True, False]),
}
batches = st.fixed_dictionaries({name: rows(values) for name, (_, values) in COLUMNS.items()}).map(
    lambda data: pa.record_batch({name: pa.array(data[name], COLUMNS[name][0]) for name in data})
)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("set threads = 1")
        for setting in ("ieee_floating_point_ops", "error_on_division_by_zero"):  # so that a division by zero is null
            connection.execute(f"set {setting} = false")
        yield connection


def same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours):
        return math.isnan(theirs)
    if isinstance(ours, datetime) and ours.tzinfo is not None:  # DuckDB's times have no zone, and are in UTC
        ours = ours.astimezone(UTC).replace(tzinfo=None)
    return ours == theirs


def check(duck: duckdb.DuckDBPyConnection, pair: Pair, batch: pa.RecordBatch) -> None:
    table = pa.Table.from_batches([batch])
    duck.register("data", table)
    theirs = [row[0] for row in duck.execute(f"select {pair.theirs} from data").fetchall()]
    ours = compile_expression(pair.ours, batch.schema).evaluate(batch).to_pylist()
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert same(a, b), (pair, ours, theirs)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(conditions, batches)
def test_conditions_as_duckdb(duck: duckdb.DuckDBPyConnection, pair: Pair, batch: pa.RecordBatch) -> None:
    check(duck, pair, batch)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(numbers, batches)
def test_arithmetic_as_duckdb(duck: duckdb.DuckDBPyConnection, pair: Pair, batch: pa.RecordBatch) -> None:
    check(duck, pair, batch)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(strings | times, batches)
def test_texts_and_times_as_duckdb(duck: duckdb.DuckDBPyConnection, pair: Pair, batch: pa.RecordBatch) -> None:
    check(duck, pair, batch)
