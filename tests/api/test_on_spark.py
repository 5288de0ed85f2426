"""An environment on Spark: DataFrames go in as lookup tables and come out as results."""

from __future__ import annotations

import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.state.checkpoint_storage import load_checkpoint
from tests.docstring_examples import GIVEN, has_example, run_example
from tests.exactly_once import ROWS, committed, environment, expected
from tests.runtime.faults import build_gated, open_gate
from tests.runtime.jobs import numbers, wait_until_running
from tests.spark_session import SharedSpark, to_arrow

pytestmark = pytest.mark.timeout(300)

FLIGHTS = pa.record_batch({"tailnum": ["N1", "N2", None, "N1"], "delay": [5, None, 7, 9]})


@pytest.fixture
def spark(shared_spark: SharedSpark) -> SparkSession:
    return shared_spark.on("local[2]")


@pytest.fixture
def flights(spark: SparkSession) -> hg.DataStream:
    return hg.StreamEnvironment(spark, parallelism=2).from_source(hg.sources.iterable([FLIGHTS, FLIGHTS]))


@pytest.mark.parametrize("thing", [hg.DataStream.to_dataframe, hg.sources.dataframe, hg.sinks.foreach_dataframe])
def test_the_example_of_a_docstring_runs(thing, spark, tmp_path):
    rows = [{"city": "Rome", "km": 7}, {"city": "Oslo", "km": 3}]
    trips = hg.StreamEnvironment(spark).from_source(hg.sources.iterable([rows]))
    assert has_example(thing)
    run_example(thing, thing.__name__, {**GIVEN, "spark": spark, "trips": trips, "folder": str(tmp_path / "table")})


def test_a_dataframe_is_a_lookup_table(spark, flights):
    planes = spark.createDataFrame([("N1", 55), ("N2", 180)], "tailnum string, seats int")
    seats = flights.lookup(planes, on="tailnum", how="inner").key_by().aggregate(final=True, seats=hg.sum("seats"))
    assert seats.collect()["seats"].to_pylist() == [2 * (55 + 180 + 55)]


def test_a_stream_becomes_a_dataframe(flights):
    dataframe = flights.filter("delay > 5").to_dataframe()
    assert dataframe.dtypes == [("tailnum", "string"), ("delay", "bigint")]
    assert sorted(dataframe.collect(), key=lambda row: row.delay) == [(None, 7), (None, 7), ("N1", 9), ("N1", 9)]
    assert dataframe.limit(1).count() == 1


def test_a_stream_without_rows_becomes_an_empty_dataframe(flights):
    assert flights.filter("delay > 100").to_dataframe().count() == 0


def test_a_job_with_more_slots_than_spark_has_is_refused(spark):
    env = hg.StreamEnvironment(spark, parallelism=3, config=hg.Config(slots_timeout="100 ms"))
    with pytest.raises(hg.NotEnoughSlots):
        env.from_source(hg.sources.iterable([FLIGHTS])).collect()


