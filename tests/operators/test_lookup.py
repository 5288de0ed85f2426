"""Lookups agree with DuckDB's joins. Every unsuitable table is an error."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from headgate.errors import DataError, PlanError, SourceError, UserFunctionError
from headgate.operators.lookup import Lookup, lookup_schema
from headgate.operators.lookup_source import lookup_source
from headgate.operators.operator import OperatorContext
from tests.arrow_types import array_of
from tests.examples import examples

PLANES = pa.table({"tail": ["N1", "N2", None, "N3"], "seats": [100, 200, 1, None], "year": [1990, 2000, 1, 2010]})
STREAM = pa.record_batch({"id": [1, 2, 3, 4], "tail": ["N2", None, "N9", "N3"]})


class Collected:
    """An output that stores all it receives."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def emit_watermark(self, time: int) -> None:
        raise AssertionError("no watermark was sent")

    def emit_status(self, active: bool) -> None:
        raise AssertionError("no status was sent")


def opened(table: Any, batch: pa.RecordBatch, *, on: Any, how: str, columns: Any, suffix: str | None) -> Lookup:
    operator: Lookup = pickle.loads(
        cloudpickle.dumps(Lookup(table, on, how=how, columns=columns, suffix=suffix, input_schema=batch.schema))
    )
    operator.output = Collected()
    operator.open(OperatorContext("job", "lookup", 0, 1))
    return operator


def look_up(
    table: Any, batch: pa.RecordBatch, *, on: Any, how: str = "left", columns: Any = None, suffix: str | None = None
) -> list[dict[str, Any]]:
    operator = opened(table, batch, on=on, how=how, columns=columns, suffix=suffix)
    operator.process(batch)
    output = operator.output
    assert isinstance(output, Collected)
    schema = lookup_schema(table, on, how=how, columns=columns, suffix=suffix, input_schema=batch.schema)
    assert all(part.num_rows and part.schema.equals(schema) for part in output.batches)
    for part in output.batches:
        part.validate(full=True)
    assert operator.rows_out == sum(part.num_rows for part in output.batches)
    return [row for part in output.batches for row in part.to_pylist()]


def test_left_keeps_all_rows_in_order() -> None:
    assert look_up(PLANES, STREAM, on="tail") == [
        {"id": 1, "tail": "N2", "seats": 200, "year": 2000},
        {"id": 2, "tail": None, "seats": None, "year": None},
        {"id": 3, "tail": "N9", "seats": None, "year": None},
        {"id": 4, "tail": "N3", "seats": None, "year": 2010},
    ]


def test_inner_drops_rows_without_a_match() -> None:
    assert look_up(PLANES, STREAM, on=("tail",), how="inner", columns=["year"]) == [
        {"id": 1, "tail": "N2", "year": 2000},
        {"id": 4, "tail": "N3", "year": 2010},
    ]
    assert look_up(PLANES, STREAM.slice(1, 2), on="tail", how="inner") == []
    assert [row["id"] for row in look_up(PLANES, STREAM, on="tail", how="inner", columns=[])] == [1, 4], "as a filter"


def test_an_empty_table_matches_nothing() -> None:
    empty = PLANES.slice(0, 0)
    assert [row["seats"] for row in look_up(empty, STREAM, on="tail")] == [None] * 4
    assert look_up(empty, STREAM, on="tail", how="inner") == []
    assert look_up(pa.table({"tail": pa.array([None, None], pa.string())}), STREAM, on="tail", how="inner") == []


def test_clashing_names_take_the_suffix() -> None:
    batch = STREAM.append_column("year", pa.array([1, 2, 3, 4]))
    [row] = look_up(PLANES, batch.slice(0, 1), on="tail", suffix="_plane")
    assert row == {"id": 1, "tail": "N2", "year": 1, "seats": 200, "year_plane": 2000}


def test_the_hidden_column_stays() -> None:
    batch = STREAM.append_column("__event_time__", pa.array([1, 2, 3, 4]))
    assert [row["__event_time__"] for row in look_up(PLANES, batch, on="tail", how="inner")] == [1, 4]


@pytest.mark.parametrize(
    ("stream", "table"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint64(), pa.uint8()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.string(), pa.dictionary(pa.int32(), pa.large_string())),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")),
        (pa.date32(), pa.date32()),
        (pa.decimal128(21, 2), pa.decimal128(21, 2)),
        (pa.binary(), pa.binary()),
    ],
)
def test_keys_of_different_types_match_if_their_values_are_equal(stream: pa.DataType, table: pa.DataType) -> None:
    def keys(values: list[int | None], kind: pa.DataType) -> pa.Array:
        base = pa.array(values, pa.int64())
        if pa.types.is_date(kind):
            return base.cast(pa.int32()).cast(kind)
        text = pa.types.is_dictionary(kind) or "string" in str(kind) or pa.types.is_binary(kind)
        return array_of(base.cast(pa.string()).to_pylist(), kind) if text else base.cast(kind)

    dimension = pa.table({"k": keys([1, 2, 3, None], table), "v": [10, 20, 30, 40]})
    batch = pa.record_batch({"k": keys([3, 9, None, 1, 3], stream)})
    assert [row["v"] for row in look_up(dimension, batch, on="k")] == [30, None, None, 10, 30]


