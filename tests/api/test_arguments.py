"""Each impossible argument is an error at the call, and the error names the argument."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.functions import udf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import IntegerType, StructType

import headgate as hg
from headgate.quantities import microseconds
from tests.api.conftest import FLIGHTS, Plans

NAN, INF = float("nan"), float("inf")
SCHEMA = pa.schema({"n": pa.int64()})
INT = IntegerType()
#: Without its types, which refuse a lambda.
VECTORIZED: Any = pandas_udf
TABLE = pa.table({"carrier": ["AA"], "seats": [1]})


def rows(start: int, n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], schema=SCHEMA)


def stream() -> Any:
    return Plans().stream()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hg.sources.generate(5), "generate: the first argument must be a function, not 5"),
        (lambda: hg.sources.generate(rows, rows="5"), "rows='5' must be a whole number, or None"),
        (lambda: hg.sources.generate(rows, rows=1.5), "rows=1.5 must be a whole number, or None"),
        (lambda: hg.sources.generate(rows, rows=True), "rows=True must be a whole number, or None"),
        (lambda: hg.sources.generate(rows, rate="5"), "rate='5' must be a number, or None"),
        (lambda: hg.sources.generate(rows, rate=NAN), "rate=nan must be above 0"),
        (lambda: hg.sources.generate(rows, schema={"n": "long"}), "schema={'n': 'long'} must be a pyarrow.Schema"),
        (lambda: hg.sources.generate(rows, time=5), "time=5 must be a string, or None"),
        (lambda: hg.sources.generate(rows, batch_rows="5"), "batch_rows='5' must be a whole number"),
        (lambda: hg.sources.generate(rows, batch_time=NAN), "batch_time: nan is impossible"),
        (lambda: hg.sources.csv(5), "5 is not a path"),
        (lambda: hg.sources.csv([5]), "5 is not a path"),
        (lambda: hg.sources.csv(b"x"), "b'x' is not a path"),
        (lambda: hg.sources.csv([]), "the list of paths is empty"),
        (lambda: hg.sources.csv("x", schema={"n": "long"}), "schema={'n': 'long'} must be a pyarrow.Schema"),
        (lambda: hg.sources.csv("x", delimiter=5), "delimiter=5 must be a string"),
        (lambda: hg.sources.csv("x", header="no"), "header='no' must be True or False"),
        (lambda: hg.sources.csv("x", null_values=5), "null_values=5 must be a list of strings"),
        (lambda: hg.sources.csv("x", null_values=[5]), r"null_values=\[5\] must be a list of strings"),
        (lambda: hg.sources.csv("x", split_size=NAN), "split_size: nan is not a size"),
        (lambda: hg.sources.json_lines("x", schema=[]), r"schema=\[\] must be a pyarrow.Schema"),
        (lambda: hg.sources.files("x", format=["csv"]), r"format=\['csv'\] is not one of csv"),
        (lambda: hg.sources.files("x", watch="no"), "watch='no' must be True or False"),
        (lambda: hg.sources.parquet(5), "5 is not a path"),
        (lambda: hg.sources.parquet("x", columns=5), "columns=5 must be a list of strings"),
        (lambda: hg.sources.parquet("x", batch_rows="5"), "batch_rows='5' must be a whole number"),
        (lambda: hg.sources.iterable([[{"n": 1}]], schema={"n": "long"}), "schema={'n': 'long'} must be a pyarrow"),
        (lambda: hg.sources.iterable(rows, bounded="no"), "bounded='no' must be True or False"),
        (lambda: hg.sources.socket_lines("host", "80"), "port='80' must be a number"),
        (lambda: hg.sinks.printer(limit="5"), "limit='5' must be a number of rows"),
        (lambda: hg.sinks.printer(prefix=5), "prefix=5 must be a string"),
        (lambda: hg.sinks.collect(limit=1.5), "limit=1.5 must be a number of rows"),
        (lambda: hg.sinks.for_each_batch(5), "for_each_batch: the first argument must be a function, not 5"),
        (lambda: hg.sinks.csv(5), "5 is not a path"),
        (lambda: hg.sinks.parquet("x", mode=["append"]), r"mode=\['append'\] is unknown"),
        (lambda: hg.sinks.parquet("x", partition_by=5), "partition_by=5 must be a list of strings"),
        (lambda: hg.sinks.parquet("x", partition_by=[5]), r"partition_by=\[5\] must be a list of strings"),
        (lambda: hg.tumble(NAN), "window: nan is impossible"),
        (lambda: hg.hop("1 h", every=INF), "window: inf is impossible"),
        (lambda: hg.tumble(1e300), r"window: 1e\+300 is impossible"),
        (lambda: hg.tumble(10**400), "window: 1000+ is impossible"),
        (lambda: hg.tumble("9" * 400 + " d"), "window: '999+ d' is impossible"),
        (lambda: hg.Watermark("ts", out_of_orderness=NAN), "out_of_orderness: nan is impossible"),
        (lambda: hg.Watermark("ts", idle_timeout=INF), "idle_timeout: inf is impossible"),
        (lambda: hg.ValueState(pa.int64(), ttl=timedelta(days=100_001)), "ttl: .*days=100001.* is impossible"),
        (lambda: hg.restart.fixed(delay=INF), "delay: inf is impossible"),
        (lambda: hg.Config(heartbeat_timeout=NAN), "option heartbeat_timeout: nan is impossible"),
        (lambda: hg.Config(buffer_timeout=NAN), "option buffer_timeout: nan is impossible"),
        (lambda: hg.Config(slots_timeout=INF), "option slots_timeout: inf is impossible"),
        (lambda: hg.Config(bind_host=5), "option bind_host: 5 is not the name or address of a machine"),
        (lambda: hg.Config(bind_host=""), "option bind_host: '' is not the name or address"),
        (lambda: stream().select(["carrier"]), r"select: columns are named by strings, not by \['carrier'\]"),
        (lambda: stream().key_by(["carrier"]), r"by \['carrier'\]; give each column as an argument of its own"),
        (lambda: stream().side_output(["bad"]), r"side_output: the tag must be a string .*, not \['bad'\]"),
        (lambda: stream().map(len, schema="x long"), r"pa.schema\({'x': pa.int64\(\)}\), not 'x long'"),
        (lambda: stream().map(len, schema=StructType()), r"example pa.schema\({'x': pa.int64\(\)}\), not StructType"),
        (lambda: hg.sources.csv("x", schema="x long"), r"be a pyarrow.Schema, for example pa.schema\({'x': pa.int64"),
        (lambda: stream().lookup(TABLE, on=5), "lookup: on=5 must be the name of a column"),
        (lambda: stream().select("*"), r'select: "\*" is not a column; with_columns\(total="a \+ b"\) keeps all'),
        (lambda: stream().lookup(TABLE, on=[5]), "lookup: columns are named by strings, not by 5"),
        (lambda: stream().lookup(TABLE, on="carrier", columns=5), "lookup: columns=5 must be the name of a column"),
        (lambda: stream().lookup(TABLE, on="carrier", columns=[["seats"]]), "lookup: columns="),
        (lambda: stream().lookup(TABLE, on="carrier", suffix=5), "lookup: suffix=5 must be a string"),
    ],
)  # fmt: skip
def test_an_error_names_an_impossible_argument(call: Callable[[], object], says: str) -> None:
    with pytest.raises((hg.ConfigError, hg.PlanError), match=says):
        call()


@pytest.mark.parametrize("of_spark", [udf(len, INT), VECTORIZED(lambda names: names.str.len(), INT)])
@pytest.mark.parametrize("call", ["map", "map_batches", "flat_map", "filter"])
def test_a_udf_of_spark_is_refused_at_the_call(call: str, of_spark: Any) -> None:
    options = {} if call == "filter" else {"schema": SCHEMA}
    with pytest.raises(hg.PlanError, match=rf"{call}: this is a Spark UDF; give the plain Python function \(udf.func"):
        getattr(stream(), call)(of_spark, **options)


@pytest.mark.parametrize("fn", [lambda d: None, lambda: None, lambda a, b, c, d: None, lambda d, *, number: None])
def test_a_function_for_dataframes_that_cannot_take_the_arguments_is_refused(fn: Any) -> None:
    with pytest.raises(
        hg.PlanError, match=r"fn gets \(spark_df, checkpoint_id\), or .*, run\), and .*<lambda> takes \("
    ):
        hg.sinks.foreach_dataframe(fn)


@pytest.mark.parametrize(
    "fn", [print, lambda d, n: None, lambda *all: None, lambda d, n, run: None, lambda d, n=1: None]
)
def test_a_function_for_dataframes_that_takes_the_arguments_is_accepted(fn: Any) -> None:
    hg.sinks.foreach_dataframe(fn)


def test_numpy_numbers_are_accepted() -> None:
    source = hg.sources.generate(rows, rows=np.int64(5), rate=np.float32(2), batch_rows=np.int32(3))
    assert (source.rows, type(source.rows), source.block_rows, type(source.block_rows)) == (5, int, 1, int)  # type: ignore[attr-defined]


def test_lookup_takes_one_column_without_a_list() -> None:
    assert stream().lookup(TABLE, on="carrier", columns="seats").schema.names == [*FLIGHTS.names, "seats"]


def test_the_longest_duration_is_100000_days() -> None:
    assert microseconds("100000 d") == microseconds(timedelta(days=100_000)) == 8_640_000_000_000_000
