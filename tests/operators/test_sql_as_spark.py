"""Random SQL strings have the same values as in Spark, with ANSI off, in UTC. One query of Spark evaluates them all."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from headgate.operators.sql.expressions import compile_expression
from headgate.operators.sql.functions import FUNCTIONS
from tests.spark_session import SharedSpark, to_arrow

ROWS = 40
EXPRESSIONS = 250
STRINGS = ["", "a", "ab", "b a", "Abc", "é", "aXbXc", "a.b", " a ", "abcabc", "x1y22", "x"]
NUMBERS = [
    *("12", "-7", " 12 ", "+5", "1.5", "-1.99", ".5", "5.", ".", "1e3", "1E-2", "x", "", "0012", "2147483648", "300"),
    *("99999999999999999999", "-9223372036854775808", "9223372036854775808", "NaN", "inf", "-Infinity", "1d", "0x1"),
    *("1234567890123456789e0", "12.5e-3", "-.5E+1", "1e-200"),
    *("true", "T", "no", "y", "1", "0", "123.456789", "-0", "1 2", "1.005", "99999999.995"),
]
TIMES = [
    *("2024-02-29", "2023-02-29", " 2024-1-5 ", "2024", "2024-13-01", "2024-01-01 10:20:30", "2024-12-31T23:59:59.5"),
    *("2024-01-01T10:20:30.123456Z", "2024-01-01 10:20+02:00", "1969-12-31 23:59:59.999999", "2024-01-01 25:00:00"),
    *("2024-01", "x", "", "2024-01-01 1:2:3", "2024-01-01 10:20:30 UTC", "2024-01-01 10:20:30-08:00", "20240101"),
    *("2024-01-01x", "2024-01-01 10", "2024-01-32"),
]
FLOATS = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 2.675, 1.005, -7.25, 1234567.891, 1e7, 1e-4, 3.0, 1e15, -1e300, 1e20]
FLOATS += [math.nan, math.inf, -math.inf]
MOMENTS = [datetime(1970, 1, 1) + timedelta(microseconds=n) for n in (-1, 0, 10**15, 1_709_208_000_123_456)]
MOMENTS += [datetime(2023, 12, 31, 23, 59, 59), datetime(2024, 1, 31, 10), datetime(1900, 3, 1), datetime(2000, 5, 7)]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [-9, -1, 0, 1, 2, 7, 130]),
    "j": (pa.int64(), [-3, 0, 2, 5]),
    "x": (pa.float64(), FLOATS),
    "y": (pa.float64(), FLOATS),
    "s": (pa.string(), STRINGS),
    "r": (pa.string(), STRINGS),
    "n": (pa.string(), NUMBERS),
    "w": (pa.string(), TIMES),
    "m": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25"), Decimal("0.00"), Decimal("99.99"), Decimal("0.01")]),
    "t": (pa.timestamp("us"), MOMENTS),
    "u": (pa.timestamp("us"), MOMENTS),
    "d": (pa.date32(), [moment.date() for moment in MOMENTS]),
    "e": (pa.date32(), [date(2024, 2, 29), date(1969, 12, 31), date(2024, 3, 31)]),
    "f": (pa.bool_(), [True, False]),
    "z": (pa.float32(), [0.1, 0.5, -2.5, 7.3, -0.0, 1e30, -1e-30, math.nan, math.inf]),
}
#: For each kind of value, how an expression of this kind can look: `{int}` is any expression of integers, and so on.
#: Integers stay small in those of `int`, because an overflow is an error here, and none in Spark.
FORMS: dict[str, list[str]] = {
    "int": [
        *("i", "j", "3", "-2", "({int} + {int})", "({int} - {int})", "(i * j)", "({int} % {int})", "abs({int})"),
        *("length({str})", "instr({str}, 'a')", "locate('b', {str})", "mod({int}, {int})", "pmod({int}, {int})"),
        *("year({time})", "quarter({time})", "month({date})", "day({date})", "hour({time})", "minute({time})"),
        *("second({time})", "dayofweek({date})", "weekday({time})", "dayofyear({date})", "weekofyear({date})"),
        *("extract(year from {time})", "extract(week from {date})", "extract(dow from {date})", "octet_length({str})"),
        *("cast({bool} as int)", "greatest({int}, {int})", "least({int}, {int}, j)", "coalesce({int}, {int})"),
        *("if({bool}, {int}, {int})", "case when {bool} then {int} when {bool} then {int} else 1 end"),
        *("case {int} when 1 then {int} when {int} then 5 end", "nullif({int}, {int})", "nvl2({str}, {int}, 0)"),
        *("({int} div {int})", "cast(i as tinyint)", "round(i, -1)"),
    ],
    "large": [
        *("floor({float})", "ceil({float})", "cast({float} as bigint)", "cast({float} as int)", "cast(n as bigint)"),
        *("cast(n as int)", "cast(n as tinyint)", "try_cast(n as int)", "try_cast(n as bigint)", "cast(m as int)"),
        *("floor(z)", "ceil(z)", "cast(z as bigint)"),
        *("datediff({date}, {date})", "unix_timestamp({time})", "unix_millis({time})", "unix_micros({time})"),
        "unix_seconds({time})",
        *("timestampdiff(month, {time}, {time})", "timestampdiff(year, {time}, {time})", "cast({time} as bigint)"),
        *("timestampdiff(hour, {time}, {time})", "timestampdiff(week, {time}, {time})", "cast(i as smallint)"),
        *("unix_timestamp(w, 'yyyy-MM-dd')", "try_cast({int} as tinyint)", "cast(i * 100 as tinyint)"),
    ],
    "float": [
        *("x", "y", "1.5D", "({float} + {float})", "({float} - {float})", "({float} * {int})", "({float} / {float})"),
        *(
            "({int} / {int})",
            "abs({float})",
            "round({float}, 2)",
            "round({float})",
            "round({float}, -2)",
            "round(x, 1)",
        ),
        *("sqrt({float})", "ln({float})", "log10(x)", "log2(x)", "log(2, x)", "exp(i)", "pow(x, 2)", "pow({int}, j)"),
        *("sign({float})", "cbrt(x)", "sin(i)", "atan(y)", "atan2(x, y)", "degrees(x)", "radians(x)", "pmod(x, y)"),
        *("cos(i)", "tan(i)", "asin(x)", "acos(x)", "pi()"),
        *("cast(n as double)", "cast({int} as double)", "cast(m as double)", "cast({time} as double)", "(x % y)"),
        *("greatest({float}, {float})", "least({float}, {float})", "coalesce({float}, {int})", "nullif(x, y)"),
        *("if({bool}, {float}, {int})", "case when {bool} then {float} end", "pow(x, y)", "mod(x, 2)"),
        *("(z + x)", "(y * z)", "(z / 2)", "cast(z as double)", "sqrt(z)", "coalesce(z, x)", "greatest(z, y)"),
    ],
    "decimal": [
        *("m", "1.50BD", "({decimal} + m)", "(m * m)", "(m - 1)", "round({decimal}, 1)", "round(m, -1)", "abs(m)"),
        *("floor(m)", "ceil(m)", "cast(n as decimal(9, 2))", "cast(x as decimal(12, 3))", "cast(i as decimal(5, 1))"),
        *("cast(m as decimal(3, 1))", "greatest(m, m - 1)", "if({bool}, m, 1.5BD)", "extract(second from {time})"),
        *("cast(n as decimal(38, 6))", "cast(x as decimal(38, 6))", "cast(x as decimal(20, 0))"),
        *("coalesce(m, 0)", "cast(n as decimal(20, 5))", "cast(i * 40 as decimal(4, 1))"),
    ],
    "str": [
        *("s", "r", "'a'", "''", "({str} || {str})", "concat({str}, 'x', {str})", "concat_ws('-', {str}, {str})"),
        *("upper({str})", "lower({str})", "trim({str})", "ltrim({str})", "rtrim({str})", "btrim({str}, 'ab')"),
        *("substring({str}, 2)", "substring({str}, -2)", "substring({str}, i, j)", "substring({str}, {int}, 3)"),
        *("left({str}, 2)", "right({str}, 2)", "right({str}, j)", "lpad({str}, 5, 'xy')", "rpad({str}, 3)"),
        *("repeat({str}, j)", "reverse({str})", "replace({str}, 'a', 'bb')", "replace({str}, '', 'x')"),
        *("split_part({str}, 'X', 2)", "split_part({str}, 'a', -1)", "split_part({str}, '.', 1)"),
        *("regexp_extract({str}, '([a-z])([0-9]+)', 2)", "regexp_extract({str}, 'b|a', 0)"),
        *("regexp_replace({str}, '[ab]+', '<$0>')", "coalesce({str}, {str})", "nullif({str}, {str})"),
        *("case when {bool} then {str} else {str} end", "if({bool}, {str}, null)", "greatest({str}, {str})"),
        *(
            "cast({int} as string)",
            "cast(x as string)",
            "cast(y * 2 as string)",
            "cast({decimal} as string)",
            "cast({date} as string)",
        ),
        *("cast({time} as string)", "cast({bool} as string)", "date_format({time}, 'yyyy/MM/dd HH:mm:ss.SSS')"),
        *("date_format({time}, 'd MMM yy, EEE h a')", "date_format({date}, 'EEEE, MMMM D')", "from_unixtime({int})"),
    ],
    "date": [
        *(
            "d",
            "e",
            "date '2024-02-29'",
            "date_add({date}, cast({int} as int))",
            "date_sub({date}, cast({int} as int))",
            "last_day({date})",
        ),
        *(
            "add_months({date}, cast({int} as int))",
            "trunc({date}, 'month')",
            "trunc({date}, 'week')",
            "trunc({time}, 'year')",
        ),
        *(
            "to_date(w)",
            "cast(w as date)",
            "cast({time} as date)",
            "make_date(2024, cast({int} as int), cast({int} as int))",
            "({date} + 3)",
        ),
        *("({date} + interval 40 days)", "({date} - interval '2 months')", "to_date(w, 'yyyy-MM-dd')"),
        *("if({bool}, {date}, {date})", "coalesce({date}, {date})", "greatest({date}, {date})", "({date} - 1)"),
    ],
    "time": [
        *("t", "u", "timestamp '2024-02-29 12:00:00'", "date_trunc('hour', {time})", "date_trunc('week', {time})"),
        *("date_trunc('month', {time})", "date_trunc('quarter', {date})", "date_trunc('second', {time})"),
        *("({time} + interval 90 minutes)", "({time} - interval '1 day 2 hours')", "({time} + interval 1 month)"),
        *("timestampadd(hour, {int}, {time})", "timestampadd(month, {int}, {time})", "cast({date} as timestamp)"),
        *(
            "to_timestamp(w)",
            "cast(w as timestamp)",
            "to_timestamp(w, 'yyyy-MM-dd HH:mm:ss')",
            "cast({int} as timestamp)",
        ),
        *("timestamp_seconds({int})", "timestamp_millis({int})", "timestamp_micros(i)", "(t - interval 13 months)"),
        *("case when {bool} then {time} else {time} end", "coalesce({time}, {time})", "({date} + interval 1 hour)"),
        *("least({time}, {time})",),
    ],
    "bool": [
        *("f", "({int} > {int})", "({float} <= {float})", "({str} = {str})", "({time} < {time})", "({date} >= {date})"),
        *("({int} in (1, 2, null))", "({str} like 'a%')", "({str} rlike 'a.b')", "isnan({float})", "({str} is null)"),
        *("startswith({str}, 'a')", "endswith({str}, 'c')", "contains({str}, 'b')", "({int} between -1 and {int})"),
        *("({float} <=> {float})", "({str} <=> {str})", "(not {bool})", "({bool} and {bool})", "({bool} or {bool})"),
        *("greatest({bool}, {bool})", "least(f, {bool}, {bool})"),
        *("(z <= x)", "(z = {float})", "isnan(z)", "(z <=> y)", "(z in (0.5D, 1e30))"),
        *("cast(n as boolean)", "cast({int} as boolean)", "cast({float} as boolean)", "({decimal} > 1)"),
        *("(({time} - {time}) > interval 1 hour)", "regexp_like({str}, '^[a-b]+$')", "({str} not like '_b%')"),
    ],
}
#: The functions that no form calls, because the forms have their literals, such as date '2024-02-29'.
AS_LITERALS = {"date", "timestamp", "interval"}


def table(seed: int) -> pa.Table:
    """Return random rows; every fifth value is null."""
    random_ = random.Random(seed)
    columns = {
        name: pa.array([random_.choice(values) if random_.random() > 0.2 else None for _ in range(ROWS)], kind)
        for name, (kind, values) in COLUMNS.items()
    }
    # Every text of a number and of a time is there.
    columns["n"], columns["w"] = (
        pa.array([values[row % len(values)] for row in range(ROWS)]) for values in (NUMBERS, TIMES)
    )
    return pa.table(columns)


def expression(kind: str, random_: random.Random, depth: int) -> str:
    """Return a random expression of a kind, nested at most `depth` deep."""
    forms = [form for form in FORMS[kind] if depth or "{" not in form]
    form = random_.choice(forms)
    return filled(form, random_, depth - 1)


def filled(form: str, random_: random.Random, depth: int) -> str:
    """Replace each `{kind}` in the form by a random expression."""
    before, brace, rest = form.partition("{")
    if not brace:
        return before
    kind, _, after = rest.partition("}")
    return before + expression(kind, random_, max(depth, 0)) + filled(after, random_, depth)


@pytest.fixture
def spark(shared_spark: SharedSpark) -> Iterator[SparkSession]:
    session = shared_spark.on("local[1]")
    settings = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # compiling hundreds of expressions takes minutes
        "spark.sql.codegen.wholeStage": "false",
    }
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    yield session
    for name, earlier in before.items():
        session.conf.unset(name) if earlier is None else session.conf.set(name, earlier)


def plain(value: object) -> object:
    """Return a value without its zone, which is UTC."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=1e-12)
    return ours == theirs and (ours is None) == (theirs is None)