def test_float_keys_are_equal_as_in_spark() -> None:
    table = pa.table({"k": [0.0, math.nan], "v": ["zero", "nan"]})
    batch = pa.record_batch({"k": [-0.0, math.nan, 1.0]})
    assert [row["v"] for row in look_up(table, batch, on="k")] == ["zero", "nan", None]


def test_dictionary_columns_of_the_table_become_plain_columns() -> None:
    table = pa.table({"tail": ["N2"], "maker": pa.array(["Boeing"]).dictionary_encode()})
    assert (
        lookup_schema(table, "tail", how="left", columns=None, suffix=None, input_schema=STREAM.schema)
        .field("maker")
        .type
        == pa.string()
    )
    assert look_up(table, STREAM, on="tail", how="inner")[0]["maker"] == "Boeing"


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_relative_paths_start_at_the_drivers_folder(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PLANES.slice(0, 2)
    write = parquet.write_table if ending == "parquet" else csv.write_csv
    write(table, tmp_path / f"planes.{ending}")
    monkeypatch.chdir(tmp_path)
    source = lookup_source(f"planes.{ending}")
    monkeypatch.chdir("/")
    assert [row["seats"] for row in look_up(source, STREAM, on="tail")] == [200, None, None, None]
    assert look_up(tmp_path / f"planes.{ending}", STREAM, on="tail", how="inner", columns=["seats"])[0]["seats"] == 200


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.parquet", None, "none.parquet does not exist"),
        ("none.csv", None, "none.csv does not exist"),
        ("bad.parquet", "text", "bad.parquet cannot be read"),
        ("bad.csv", "a,b\n1,2\n3\n", "bad.csv cannot be read"),
        ("empty.csv", "", "empty.csv cannot be read"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SourceError) as caught:
        lookup_source(tmp_path / name)
    assert f"lookup table {tmp_path}/{words}" in caught.value.message


def test_a_file_that_changes_between_plan_and_run_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "planes.parquet"
    parquet.write_table(PLANES, path)
    operator = Lookup(path, "tail", how="left", columns=None, suffix=None, input_schema=STREAM.schema)
    parquet.write_table(PLANES.drop_columns(["seats"]), path)
    with pytest.raises(SourceError, match="its columns changed"):
        operator.open(OperatorContext("job", "lookup", 0, 1))
    path.unlink()
    with pytest.raises(SourceError, match="does not exist"):
        operator.open(OperatorContext("job", "lookup", 0, 1))


@dataclass
class Remote:
    """A table source that loads its table in the subtask."""

    result: Any

    schema = PLANES.schema

    def __call__(self) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def __str__(self) -> str:
        return "the remote table"


def test_a_table_may_be_loaded_by_a_call() -> None:
    assert look_up(Remote(PLANES), STREAM, on="tail") == look_up(PLANES, STREAM, on="tail")
    with pytest.raises(SourceError, match="the remote table: it loaded NoneType, and a pyarrow Table is needed"):
        opened(Remote(None), STREAM, on="tail", how="left", columns=None, suffix=None)
    with pytest.raises(SourceError, match=r"the remote table: its columns changed after .*seats"):
        opened(Remote(PLANES.drop_columns(["seats"])), STREAM, on="tail", how="left", columns=None, suffix=None)
    with pytest.raises(UserFunctionError, match="raised OSError: gone"):
        opened(Remote(OSError("gone")), STREAM, on="tail", how="left", columns=None, suffix=None)


@pytest.mark.parametrize(
    ("on", "values", "words"),
    [
        ("k", {"k": ["a", "b", "a"]}, "the key k='a' occurs more than once"),
        ("k", {"k": [0.0, 1.0, -0.0]}, "the key k=0.0 occurs more than once"),
        (("k", "l"), {"k": [1, 1, 1], "l": ["x", "y", "y"]}, "the key k=1, l='y' occurs more than once"),
    ],
)
def test_a_duplicate_key_is_an_error(on: Any, values: dict[str, list[Any]], words: str) -> None:
    table = pa.table(values)
    operator = Lookup(table, on, how="left", columns=None, suffix=None, input_schema=table.schema)
    with pytest.raises(DataError) as caught:
        operator.open(OperatorContext("job", "lookup", 0, 1))
    assert words in caught.value.message


def test_repeated_nulls_are_no_duplicates() -> None:
    table = pa.table({"k": [None, None, "a"], "l": [1, 1, None], "v": [1, 2, 3]})
    batch = pa.record_batch({"k": [None, "a"], "l": pa.array([1, None])})
    batch = batch.cast(pa.schema({"k": pa.string(), "l": pa.int64()}))
    assert [row["v"] for row in look_up(table, batch, on=("k", "l"))] == [None, None]
    assert [row["v"] for row in look_up(table, batch, on="k", columns=["v"])] == [None, 3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on": "tailnum"}, "on='tailnum': the stream has no column of that name; its columns are: id, tail"),
        ({"on": "id"}, "on='id': the lookup table has no column of that name; its columns are: tail, seats, year"),
        ({"on": ()}, "on= needs at least one column"),
        ({"on": ("tail", "tail")}, "on names column 'tail' twice"),
        ({"columns": ["seat"]}, "columns='seat': the lookup table has no column of that name"),
        ({"columns": ["seats", "seats"]}, "columns names column 'seats' twice"),
        ({"how": "outer"}, "how='outer' must be 'left' or 'inner'"),
        ({"table": pa.table({"tail": ["a"], "id": [1]})}, "both have 'id'; give suffix="),
        ({"table": pa.table({"tail": ["a"], "id": [1], "id2": [1]}), "suffix": "2"}, "there are two columns 'id2'"),
        ({"table": pa.table({"tail": [1]})}, "column 'tail' is string in the stream and int64 in the table"),
        ({"table": pa.table({"id": [1.0]}), "on": "id"}, "column 'id' is int64 in the stream and double in the table"),
        ({"table": pa.table({"id": pa.array([1], pa.uint64())}), "on": "id"}, "uint64 in the table; convert one"),
        ({"table": pa.table([["a"], [1], [2]], ["tail", "v", "v"])}, "has more than one column of that name"),
        ({"table": {"tail": ["a"]}}, "lookup takes a pyarrow Table, a frame, a path that ends in .parquet or .csv"),
        ({"table": "planes.xlsx"}, "planes.xlsx: the name must end in .parquet or .csv"),
    ],
)
def test_an_impossible_lookup_is_refused(arguments: dict[str, Any], words: str) -> None:
    defaults = {"table": PLANES, "on": "tail", "how": "left", "columns": None, "suffix": None}
    with pytest.raises(PlanError) as caught:
        lookup_schema(**(defaults | arguments), input_schema=STREAM.schema)
    assert words in caught.value.message


