"""SQL strings: what is allowed, what it means, and that every error shows the position and the reason."""

from __future__ import annotations

import math
import pickle
import struct
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.errors import DataError, PlanError
from headgate.operators.sql.expressions import compile_expression
from headgate.operators.sql.sql_calls import Apply, CaseWhen
from headgate.operators.sql.sql_eval import Call, Column, Literal, SqlNode
from headgate.operators.sql.string_kernels import extract, named_groups
from headgate.operators.sql.time_text import format_with, pattern_fields

NAN = math.nan
BATCH = pa.record_batch(
    {
        "i": pa.array([1, None, -7, 2**62], pa.int64()),
        "x": pa.array([0.0, NAN, None, -0.0], pa.float64()),
        "s": pa.array(["ab", "é%", None, "it's"], pa.string()),
        "f": pa.array([True, False, None, True], pa.bool_()),
        "t": pa.array([0, 1, None, 10**15], pa.timestamp("us")),
        "d": pa.array(["ab", "b", None, "b"]).dictionary_encode(),
        "u": pa.array([1, 2, 3, 2**64 - 1], pa.uint64()),
        "small": pa.array([1, 2, 3, None], pa.int8()),
        "day": pa.array([0, 1, 2, None], pa.date32()),
        "berlin": pa.array([0, 1, None, 10**9], pa.timestamp("s", "Europe/Berlin")),
        "money": pa.array([None] * 4, pa.decimal128(10, 2)),
        "select": pa.array([1, 2, 3, 4], pa.int64()),
        "a b": pa.array([1, 2, 3, 4], pa.int64()),
        "__event_time__": pa.array([0, 0, 0, 0], pa.int64()),
    }
)