def difference(text: str, rows: pa.Table, theirs: list[object]) -> str | None:
    batch = rows.combine_chunks().to_batches()[0]
    compiled = compile_expression(text, batch.schema)
    ours = compiled.evaluate(batch)
    assert ours.type.equals(compiled.type), text
    for row, (a, b) in enumerate(zip(ours.to_pylist(), theirs, strict=True)):
        if not same(plain(a), plain(b)):
            return f"{text}: {plain(a)!r}, and in Spark {plain(b)!r}, for {rows.slice(row, 1).to_pylist()}"
    return None


def texts_of(seed: int) -> list[str]:
    """Return every form once, and random expressions in which they are nested."""
    random_ = random.Random(seed)
    each_once = [filled(form, random_, 0) for forms in FORMS.values() for form in forms]
    return each_once + [expression(random_.choice(list(FORMS)), random_, 3) for _ in range(EXPRESSIONS)]


def in_utc(rows: pa.Table) -> pa.Table:
    """Return the rows with times in UTC. Spark reads times without a zone as another type."""
    fields = [
        pa.field(each.name, pa.timestamp("us", "UTC") if each.name in "tu" else each.type) for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def differences(spark: SparkSession, seed: int, folder: Path) -> list[str]:
    rows, expressions = table(seed), texts_of(seed)
    parquet.write_table(in_utc(rows), folder / "rows.parquet")
    frame = spark.read.parquet(str(folder)).coalesce(1)
    selected = frame.selectExpr(*(f"{text} as c{index}" for index, text in enumerate(expressions)))
    answers = to_arrow(selected)
    found = [difference(text, rows, answers.column(at).to_pylist()) for at, text in enumerate(expressions)]
    return [text for text in found if text is not None]


def test_every_function_is_compared_with_spark() -> None:
    """One of its names is enough: they are one function."""
    called = {name for forms in FORMS.values() for form in forms for name in re.findall(r"(\w+)\(", form)}
    missing = {function.names[0] for function in FUNCTIONS.values() if called.isdisjoint(function.names)}
    assert missing == AS_LITERALS


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_random_expressions_have_the_values_of_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    assert differences(spark, seed, tmp_path) == []


def test_arithmetic_on_float32_is_that_of_float64(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's is that of float32, with half of the digits. The page lists it among the differences."""
    rows = pa.table({"z": pa.array([0.1, 7.3], pa.float32()), "i": [3, 1_000_000_007]})
    parquet.write_table(rows, tmp_path / "rows.parquet")
    [batch] = rows.to_batches()
    texts = ["z + z * z", "z * i"]
    theirs = to_arrow(spark.read.parquet(str(tmp_path)).coalesce(1).selectExpr(*texts))
    for text, column in zip(texts, theirs.columns, strict=True):
        ours = compile_expression(text, batch.schema).evaluate(batch)
        assert (ours.type, column.type) == (pa.float64(), pa.float32())
        assert ours.to_pylist() != column.to_pylist()
        assert ours.to_pylist() == pytest.approx(column.to_pylist(), rel=1e-6)