def test_a_job_is_saved_stopped_and_drained(spark, tmp_path):
    first = build_gated(environment(tmp_path, spark), tmp_path).execute_async()
    wait_until_running(first, ROWS // 3)
    saved = first.savepoint(tmp_path / "kept", 60)
    assert first.status() == "RUNNING"
    assert load_checkpoint(saved).kind == "savepoint"
    last = first.stop(timeout=60)
    assert last is not None
    assert first.wait().rows_in < ROWS
    assert set(committed(tmp_path)) < set(expected())
    open_gate(tmp_path)
    assert build_gated(environment(tmp_path, spark, 1), tmp_path).execute(resume=last).rows_in == ROWS
    assert committed(tmp_path) == expected()
    env = hg.StreamEnvironment(spark, parallelism=2)
    rows = env.from_source(hg.sources.generate(numbers, rows=10**9, rate=10_000))
    rows.sink_to(hg.sinks.parquet(tmp_path / "drained"))
    job = env.execute_async()
    wait_until_running(job)
    assert job.stop(drain=True, timeout=60) is None
    assert ds.dataset(tmp_path / "drained").count_rows() == job.wait().rows_in > 0


def test_a_dataframe_is_a_source(spark, tmp_path):
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(spill_dir=tmp_path))
    frame = spark.range(0, 10_000, 1, 3).selectExpr(
        "id", "if(id % 7 = 0, null, cast(id % 5 as string)) as name", "timestamp_micros(id * 250000) as at",
        "cast(id as decimal(12, 2)) as price", "array(id, null) as ids", "named_struct('x', id) as pair",
        "timestamp '9999-12-31 23:59:59' as far",
    )  # fmt: skip
    stream = env.from_source(hg.sources.dataframe(frame), watermark=hg.Watermark("at"))
    assert stream.schema.names == frame.columns
    taken = stream.set_parallelism(2).collect()
    assert taken.sort_by("id").to_pylist() == to_arrow(frame.orderBy("id")).cast(taken.schema).to_pylist()
    names = stream.filter("id % 2 = 0").select("name").collect()["name"].to_pylist()  # reads only some of the columns
    assert Counter(names) == Counter(taken.filter(pc.equal(pc.bit_wise_and(taken["id"], 1), 0))["name"].to_pylist())
    windows = stream.key_by("name").window(hg.tumble("10 min")).aggregate(rows=hg.count(), ids=hg.sum("id"))
    frame.createOrReplaceTempView("frame")
    wanted = spark.sql(
        "select name, window.start as window_start, count(*) as rows, sum(id) as ids "
        "from frame group by name, window(at, '10 minutes')"
    )
    order = [("window_start", "ascending"), ("name", "ascending")]
    columns = ["name", "window_start", "rows", "ids"]
    assert windows.select(*columns).collect().sort_by(order).to_pylist() == to_arrow(wanted).sort_by(order).to_pylist()
    assert list(tmp_path.iterdir()) == [], "the files are gone with each job"


def test_a_dataframe_in_the_place_of_a_source_is_refused(spark):
    frame = spark.range(3)
    with pytest.raises(hg.PlanError, match=r"for a Spark DataFrame write from_source\(hg.sources.dataframe\(df\)\)"):
        hg.StreamEnvironment(spark).from_source(frame)
    for given, error in ((frame, hg.ConfigError), ([frame], hg.SourceError)):
        with pytest.raises(error, match=r"read a Spark DataFrame with hg.sources.dataframe\(df\)"):
            hg.sources.iterable(given)


def test_the_files_of_a_failed_job_are_removed_too(spark, tmp_path):
    env = hg.StreamEnvironment(spark, config=hg.Config(spill_dir=tmp_path))
    stream = env.from_source(hg.sources.dataframe(spark.range(10)))
    with pytest.raises(hg.UserFunctionError):
        stream.map(lambda row: 1 // 0, schema=stream.schema).collect()  # type: ignore[arg-type, return-value]
    broken = env.from_source(hg.sources.dataframe(spark.range(10).selectExpr("assert_true(id < 5) as ok", "id")))
    with pytest.raises(hg.SourceError, match="the DataFrame could not be written to"):
        broken.select("id").collect()
    assert list(tmp_path.iterdir()) == []


def test_a_dataframe_without_rows_is_a_source(spark, tmp_path):
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(spill_dir=tmp_path))
    assert env.from_source(hg.sources.dataframe(spark.range(10).where("id > 10"))).collect().num_rows == 0