def evaluate(text: str) -> list[object]:
    expression = compile_expression(text, BATCH.schema)
    result = expression.evaluate(BATCH)
    assert result.type == expression.type
    assert len(expression.evaluate(BATCH.slice(0, 0))) == 0
    values: list[object] = result.to_pylist()
    return values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i", [1, None, -7, 2**62]),
        ("`a b` + 1", [2, 3, 4, 5]),
        ("select > 2", [False, False, True, True]),
        ("small + 1", [2, 3, 4, None]),
        ("-small", [-1, -2, -3, None]),
        ("- - 5", [5] * 4),
        ("+i", [1, None, -7, 2**62]),
        ("-9223372036854775808", [-(2**63)] * 4),
        ("i / 2", [0.5, None, -3.5, 2.0**61]),
        ("i / 0", [None] * 4),
        ("1 / x", [None, NAN, None, None]),
        ("i % 4", [1, None, -3, 0]),
        ("i % -4", [1, None, -3, 0]),
        ("i % 0", [None] * 4),
        ("5.5 % 2", [1.5] * 4),
        (".5 + 1e3", [1000.5] * 4),
        ("1 + 2 * 3 - 4", [3] * 4),
        ("(1 + 2) * 3", [9] * 4),
        ("x = x", [True, True, None, True]),
        ("x = -0.0", [True, False, None, True]),
        ("x > 1e308", [False, True, None, False]),
        ("x >= x", [True, True, None, True]),
        ("x < x", [False, False, None, False]),
        ("x <> 0", [False, True, None, False]),
        ("x in (0, 7)", [True, False, None, True]),
        ("x in (-0.0)", [True, False, None, True]),
        ("x not in (0, null)", [False, None, None, False]),
        ("i in (1, 2, null)", [True, None, None, None]),
        ("i not in (1, 2)", [False, None, True, True]),
        ("s in ('ab', s, null)", [True, True, None, True]),
        ("i == 1", [True, None, False, False]),
        ("i != 1", [False, None, True, True]),
        ("i between -7 and 1", [True, None, True, False]),
        ("i not between -7 and 1 and f", [False, False, False, True]),
        ("i is null", [False, True, False, False]),
        ("i is not null", [True, False, True, True]),
        ("null is null", [True] * 4),
        ("null = null", [None] * 4),
        ("null", [None] * 4),
        ("f or null", [True, None, None, True]),
        ("f and null", [None, False, None, None]),
        ("not f", [False, True, None, False]),
        ("! f", [False, True, None, False]),
        ("f > false", [True, False, None, True]),
        ("NOT f OR TRUE", [True] * 4),
        ("not i = 1", [False, None, True, True]),
        ('s = "ab"', [True, False, None, False]),
        ("s = 'it''s'", [False, False, None, True]),
        ("s = 'it\\'s'", [False, False, None, True]),
        ("s < 'b'", [True, False, None, False]),
        ("s like 'a_'", [True, False, None, False]),
        ("s like '%'", [True, True, None, True]),
        ("s not like '_\\%'", [True, False, None, True]),
        ("s like '_!%' escape '!'", [False, True, None, False]),
        ("null like 'a'", [None] * 4),
        ("d", ["ab", "b", None, "b"]),
        ("d = 'b'", [False, True, None, True]),
        ("d in ('ab')", [True, False, None, False]),
        ("d = s", [True, False, None, False]),
        ("u > -1", [True] * 4),
        ("u > i", [False, None, True, True]),
        ("t > timestamp '1970-01-01'", [False, True, None, True]),
        ("t >= timestamp '1970-01-01 01:00:00.000001+01:00'", [False, True, None, True]),
        ("t in (timestamp '1970-01-01', null)", [True, None, None, None]),
        ("t between timestamp '1970-01-01T00:00:00Z' and timestamp '1980-01-01'", [True, True, None, False]),
        ("berlin = timestamp '1970-01-01 00:00:01'", [False, True, None, False]),
        ("berlin > t", [False, True, None, False]),
        ("day <= timestamp '1970-01-02'", [True, True, False, None]),
        ("money is null", [True] * 4),
        ("case when i > 0 then 'some' when i < 0 then 'less' end", ["some", None, "less", "some"]),
        ("case i when 1 then 1.5 else 0 end", [1.5, 0.0, 0.0, 0.0]),
        ("case when i < 9 then i * i end", [1, None, 49, None]),
        ("case when i > 9 then replace(s, 'i', 'I') when f then s else upper(s) end", ["ab", "É%", None, "It's"]),
        ("case when i > 9 then cast(s as int) else i end", [1, None, -7, None]),
        ("case when true then upper('a') end", ["A"] * 4),
        ("case when null then upper('a') else lower('B') || s end", ["bab", "bé%", None, "bit's"]),
        ("if(f, i, null)", [1, None, None, 2**62]),
        ("coalesce(i, small)", [1, 2, -7, 2**62]),
        ("nullif(s, 'ab')", [None, "é%", None, "it's"]),
        ("atan2(x, -1)", [math.pi, NAN, None, math.pi]),
        ("atan2(x, -0.0D)", [0.0, NAN, None, 0.0]),
        ("log2(small + 0.005D) = log(2, small + 0.005D)", [True, True, True, None]),
        ("log2(8) = 3", [True] * 4),
        ("greatest(x, 5)", [5.0, NAN, 5.0, 5.0]),
        ("least(x, 5)", [0.0, 5.0, 5.0, -0.0]),
        ("cast(small as string) || s", ["1ab", "2é%", None, None]),
        ("cast(' 1.9 ' as int)", [1] * 4),
        ("try_cast('1.9' as int)", [None] * 4),
        ("cast(x as string)", ["0.0", "NaN", None, "-0.0"]),
        ("concat_ws('-', s, d, null)", ["ab-ab", "é%-b", "", "it's-b"]),
        ("round(2.675D, 2)", [2.68] * 4),
        ("split_part(s, 'b', 1)", ["a", "é%", None, "it's"]),
        ("substring(s, small, 1)", ["a", "%", None, None]),
        ("substring(s, 2, i)", ["b", None, None, "t's"]),
        ("substring(s, i)", ["ab", None, None, ""]),
        ("substring(s, 2, 9223372036854775807)", ["b", "%", None, "t's"]),
        ("substring(s, -9223372036854775807, 9223372036854775807)", ["ab", "é%", None, "it's"]),
        ("substring(s, -9223372036854775807, 9223372036854775806)", ["a", "é", None, "it'"]),
        ("left(s, i)", ["a", None, None, "it's"]),
        ("right(s, i)", ["b", None, None, "it's"]),
        ("regexp_extract(s, '(.)(%|b)', 2)", ["b", "%", None, ""]),
        ("regexp_replace(s, '(b)', '[$1]')", ["a[b]", "é%", None, "it's"]),
        ("s rlike '^.b'", [True, False, None, False]),
        ("year(t + interval 400 days)", [1971, 1971, None, 2002]),
        ("date_trunc('day', t) = t", [True, False, None, False]),
        ("(t - timestamp '1970-01-01') > interval 1 hour", [False, False, None, True]),
        ("day > date '1970-01-01' and day < timestamp '1970-01-02 12:00:00'", [False, True, False, None]),
        ("day in (date '1970-01-02')", [False, True, False, None]),
        ("day + 1 = date '1970-01-02'", [True, False, False, None]),
        ("extract(second from t)", [Decimal("0.000000"), Decimal("0.000001"), None, Decimal("40.000000")]),
        ("date_format(day, 'd MMM yyyy')", ["1 Jan 1970", "2 Jan 1970", "3 Jan 1970", None]),
        ("i <=> null", [False, True, False, False]),
        ("7 div 2 + small % 2", [4, 3, 4, None]),
        ("7 div (small + 1)", [3, 2, 1, None]),
        ("s rlike ('^a')", [True, False, None, False]),
        ("s not rlike ('^a')", [False, True, None, True]),
        ("1.50BD + 2L", [Decimal("3.50")] * 4),
        ("/* a comment */ i -- another", [1, None, -7, 2**62]),
    ],
)
def test_value(text: str, expected: list[object]) -> None:
    # Compare them as text, since NaN does not equal itself, and True equals 1.
    assert repr(evaluate(text)) == repr(expected)


