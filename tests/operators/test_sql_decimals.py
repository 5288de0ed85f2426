"""Decimals in SQL strings are exact, have Spark SQL's types, and compare with numbers of any length.

`test_sql_on_decimals_is_that_of_spark_sql` in tests/api/test_on_spark.py compares them with Spark itself.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import DataError, PlanError
from headgate.operators.sql.expressions import compile_expression
from tests.examples import examples

EXACT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
MONEY, LONG, DEFAULT = pa.decimal128(9, 2), pa.decimal128(30, 4), pa.decimal128(38, 18)
BATCH = pa.RecordBatch.from_pydict(
    {"m": [Decimal("1.50"), Decimal("-0.25"), None, Decimal("1234567.89")],
     "l": [Decimal("3"), Decimal("-12345678901234567890.1234"), Decimal(1), Decimal(0)],
     "x": [Decimal("0.000000000000000003"), Decimal("2.5"), Decimal(7), Decimal("-9999999999999999999.5")],
     "i": [2, -3, 4, None], "f": [0.5, 1.5, 2.5, 3.5]},
    schema=pa.schema({"m": MONEY, "l": LONG, "x": DEFAULT, "i": pa.int64(), "f": pa.float64()}),
)  # fmt: skip


def evaluated(text: str, batch: pa.RecordBatch = BATCH) -> pa.Array:
    return compile_expression(text, batch.schema).evaluate(batch)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("m + l", pa.decimal128(31, 4)), ("m - m", pa.decimal128(10, 2)), ("m * 2", pa.decimal128(11, 2)),
        ("m * 1.10", pa.decimal128(13, 4)), ("m / 3", pa.decimal128(13, 6)), ("m % 7", pa.decimal128(3, 2)),
        ("i * m", pa.decimal128(30, 2)), ("-m", MONEY), ("m * f", pa.float64()), ("m * 1e1", pa.float64()),
        ("x / x", pa.decimal128(38, 6)), ("1.0D * m", pa.float64()), ("cast(1.5 as double) * m", pa.float64()),
    ],
)  # fmt: skip
def test_types(text: str, kind: pa.DataType) -> None:
    batch = BATCH.slice(0, 3)
    assert evaluated(text, batch).type == kind


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("m * 1.1", ["1.650", "-0.275", None, "1358024.679"]),
        ("m / 3", ["0.500000", "-0.083333", None, "411522.630000"]),
        ("m / 0", [None] * 4),
        ("m + null", [None] * 4),
        ("m * (1.5 + null)", [None] * 4),
        ("1.5 + 1 + f", ["3", "4", "5", "6"]),
        ("l / m", ["2", "49382715604938271560.4936", None, "0"]),
        ("l - m", ["1.5", "-12345678901234567889.8734", None, "-1234567.89"]),
        ("m % 1", ["0.50", "-0.25", None, "0.89"]),
        ("-l", ["-3", "12345678901234567890.1234", "-1", "0"]),
        ("2.5 * 2 + m", ["6.5", "4.75", None, "1234572.89"]),
    ],
)
def test_values(text: str, wanted: list[str | None]) -> None:
    assert [None if got is None else Decimal(got) for got in evaluated(text).to_pylist()] == [
        None if exact is None else Decimal(exact) for exact in wanted
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("m > 1", [True, False, None, True]), ("m = 1.5", [True, False, None, False]),
        ("m = 1.50000", [True, False, None, False]), ("x > 0", [True, True, True, False]),
        ("m in (1.5, 7)", [True, False, None, False]), ("l between -1 and i", [False, False, True, None]),
        ("m > l", [False, True, None, True]), ("m > f", [True, False, None, True]),
        ("x <> 0.000000000000000003", [False, True, True, True]), ("m is null", [False, False, True, False]),
        ("m >= 12345678901234567890123456789012345.5", [False, False, None, False]),
    ],
)  # fmt: skip
def test_comparisons(text: str, wanted: list[bool | None]) -> None:
    assert evaluated(text).to_pylist() == wanted


def test_what_does_not_fit_is_an_error() -> None:
    batch = pa.RecordBatch.from_pydict({"d": [Decimal(10) ** 37]}, schema=pa.schema({"d": pa.decimal128(38, 0)}))
    with pytest.raises(DataError, match=r"a value of 'd \* 100' leaves the range of its type.*write 1\.0D \* column"):
        evaluated("d * 100", batch)
    assert evaluated("1.0D * d * 100", batch).to_pylist() == [1e39]  # the way out that the error names


def test_factors_of_38_digits_can_have_a_product_that_fits() -> None:
    schema = pa.schema({"a": pa.decimal128(38, 37), "b": pa.decimal128(38, 0)})
    batch = pa.RecordBatch.from_pydict({"a": [Decimal("1e-10")], "b": [Decimal(10) ** 37]}, schema=schema)
    assert evaluated("a * b", batch).to_pylist() == [Decimal(10) ** 27]


EXPONENTS = st.one_of(st.none(), st.integers(-90, 90), st.sampled_from([-400, 400, 99999, -99999]))


@given(st.from_regex(r"[+-]?(\d{1,40}\.?\d{0,30}|\.\d{1,30})", fullmatch=True), EXPONENTS)
def test_a_text_is_the_decimal_that_it_says(digits: str, exponent: int | None) -> None:
    digits = digits.encode("ascii", "ignore").decode()  # \d has digits of all scripts
    text = digits if exponent is None else f"{digits}e{exponent}"
    kind = pa.decimal128(38, 10)
    batch = pa.RecordBatch.from_pydict({"s": [None, text, "1e1"]})
    _, found, ten = evaluated(f"cast(s as decimal({kind.precision}, {kind.scale}))", batch).to_pylist()
    assert ten == 10
    try:
        exact = Decimal(text)
    except decimal.InvalidOperation:
        assert found is None
        return
    if exact and exact.adjusted() >= kind.precision - kind.scale:
        assert found is None
    else:
        unit = Decimal(1).scaleb(-kind.scale)
        rounded = Decimal(0) if not exact or exact.adjusted() < -kind.scale - 1 else exact.quantize(unit, context=EXACT)
        assert found == (None if abs(rounded) >= 10 ** (kind.precision - kind.scale) else rounded)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cast(f / 5 as decimal(38, 20))", ["0.1", "0.3", "0.5", "0.7"]),
        ("cast(1.2345678901234567e19 as decimal(20, 0))", ["12345678901234567000"] * 4),
        ("cast('1234567890123456789e0' as decimal(20, 0))", ["1234567890123456789"] * 4),
        ("m * 1e2BD", ["150", "-25", None, "123456789"]),
        ("decimal('1e2') + decimal('1.5e1')", ["115"] * 4),
    ],
)
def test_exponents_and_floats_are_exact(text: str, wanted: list[str | None]) -> None:
    assert evaluated(text).to_pylist() == [None if each is None else Decimal(each) for each in wanted]


TYPES = [pa.decimal128(*digits) for digits in [(5, 0), (9, 2), (20, 18), (38, 0), (38, 18), (30, 30)]]
WIDE = [pa.decimal256(*digits) for digits in [(39, 0), (40, 2), (60, 10), (76, 0), (76, 38), (76, 76)]]
PYTHON: dict[str, Any] = {
    "+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply, "/": EXACT.divide, "%": EXACT.remainder,
}  # fmt: skip


@given(st.sampled_from(TYPES + WIDE), st.sampled_from(TYPES + WIDE), st.sampled_from(sorted(PYTHON)), st.data())
def test_any_values_are_those_of_exact_arithmetic(
    left: pa.DataType, right: pa.DataType, operator: str, data: st.DataObject
) -> None:
    columns = []
    for kind in (left, right):
        most = 10 ** min(data.draw(st.sampled_from([1, 15, 76])), kind.precision) - 1
        numbers = data.draw(st.lists(st.one_of(st.none(), st.integers(-most, most)), min_size=3, max_size=3))
        columns.append([None if n is None else EXACT.scaleb(Decimal(n), -kind.scale) for n in numbers])
    schema = pa.schema({"a": left, "b": right})
    batch = pa.RecordBatch.from_pydict(dict(zip("ab", columns, strict=True)), schema=schema)
    expression = compile_expression(f"a {operator} b", schema)
    unit = EXACT.scaleb(Decimal(1), -expression.type.scale)
    wanted = []
    for a, b in zip(*columns, strict=True):
        is_null = a is None or b is None or (operator in "/%" and not b)
        wanted.append(None if is_null else PYTHON[operator](a, b).quantize(unit, context=EXACT))
    if any(
        value is not None and abs(value) >= 10 ** (expression.type.precision - expression.type.scale)
        for value in wanted
    ):
        with pytest.raises(DataError):
            expression.evaluate(batch)
    else:
        assert expression.evaluate(batch).to_pylist() == wanted


@st.composite
def decimal_types(draw: st.DrawFn) -> pa.DataType:
    precision = draw(st.integers(1, 76))
    scale = draw(st.integers(0, precision))
    makers = [pa.decimal256]
    if precision <= 38:
        makers.append(pa.decimal128)
    if precision <= 9 and hasattr(pa, "decimal32"):  # since pyarrow 19
        makers += [pa.decimal32, pa.decimal64]
    return draw(st.sampled_from(makers))(precision, scale)


def as_decimals(kind: pa.DataType, numbers: list[int | None]) -> list[Decimal | None]:
    return [None if n is None else EXACT.scaleb(Decimal(n), -kind.scale) for n in numbers]


def near(value: Decimal, kind: pa.DataType) -> list[int]:
    """Return the unscaled numbers of `kind` around a value: the value itself if the type has it, and those beside it.
    A comparison decides only by the last digits of such pairs."""
    unit = EXACT.scaleb(Decimal(1), -kind.scale)
    number = int(EXACT.divide(value, unit).to_integral_value(decimal.ROUND_FLOOR))
    most = 10**kind.precision - 1
    return [min(max(number + step, -most), most) for step in (-1, 0, 1)]


COMPARED: dict[str, Any] = {
    "a = b": lambda a, b, c: a == b,
    "a <> b": lambda a, b, c: a != b,
    "a < b": lambda a, b, c: a < b,
    "a <= b": lambda a, b, c: a <= b,
    "a > b": lambda a, b, c: a > b,
    "a >= b": lambda a, b, c: a >= b,
    "a between b and c": lambda a, b, c: b <= a <= c,
    "a in (b, c)": lambda a, b, c: a in (b, c),
    "case a when b then true else false end": lambda a, b, c: a == b,
    "nullif(a, b) is null": lambda a, b, c: a == b,
}


@settings(max_examples=examples(200))
@given(decimal_types(), decimal_types(), decimal_types(), st.data())
def test_any_comparison_is_that_of_python(
    first: pa.DataType, second: pa.DataType, third: pa.DataType, data: st.DataObject
) -> None:
    rows = []
    for _ in range(4):
        most = 10 ** min(data.draw(st.sampled_from([1, 3, 76])), first.precision) - 1
        number = data.draw(st.integers(-most, most))
        value = EXACT.scaleb(Decimal(number), -first.scale)
        rows.append((number, *(data.draw(st.sampled_from(near(value, kind))) for kind in (second, third))))
    kinds = (first, second, third)
    columns = [as_decimals(kind, list(numbers)) for kind, numbers in zip(kinds, zip(*rows, strict=True), strict=True)]
    schema = pa.schema(dict(zip("abc", kinds, strict=True)))
    batch = pa.RecordBatch.from_pydict(dict(zip("abc", columns, strict=True)), schema=schema)
    for text, compare in COMPARED.items():
        assert evaluated(text, batch).to_pylist() == [compare(*row) for row in zip(*columns, strict=True)], text


WIDE_BATCH = pa.RecordBatch.from_pydict(
    {"y": [Decimal(1), Decimal(0), None, Decimal(-1), Decimal("9" * 76)],
     "m": [Decimal("0.99"), Decimal("0.00"), Decimal("1.00"), None, Decimal("1234567.89")],
     "u": [1, 2, 3, 4, None]},
    schema=pa.schema({"y": pa.decimal256(76, 0), "m": MONEY, "u": pa.uint64()}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("y > 0.5", [True, False, None, False, True]), ("y = 1.5", [False, False, None, False, False]),
        ("y <> 1.5", [True, True, None, True, True]), ("0.5 >= y", [False, True, None, True, False]),
        ("y = 1.0", [True, False, None, False, False]), ("y > m", [True, False, None, None, True]),
        ("y in (1.5, 1.0, 7)", [True, False, None, False, False]), ("y in (0.5)", [False, False, None, False, False]),
        ("y in (0.5, null)", [None, None, None, None, None]), ("y not in (0.5, 0)", [True, False, None, True, True]),
        ("y in (m, 1.0, null)", [True, True, None, None, None]), ("u in (1.5, y)", [True, False, None, False, None]),
        ("y between -0.5 and 1.5", [True, True, None, False, False]),
        ("y between null and 0.5", [False, None, None, None, False]),
        ("y between -2 and m", [False, True, None, None, False]), ("y <=> m", [False, True, False, False, False]),
        ("nullif(y, 0.0)", [Decimal(1), None, None, Decimal(-1), Decimal("9" * 76)]),
        ("case y when 0.5 then 'a' when 1.0 then 'b' end", ["b", None, None, None, None]),
    ],
)  # fmt: skip
def test_comparisons_that_need_more_than_76_digits(text: str, wanted: list[object]) -> None:
    assert evaluated(text, WIDE_BATCH).to_pylist() == wanted


def test_a_value_that_is_one_of_two_decimals_needs_a_type_for_both() -> None:
    for text in ("coalesce(y, m)", "case when m > 0 then y else m end", "greatest(y, 0.5)"):
        with pytest.raises(PlanError, match=r"decimal256\(76, 0\) and decimal128\(\d, \d\).*more than 76 digits"):
            evaluated(text, WIDE_BATCH)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(st.none(), st.integers(-(10**20) + 1, 10**20 - 1), st.integers(-(2**63), 2**63 - 1)), min_size=1
    ),
    st.sampled_from(["0.908", "-1", "0", "0.000001", "9223372036854775807", "1234567890123456.5", "99.99"]),
    st.sampled_from([0, 2]),
    st.booleans(),
)
def test_a_product_with_a_number_is_exact(
    values: list[int | None], number: str, scale: int, number_first: bool
) -> None:
    """Products that fit into 64 bits are computed in another way than larger ones."""
    column = pa.array(
        [None if each is None else Decimal(each).scaleb(-scale) for each in values], pa.decimal128(20, scale)
    )
    text = f"{number}BD * d" if number_first else f"d * {number}BD"
    products = evaluated(text, pa.record_batch({"d": column}))
    wanted = [None if each is None else EXACT.multiply(each, Decimal(number)) for each in column.to_pylist()]
    assert products.to_pylist() == wanted