def test_keys_that_cannot_be_compared_are_refused() -> None:
    nested = pa.table({"k": [[1]]})
    with pytest.raises(PlanError, match="cannot be a key"):
        lookup_schema(nested, "k", how="left", columns=None, suffix=None, input_schema=nested.schema)
    seconds, micros = (pa.schema({"k": pa.timestamp(unit)}).empty_table() for unit in ("s", "us"))
    with pytest.raises(PlanError, match=r"timestamp\[us\] in the stream and timestamp\[s\] in the table"):
        lookup_schema(seconds, "k", how="left", columns=None, suffix=None, input_schema=micros.schema)


def test_unknown_keys_are_not_added_to_the_index() -> None:
    table = pa.table({"k": np.arange(1000), "v": np.arange(1000)})
    batch = pa.record_batch({"k": np.arange(8192)})
    operator = opened(table, batch, on="k", how="left", columns=None, suffix=None)
    before = operator.state_bytes()
    assert before > 16_000
    for start in range(20):
        operator.process(pa.record_batch({"k": np.arange(8192) + start * 8192}))
    assert operator.state_bytes() == before
    operator.close()
    assert operator.state_bytes() == 0


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("set threads = 1")
        yield connection


INTS = st.sampled_from([None, 0, 1, -1, 2**63 - 1])
TEXTS = st.sampled_from([None, "", "a", "ab", "abcdefghi", "x" * 30, "é"])
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan])
KEYS = {"i": (pa.int64(), INTS), "s": (pa.string(), TEXTS), "x": (pa.float64(), FLOATS)}


def same_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("NaN" if isinstance(part, float) and math.isnan(part) else part for part in key)


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(st.data(), st.sampled_from([("i",), ("s",), ("x",), ("i", "s"), ("s", "x", "i")]), st.booleans())
def test_lookups_agree_with_joins_of_duckdb(
    duck: duckdb.DuckDBPyConnection, data: st.DataObject, on: tuple[str, ...], inner: bool
) -> None:
    key = st.tuples(*(KEYS[name][1] for name in on))
    table_keys = data.draw(st.lists(key, max_size=10, unique_by=same_key))
    stream_keys = data.draw(st.lists(key, min_size=1, max_size=30))
    table, stream = (
        pa.table({name: pa.array([row[at] for row in rows], KEYS[name][0]) for at, name in enumerate(on)})
        for rows in (table_keys, stream_keys)
    )
    table = table.append_column("v", pa.array(range(len(table)), pa.int64()))
    stream = stream.append_column("n", pa.array(range(len(stream)), pa.int64()))
    how = "inner" if inner else "left"
    duck.register("stream", stream)
    duck.register("dimension", table)
    condition = " and ".join(f"stream.{name} = dimension.{name}" for name in on)
    query = f"select n, v from stream {how} join dimension on {condition} order by n"
    got = look_up(table, stream.to_batches()[0], on=on, how=how)
    assert [(row["n"], row["v"]) for row in got] == duck.execute(query).fetchall()