def test_timestamp_literal() -> None:
    assert evaluate("timestamp '1970-01-01 01:00:00.5+01:00'") == [datetime(1970, 1, 1, 0, 0, 0, 500_000, UTC)] * 4


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("i + small", pa.int64()),
        ("i + 1.0", pa.float64()),
        ("small / small", pa.float64()),
        ("small", pa.int8()),
        ("s", pa.string()),
        ("i > 1", pa.bool_()),
        ("null", pa.null()),
        ("timestamp '2024-01-01'", pa.timestamp("us", "UTC")),
        ("berlin + interval 1 day", pa.timestamp("us", "Europe/Berlin")),
        ("date_trunc('hour', t)", pa.timestamp("us")),
        ("day + interval 1 day", pa.date32()),
        ("day + interval 1 hour", pa.timestamp("us", "UTC")),
        ("t - t", pa.duration("us")),
        ("cast(i as decimal(9, 2))", pa.decimal128(9, 2)),
        ("case when f then small else i end", pa.int64()),
        ("coalesce(null, null)", pa.null()),
    ],
)
def test_type(text: str, data_type: pa.DataType) -> None:
    assert compile_expression(text, BATCH.schema).type == data_type


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("i + nosuch", 5, "no column 'nosuch'; the columns are: i, x, s, f, t, d, u, small, day"),
        ("i + I", 5, "no column 'I'"),
        ("__event_time__ > 0", 1, "no column '__event_time__'"),
        ("i::string", 2, "'::' is not allowed here"),
        ("i > 0 and uper(s) = 'A'", 11, "no function 'uper' (did you mean 'upper'?); allowed are columns"),
        ("i\n + now()", 6, "'now' would have another value when rows are read again"),
        ("`i`(1)", 1, "no function '`i`'"),
        ("smal + 1", 1, "no column 'smal' (did you mean 'small'?); the columns are: i"),
        ("i || i", 1, "||: `i` is int64, and || needs a string; write cast(... as string)"),
        ("upper(s, s)", 1, "upper: got 2 arguments; write upper(s)"),
        ("cast(i as blob)", 11, "cast: no type 'blob'"),
        ("cast(i as decimal(40, 2))", 11, "cast: no type 'decimal(40, 2)'"),
        ("cast(f as date)", 6, "a value of type bool cannot become date"),
        ("cast(i as )", 9, "the type is missing"),
        ("case when f then i else s end", 18, "the values have the types int64 and string; cast them to one type"),
        ("case when i then i end", 11, "and, or, not need conditions"),
        ("case when f then i", 18, "END after CASE"),
        ("split_part(s, ',', 0)", 20, "there is no part 0"),
        ("split_part(s, s, 1)", 15, "this argument must be a string literal"),
        ("regexp_extract(s, '(', 1)", 19, "'(' is not a regular expression of RE2"),
        ("regexp_extract(s, 'a', 1)", 24, "no group 1: the pattern 'a' has 0"),
        ("lpad(s, 10000)", 9, "the length 10000 is more than 1000"),
        ("date_trunc('huor', t)", 12, "no unit 'huor'; the units are: month"),
        ("extract(yaer from t)", 9, "no field 'yaer'; the fields are: year"),
        ("date_format(t, 'QQ')", 16, "'QQ' is not allowed in a pattern; allowed are: y yy yyyy"),
        ("date '2024-02-30'", 6, "'2024-02-30' is not a date"),
        ("interval 1 dya", 10, "no unit 'dya'; the units are"),
        ("interval '1 month 1 day'", 10, "either years and months, or weeks, days"),
        ("interval", 1, "no column 'interval'"),
        ("t + 1", 1, "timestamp[us] + int64 is not possible; write t + interval 90 minutes"),
        ("year(s)", 6, "year: `s` is string, and year needs a date or a timestamp"),
        ("i div x", 7, "`x` is double: div needs integers"),
        ("1Y + 2Z", 6, "is not allowed here"),
        ("i & 1", 3, "'&' is not allowed here"),
        ("t.i", 2, "'.' is not allowed here"),
        ("i[0]", 2, "'[' is not allowed here"),
        ("i; i", 2, "';' is not allowed here"),
        ("?", 1, "'?' is not allowed here"),
        ("i in (select i)", 14, "Expecting )"),
        ("i i", 3, "Unexpected token"),
        ("(i", 2, "Expecting )"),
        ("i between 1", 11, "an operand is missing"),
        ("i and", 3, "an operand is missing"),
        ("*", 1, "'*' is not allowed"),
        ("(i, i) = (1, 1)", 2, "is not allowed"),
        ("i in ()", 1, "'in' takes a list"),
        ("f is true", 1, "only 'is null'"),
        ("select '2024-01-01'", 8, "Unexpected token"),
        ("timestamp 'yesterday'", 11, "'yesterday' is not a timestamp"),
        ("i = 'a'", 1, "cannot compare int64 with string"),
        ("f and i in (1, 'a')", 7, "cannot compare int64 with string"),
        ("t > '2024-01-01'", 1, "write times as timestamp '...'"),
        ("f and t > 1", 7, "cannot compare timestamp[us] with int64"),
        ("money > s", 1, "cannot compare decimal128(10, 2) with string"),
        ("1 + s", 5, "arithmetic needs integers, decimals or floats"),
        ("f or i", 6, "is int64: and, or, not need conditions"),
        ("not s", 5, "is string: and, or, not need conditions"),
        ("s like s", 8, "the pattern of 'like' must be a string literal"),
        ("i like 'a'", 1, "'like' needs a string, not int64"),
        ("s like 'a\\\\b'", 8, "must stand before %, _ or itself"),
        ("s like 'a' escape 'xx'", 19, "one character"),
        ("9223372036854775808", 1, "does not fit int64"),
        ("1e", 1, "'1e' is not a number"),
    ],
)
def test_an_error_shows_the_position_and_the_reason(text: str, position: int, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        compile_expression(text, BATCH.schema)
    message = caught.value.message
    assert message.startswith(f"SQL at position {position}: ")
    assert words in message
    line, mark = message.split("\n")[-2:]
    begin = text.rfind("\n", 0, position - 1) + 1
    assert mark.index("^") - 2 == position - 1 - begin
    assert line.strip() in text


@pytest.mark.parametrize("text", ["", "  ", "'open", "-- only a comment", "(" * 3000 + "i" + ")" * 3000])
def test_a_text_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="SQL"):
        compile_expression(text, BATCH.schema)


