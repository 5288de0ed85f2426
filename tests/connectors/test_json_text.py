"""Rows become JSON that every parser reads back to the same values."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.connectors.file_sources.json_source import JsonParser
from headgate.connectors.json_text import check_json_types, json_texts

NESTED = pa.list_(pa.struct({"s": pa.string(), "l": pa.list_(pa.int64())}))
SCHEMA = pa.schema({'n "q"': pa.int64(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_(), "x": NESTED})
TEXT = st.none() | st.text(st.characters(codec="utf-8"), max_size=8)
ITEM = st.none() | st.fixed_dictionaries(
    {"s": TEXT, "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3)}
)
ROW = st.fixed_dictionaries(
    {
        'n "q"': st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": TEXT,
        "b": st.none() | st.booleans(),
        "x": st.none() | st.lists(ITEM, max_size=3),
    }
)


@given(st.lists(ROW, max_size=5), st.integers(0, 3))
def test_any_rows_come_back_as_they_were(rows: list[dict[str, Any]], cut: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(cut)
    assert [json.loads(text) for text in json_texts(batch).to_pylist()] == rows[cut:]


def test_what_the_source_reads_is_what_was_written() -> None:
    schema = pa.schema(
        {"t": pa.timestamp("us", "UTC"), "p": pa.timestamp("ms"), "d": pa.date32(), "i": pa.int8(), "f": pa.float32()}
    )
    rows = [
        {"t": datetime(2024, 5, 1, 10, 0, 0, 123456, UTC), "p": datetime(1969, 1, 2, 3, 4, 5, 6000),
         "d": date(2024, 2, 29), "i": -3, "f": 0.25},
        dict.fromkeys(schema.names),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, schema)
    lines = "".join(text + "\n" for text in json_texts(batch).to_pylist())
    assert JsonParser(schema).parse(lines.encode()).to_pylist() == rows


def test_values_without_a_form_of_their_own() -> None:
    columns = {
        "f": pa.array([math.nan, math.inf, -math.inf, 1e300]),
        "d": pa.array(
            [Decimal("1.50"), Decimal("-0.01"), None, Decimal("99999999999999999999.99")], pa.decimal128(38, 2)
        ),
        "c": pa.array(["x", None, "y", "x"]).dictionary_encode(),
        "t": pa.array([time(1, 2, 3), None, None, None], pa.time32("s")),
        "n": pa.nulls(4),
    }
    texts = json_texts(pa.record_batch(columns)).to_pylist()
    first, *_, last = (json.loads(text, parse_float=Decimal) for text in texts)
    assert first == {"f": None, "d": Decimal("1.50"), "c": "x", "t": "01:02:03", "n": None}
    assert last["d"] == Decimal("99999999999999999999.99")
    assert json_texts(pa.RecordBatch.from_arrays([], names=[])).to_pylist() == []


@pytest.mark.parametrize(
    "type_", [pa.binary(), pa.list_(pa.binary()), pa.map_(pa.string(), pa.int64()), pa.duration("s")]
)
def test_a_type_that_json_cannot_hold_is_refused(type_: pa.DataType) -> None:
    with pytest.raises(hg.PlanError, match=r"column 'x' is .*, which JSON cannot hold; cast it"):
        check_json_types(pa.schema({"x": type_}))


LOCAL = hg.LocalDeployment(processes=False)


def write(folder: Path, batch: pa.RecordBatch) -> None:
    env = hg.StreamEnvironment(deployment=LOCAL)
    env.from_source(hg.sources.iterable([batch])).sink_to(hg.sinks.json(folder))
    env.execute()


def test_a_sink_writes_lines_that_a_source_reads(tmp_path: Path) -> None:
    schema = pa.schema(
        {"n": pa.int64(), "s": pa.string(), "at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string())}
    )
    row = {"n": 2**60, "s": 'a "b"\n\x01é', "at": datetime(2024, 5, 1, 10, 0, 0, 5, tzinfo=UTC), "tags": ["x", None]}
    rows = [row, dict.fromkeys(row)]
    write(tmp_path, pa.RecordBatch.from_pylist(rows, schema))
    [path] = tmp_path.glob("*.jsonl")
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [2**60, None]
    found = (
        hg.StreamEnvironment(deployment=LOCAL).from_source(hg.sources.json_lines(str(path), schema=schema)).collect()
    )
    assert found.to_pylist() == rows


def test_a_sink_refuses_what_json_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(hg.PlanError, match="column 'b' is binary, which jsonl files cannot hold"):
        write(tmp_path / "out", pa.record_batch({"b": [b"x"]}))


def test_a_whole_float_stays_a_float() -> None:
    given = pa.record_batch({"f": pa.array([3.0, -0.0, 1e20, 1e-7, 7.5, None, math.nan]), "n": pa.array(range(7))})
    texts = json_texts(given).to_pylist()
    read = [json.loads(text)["f"] for text in texts]
    assert read == [3.0, -0.0, 1e20, 1e-7, 7.5, None, None]
    assert {type(value) for value in read} == {float, type(None)}
    assert texts[0] == '{"f": 3.0, "n": 0}'


@pytest.mark.parametrize("cut", [0, 1, 2])
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.struct([]), [{}, {}, {}]),
        (pa.struct([]), [{}, None, {}]),
        (pa.list_(pa.struct([])), [[{}], None, [{}, None]]),
        (pa.struct({"e": pa.struct([]), "s": pa.string()}), [{"e": {}, "s": 'a "b"'}, None, {"e": None, "s": "c"}]),
        (pa.struct({"in": pa.struct({"n": pa.int8()})}), [{"in": {"n": 1}}, {"in": {"n": 2}}, {"in": {"n": 3}}]),
        (pa.struct({"in": pa.struct({"n": pa.int8()})}), [{"in": None}, {"in": {"n": None}}, None]),
        (pa.large_list(pa.large_string()), [["a"], [], ["\\", None]]),
    ],
)
def test_containers_beside_columns_with_and_without_nulls_and_escapes(type_: Any, values: list[Any], cut: int) -> None:
    columns = {
        "first": pa.array(["x", "y", "z"]),
        "nulls": pa.array([None, "y", None]),
        "given": pa.array(values, type_),
        "escapes": pa.array(['"', "\n", "\\"]),
        "both": pa.array(['"', None, "a, b"]),
        "last": pa.array([date(2024, 5, 1)] * 3),
    }
    rows = [{**row, "last": str(row["last"])} for row in pa.RecordBatch.from_pydict(columns).to_pylist()]
    whole = pa.record_batch(columns)
    check_json_types(whole.schema)
    for length in range(4 - cut):
        given = whole.slice(cut, length)
        assert [json.loads(text) for text in json_texts(given).to_pylist()] == rows[cut : cut + length]
