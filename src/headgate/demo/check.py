"""Compare the demo's answers with the answers of Spark SQL to the same questions, over the published files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.demo.data import FlightData
from headgate.demo.pipeline import CARRIER_HOURS, NULL, ROUTE_DAYS

#: The largest allowed difference of two floats, relative to the larger one.
TOLERANCE = 1e-9

# All columns are read as text. A failed cast is an error in Spark, so no type can be guessed wrong.
_DEPARTED = """
    SELECT f.carrier, f.origin, f.dest, CAST(f.dep_delay AS BIGINT) AS dep_delay, CAST(p.seats AS BIGINT) AS seats,
           timestampadd(MINUTE, CAST(f.minute AS INT), CAST(f.time_hour AS TIMESTAMP)) AS event_time
    FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum
    WHERE f.dep_time IS NOT NULL
"""
_QUESTIONS = {
    CARRIER_HOURS: """
        SELECT carrier, date_trunc('HOUR', event_time) AS window_start,
               date_trunc('HOUR', event_time) + INTERVAL 1 HOUR AS window_end, count(*) AS flights,
               avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay, sum(seats) AS seats,
               count(seats) AS known_planes, count(*) - count(seats) AS unknown_planes
        FROM departed GROUP BY carrier, date_trunc('HOUR', event_time)
    """,
    ROUTE_DAYS: """
        SELECT origin, dest, date_trunc('DAY', event_time) AS window_start,
               date_trunc('DAY', event_time) + INTERVAL 1 DAY AS window_end, count(*) AS flights, sum(seats) AS seats
        FROM departed GROUP BY origin, dest, date_trunc('DAY', event_time)
    """,
}
_KEYS = {CARRIER_HOURS: ("carrier", "window_start"), ROUTE_DAYS: ("origin", "dest", "window_start")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing one answer with Spark SQL's answer."""

    rows: int
    expected_rows: int
    #: How many windows differ: one side lacks the window, or has another value.
    wrong: int
    #: The first such window as text, or "".
    example: str

    @property
    def matches(self) -> bool:
        """Whether both answers are the same."""
        return self.wrong == 0 and self.rows == self.expected_rows


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of the demo's answer over all carriers and hours."""

    kept: int
    unknown_planes: int
    seats: int


def compare(spark: SparkSession, data: FlightData, output: Path) -> dict[str, Comparison]:
    """Compare both answers in `output` with Spark SQL's answers: integers exactly, floats within TOLERANCE."""
    _make_views(spark, data)
    return {name: _compare(spark.read.parquet(str(output / name)), spark.sql(_QUESTIONS[name]), _KEYS[name])
            for name in _QUESTIONS}  # fmt: skip


def totals(spark: SparkSession, output: Path) -> Totals:
    """Return the totals of the answer in `output`."""
    answer = spark.read.parquet(str(output / CARRIER_HOURS))
    row = answer.agg(F.sum("flights"), F.sum("unknown_planes"), F.sum("seats")).first()
    return Totals(*(int(value or 0) for value in row or (0, 0, 0)))


def _make_views(spark: SparkSession, data: FlightData) -> None:
    """Make views of the published files, and of the flights that departed."""
    for name, path in {"flights": data.flights, "planes": data.planes}.items():
        spark.read.csv(str(path), header=True, nullValue=NULL).createOrReplaceTempView(name)
    spark.sql(_DEPARTED).createOrReplaceTempView("departed")


def _compare(answer: DataFrame, expected: DataFrame, keys: tuple[str, ...]) -> Comparison:
    types, expected_types = dict(answer.dtypes), dict(expected.dtypes)
    if types != expected_types:
        return Comparison(answer.count(), expected.count(), 1, f"columns {types}, but Spark SQL has {expected_types}")
    there = F.lit(True)  # null on the side that the outer join filled
    ours, theirs = answer.withColumn("there", there).alias("a"), expected.withColumn("there", there).alias("e")
    same_key = _all([F.col(f"a.{key}").eqNullSafe(F.col(f"e.{key}")) for key in keys])
    differs = ~_all([_same(name, kind) for name, kind in [*expected_types.items(), ("there", "boolean")]])
    window = F.when(F.col("e.there"), F.struct(*[f"e.{key}" for key in keys]))
    shown = F.to_json(F.struct(F.struct("a.*").alias("headgate"), F.struct("e.*").alias("spark")))
    counts = (
        F.count("a.there").alias("rows"),
        F.count_distinct(window).alias("expected_rows"),
        F.count_if(differs).alias("wrong"),
        F.coalesce(F.first(F.when(differs, shown), ignorenulls=True), F.lit("")).alias("example"),
    )
    row = ours.join(theirs, same_key, "full_outer").agg(*counts).collect()[0]
    return Comparison(**row.asDict())


def _same(name: str, kind: str) -> Column:
    ours, theirs = F.col(f"a.{name}"), F.col(f"e.{name}")
    if kind != "double":
        return ours.eqNullSafe(theirs)
    # Spark treats NaN as the largest number. Without the second condition, NaN would therefore match every number.
    near = (F.abs(ours - theirs) <= TOLERANCE * F.greatest(F.abs(ours), F.abs(theirs))) & ~F.isnan(ours - theirs)
    return ours.eqNullSafe(theirs) | F.coalesce(near, F.lit(False))


def _all(conditions: list[Column]) -> Column:
    return reduce(Column.__and__, conditions)