def test_an_object_that_is_no_string_is_refused() -> None:
    with pytest.raises(PlanError, match="expected a SQL string, got int"):
        compile_expression(5, BATCH.schema)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["i * i", "i + i", "-i - 9223372036854775807", "-(-9223372036854775808)", "u + 1"])
def test_integer_overflow_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="leaves the range of 64 bits"):
        evaluate(text)


def test_integers_are_exact_beyond_floats() -> None:
    batch = pa.record_batch({"i": pa.array([2**53 + 1])})
    text = "i = 9007199254740993 and i <> 9007199254740992 and i in (9007199254740993)"
    assert compile_expression(text, batch.schema).evaluate(batch).to_pylist() == [True]


def test_an_integer_meets_a_float_as_a_float() -> None:
    batch = pa.record_batch({"i": pa.array([2**53 + 1])})
    assert compile_expression("i = 9007199254740992.0", batch.schema).evaluate(batch).to_pylist() == [True]


def test_a_literal_beyond_the_columns_unit_is_refused() -> None:
    schema = pa.schema({"t": pa.timestamp("ns")})
    with pytest.raises(PlanError, match="cannot be compared with timestamp"):
        compile_expression("t < timestamp '9999-12-31'", schema)


def test_pickled_expressions_evaluate_without_the_parser() -> None:
    text = "not (i in (1, 2) or x > 1.5 and s like 'a%') and t < timestamp '2024-01-01' and i % 3 = 1"
    expression = compile_expression(text, BATCH.schema)
    copy = pickle.loads(cloudpickle.dumps(expression))
    assert copy == expression
    assert copy.evaluate(BATCH).equals(expression.evaluate(BATCH))
    probe = "import sys, headgate.operators.sql.expressions; sys.exit('sqlglot' in sys.modules)"
    subprocess.run([sys.executable, "-c", probe], env={"PYTHONPATH": ":".join(sys.path)}, check=True)