def test_a_job_that_restarts_continues_to_read_a_dataframe(spark, tmp_path):
    failed, checkpoints = tmp_path / "failed", tmp_path / "checkpoints"

    def fails_once(batch):
        if not failed.exists():
            time.sleep(0.3)  # until there is a checkpoint; there are a hundred batches
            if any(checkpoints.glob("*/chk-*/_metadata")):
                failed.touch()
                raise ValueError("once")
        return batch

    env = environment(tmp_path, hg.LocalDeployment(1, processes=False), 1, spill_dir=tmp_path / "spilled")
    rows = 100 * 16_384
    stream = env.from_source(hg.sources.dataframe(spark.range(rows).coalesce(1)))
    once = stream.map_batches(fails_once, schema=stream.schema)
    once.key_by().aggregate(final=True, rows=hg.count(), total=hg.sum("id")).sink_to(hg.sinks.parquet(tmp_path / "out"))
    assert env.execute().restarts == 1
    assert ds.dataset(tmp_path / "out").to_table().to_pylist() == [{"rows": rows, "total": rows * (rows - 1) // 2}]
    assert list((tmp_path / "spilled").iterdir()) == []


def test_another_program_cannot_resume_with_a_dataframe(spark, tmp_path):
    source = hg.sources.dataframe(spark.range(3))
    source.configure(hg.Config(spill_dir=tmp_path))
    source.prepare()
    assert source.prepared() is not None
    with pytest.raises(hg.SourceError, match="its rows are kept only as long as the program that made the checkpoint"):
        hg.sources.dataframe(spark.range(3)).restore(source.prepared())
    source.release()


def test_an_argument_that_is_no_dataframe_is_refused():
    with pytest.raises(hg.ConfigError, match="a list is not a Spark DataFrame"):
        hg.sources.dataframe([1])


def test_a_streaming_dataframe_is_refused(spark):
    with pytest.raises(hg.ConfigError, match="a streaming DataFrame has no end.* spark.read instead of"):
        hg.sources.dataframe(spark.readStream.format("rate").load())


AMOUNTS = {"a": pa.decimal128(9, 2), "b": pa.decimal128(38, 18), "c": pa.decimal128(20, 0), "d": pa.decimal128(36, 30)}


def amounts(spark: SparkSession, folder: Path) -> pa.Table:
    """Return rows with decimals of several types, of few and of many digits, and with nulls. Make a view of them in
    Spark, too."""
    random = np.random.default_rng(3)
    columns: dict[str, pa.Array] = {"key": pa.array(random.integers(0, 4, 400))}
    for name, kind in AMOUNTS.items():
        numbers = [int(n) for n in random.integers(-(10**9), 10**9, 400) >> random.integers(0, 30, 400)]
        more = 10 ** max(0, kind.precision - 14)
        values = [None if n % 9 == 0 else Decimal(n * more).scaleb(-kind.scale) for n in numbers]
        columns[name] = pa.array(values, kind)
    rows = pa.table(columns)
    pq.write_table(rows, folder / "amounts.parquet")
    spark.read.parquet(str(folder / "amounts.parquet")).createOrReplaceTempView("amounts")
    return rows


def test_decimals_are_those_of_spark_sql(spark, tmp_path):
    """Sums, means, least and greatest: the same types, and the same values to the last digit."""
    rows = amounts(spark, tmp_path)
    kinds = {"sum": "sum", "mean": "avg", "min": "min", "max": "max"}
    sql = ", ".join(f"{theirs}({name}) as {name}_{ours}" for name in AMOUNTS for ours, theirs in kinds.items())
    wanted = to_arrow(spark.sql(f"select key, {sql} from amounts group by key order by key"))
    aggregates = {f"{name}_{ours}": getattr(hg, ours)(name) for name in AMOUNTS for ours in kinds}
    stream = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False)).from_source(
        hg.sources.iterable(rows.to_batches(50))
    )
    got = stream.key_by("key").aggregate(final=True, **aggregates).collect().sort_by("key")
    assert got.schema.types == wanted.schema.types
    assert got.to_pylist() == wanted.to_pylist()


EXPRESSIONS = [
    "a + b", "a - c", "a * b", "b * c", "d * d", "a / b", "b / a", "a / 3", "c / 7.25", "d / 2", "b / b", "a % 7",
    "b % a", "a * (1 + 0.19)", "a * 2", "a * 1.10", "0.05 * c", "-b", "key * a", "a + key", "a > b",
    "a = 1.5", "b >= 0.05", "c in (1, 2.0, 37)",
    "a between -1.5 and b", "b - 0.000001 < a",
]  # fmt: skip


def test_sql_on_decimals_is_that_of_spark_sql(spark, tmp_path):
    """The same types and values, where the result fits."""
    rows = amounts(spark, tmp_path)
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")  # a division by zero is null, here as there
    try:
        columns = ", ".join(f"{text} as e{number}" for number, text in enumerate(EXPRESSIONS))
        wanted = to_arrow(spark.sql(f"select {columns} from amounts"))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
    stream = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False)).from_source(hg.sources.iterable(rows))
    got = stream.select(**{f"e{number}": text for number, text in enumerate(EXPRESSIONS)}).collect()
    for number, text in enumerate(EXPRESSIONS):
        mine, theirs = got.column(number), wanted.column(number)
        assert (text, mine.type) == (text, theirs.type)
        assert (text, sorted(mine.to_pylist(), key=str)) == (text, sorted(theirs.to_pylist(), key=str))