def test_long_chains_can_be_pickled_and_deep_nests_are_refused() -> None:
    text = " or ".join(f"(i = {n} and x < {n})" for n in range(1500))
    copy = pickle.loads(cloudpickle.dumps(compile_expression(text, BATCH.schema)))
    assert copy.evaluate(BATCH).to_pylist() == [True, False, False, False]
    with pytest.raises(PlanError, match="nested more than 100 deep"):
        compile_expression("+".join("i" * 300), BATCH.schema)


@pytest.mark.turns(3)
@pytest.mark.parametrize("text", ["(" * 50_000 + "i" + ")" * 50_000, "not " * 50_000 + "i = 1", "+".join("i" * 50_000)])
def test_the_message_for_a_very_deep_nest_is_short(text: str) -> None:
    with pytest.raises(PlanError, match="nested") as caught:
        compile_expression(text, BATCH.schema)
    assert len(caught.value.message) < 1000


def test_a_mark_is_under_its_place_also_in_a_long_line() -> None:
    with pytest.raises(PlanError, match="at position 2001") as caught:
        compile_expression("i = 1 or " * 222 + "  unknown = 5" + " or i = 2" * 500, BATCH.schema)
    _, line, mark = caught.value.message.split("\n")
    assert line[mark.index("^") :].startswith("unknown")
    assert len(line) < 250


@pytest.mark.parametrize("hidden", [-(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("text", ["{} + interval 90 minutes", "{} - interval 3 days", "{} - interval -3 days"])
def test_what_a_null_hides_does_not_overflow(text: str, hidden: int) -> None:
    values = pa.py_buffer(struct.pack("qq", hidden, 0))
    columns = {
        name: pa.Array.from_buffers(kind, 2, [pa.py_buffer(b"\2"), values])
        for name, kind in (("t", pa.timestamp("us")), ("d", pa.duration("us")))
    }
    batch = pa.record_batch(columns)
    for name in columns:
        result = compile_expression(text.format(name), batch.schema).evaluate(batch).to_pylist()
        assert result[0] is None
        assert result[1] is not None
    nulls = pa.record_batch({"t": pa.nulls(1, pa.timestamp("us"))})
    assert compile_expression("least(t, t) + interval 1 day", nulls.schema).evaluate(nulls).to_pylist() == [None]


@pytest.mark.parametrize(
    ("pattern", "group", "found"),
    [
        ("(a|b)(c)", 2, ["c", "", None]),
        ("(?P<first>a|b)(?<last>c)", 2, ["c", "", None]),
        ("(?:a|b)(?i:(C))", 1, ["c", "", None]),
        (r"\((x)[()\](](?P<y>y)", 2, ["", "y", None]),
        (r"\Q(x\E(.)", 1, ["", "(", None]),
        ("([[:alpha:](]+)c", 1, ["bb", "", None]),
        ("(z)?b", 1, ["", "", None]),
        ("b+", 0, ["bb", "", None]),
        ("(((((((((b)))))))))c", 9, ["b", "", None]),
    ],
)
def test_a_group_of_a_pattern_is_found_by_its_number(pattern: str, group: int, found: list[str | None]) -> None:
    texts = pa.array(["bbc", "(x(y", None])
    named, _ = named_groups(pattern)
    assert extract(texts, named, group).to_pylist() == found


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd", "HH:mm", "yy MMM EEE a hh", "ss", "ss.SSS", "'x'", "D HHXXX"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_has_the_same_text_alone_and_in_a_batch_with_few_texts(pattern: str, unit: str) -> None:
    """Times of three days before and after 1970, from one batch and row by row."""
    second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    fields = pattern_fields(pattern, is_parsed=False)
    for kind in (pa.timestamp(unit), pa.timestamp(unit, "UTC")):
        times = pa.array([day * 86_400 * second + tick for day in range(-3, 4) for tick in range(3)], kind)
        together = format_with(pa.concat_arrays([times] * 5), fields)
        alone = [format_with(times.slice(row, 1), fields)[0] for row in range(len(times))]
        assert together.to_pylist() == [text.as_py() for text in alone] * 5
        with_null = pa.concat_arrays([times, pa.nulls(1, kind)])
        assert format_with(with_null, fields).to_pylist() == [*(text.as_py() for text in alone), None]


def test_a_case_calls_a_function_only_for_the_rows_that_need_it() -> None:
    seen: list[list[object]] = []

    def shout(strings: pa.Array) -> pa.Array:
        seen.append(strings.to_pylist())
        return pc.utf8_upper(strings)

    text, number = Column("s", pa.string()), Column("n", pa.int64())
    conditions = tuple(Call("less", (number, Literal(limit, pa.int64())), pa.bool_()) for limit in (2, 4))
    call = Apply(shout, (text,), pa.string())
    batch = pa.record_batch({"n": [1, 3, None, 9], "s": ["a", "b", "c", "d"], "other": [0, 0, 0, 0]})

    def value(*values: SqlNode) -> list[object]:
        case = CaseWhen(conditions, values, pa.string())
        found: list[object] = case.evaluate(batch).to_pylist()
        return found

    assert value(text, call, text) == ["a", "B", "c", "d"]
    assert value(text, text, call) == ["a", "b", "C", "D"]
    assert seen == [["b"], ["c", "d"]]


@pytest.mark.parametrize("text", ["date_add(d, 4294967296)", "d + 4294967296", "date_sub(d, 4294967296)"])
def test_a_date_beyond_32_bits_is_an_error(text: str) -> None:
    batch = pa.RecordBatch.from_pydict({"d": [None, date(2024, 1, 1)]}, schema=pa.schema({"d": pa.date32()}))
    with pytest.raises(DataError, match="leaves the range of its type"):
        compile_expression(text, batch.schema).evaluate(batch)
    assert compile_expression(text, batch.schema).evaluate(batch.slice(0, 1)).to_pylist() == [None]


def test_nanoseconds_that_leave_their_range_are_an_error() -> None:
    schema = pa.schema({"t": pa.timestamp("ns")})
    batch = pa.RecordBatch.from_pydict({"t": [datetime(2000, 1, 1)]}, schema=schema)
    with pytest.raises(DataError, match="leaves the range of its type"):
        compile_expression("t + interval 120000 days", schema).evaluate(batch)
    [moved] = compile_expression("t + interval 12000 days", schema).evaluate(batch).cast(pa.timestamp("us")).to_pylist()
    assert moved == datetime(2032, 11, 8)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("round(x, -400)", [0.0, -0.0]), ("round(x, 400)", [1.5, -1e308]), ("greatest(x > 0, x > 9)", [True, False]),
        ("least(x > 0, null, x > 9)", [False, False]), ("greatest(x > null, null)", [None, None]),
    ],
)  # fmt: skip
def test_extremes_of_booleans_and_any_number_of_digits(text: str, wanted: list[Any]) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1.5, -1e308]})
    assert compile_expression(text, batch.schema).evaluate(batch).to_pylist() == wanted
