"""The comparison of the demo's answer with that of Spark SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from headgate.demo import check
from headgate.demo.data import FlightData
from tests.spark_session import SharedSpark

FLIGHTS = """dep_time,dep_delay,carrier,tailnum,origin,dest,minute,time_hour
517,2,UA,N1,EWR,IAH,15,2013-01-01T10:00:00Z
533,5,UA,N2,EWR,IAH,59,2013-01-01T10:00:00Z
NA,NA,UA,N1,EWR,IAH,59,2013-01-01T10:00:00Z
2358,-3,UA,NA,EWR,IAH,59,2013-01-01T23:00:00Z
"""
UTC_TIME = pa.timestamp("us", "UTC")


def hour(number: int) -> datetime:
    return datetime(2013, 1, 1 + number // 24, number % 24, tzinfo=UTC)


CARRIER_HOURS = pa.table(
    {
        "carrier": ["UA", "UA"],
        "window_start": pa.array([hour(10), hour(23)], UTC_TIME),
        "window_end": pa.array([hour(11), hour(24)], UTC_TIME),
        "flights": [2, 1],
        "mean_delay": [3.5, -3.0],
        "worst_delay": [5, -3],
        "seats": pa.array([100, None], pa.int64()),
        "known_planes": [1, 0],
        "unknown_planes": [1, 1],
    }
)
ROUTE_DAYS = pa.table(
    {
        "origin": ["EWR"],
        "dest": ["IAH"],
        "window_start": pa.array([hour(0)], UTC_TIME),
        "window_end": pa.array([hour(24)], UTC_TIME),
        "flights": [3],
        "seats": [100],
    }
)


@pytest.fixture
def spark(shared_spark: SharedSpark) -> SparkSession:
    return shared_spark.on("local[2]")


def compared(
    spark: SparkSession, folder: Path, carrier_hours: pa.Table, flights: str = FLIGHTS
) -> dict[str, check.Comparison]:
    (folder / "flights.csv").write_text(flights)
    (folder / "planes.csv").write_text("tailnum,seats\nN1,100\n")
    for name, answer in {"carrier_hours": carrier_hours, "route_days": ROUTE_DAYS}.items():
        (folder / name).mkdir()
        pa.parquet.write_table(answer, folder / name / "part.parquet")
    return check.compare(spark, FlightData(folder / "flights.csv", folder / "planes.csv", folder, 4), folder)


def changed(column: str, values: list[object]) -> pa.Table:
    index = CARRIER_HOURS.schema.get_field_index(column)
    field = CARRIER_HOURS.schema.field(index)
    return CARRIER_HOURS.set_column(index, field, pa.array(values, field.type))


def test_the_right_answer_matches(spark: SparkSession, tmp_path: Path) -> None:
    comparisons = compared(spark, tmp_path, changed("mean_delay", [3.5 * (1 + 5e-10), -3.0]))
    assert [(c.rows, c.wrong, c.example, c.matches) for c in comparisons.values()] == [
        (2, 0, "", True),
        (1, 0, "", True),
    ]
    assert check.totals(spark, tmp_path) == check.Totals(kept=3, unknown_planes=2, seats=100)


#: Flights of one window each. Their answers are wrong in ways of their own, but for the last.
CARRIERS = ("an integer one off", "zero for null", "a mean too far off", "a mean that is no number", "a window missing",
            "a window of another key", "right")  # fmt: skip


def test_every_kind_of_wrong_answer_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """One comparison counts all of them: each question to Spark SQL takes seconds of processor time."""
    flights = "".join(f"517,2,{carrier},N1,EWR,IAH,15,2013-01-01T10:00:00Z\n" for carrier in CARRIERS)
    right = {"window_start": hour(10), "window_end": hour(11), "flights": 1, "mean_delay": 2.0, "worst_delay": 2,
             "seats": 100, "known_planes": 1, "unknown_planes": 0}  # fmt: skip
    answers = {carrier: {**right, "carrier": carrier} for carrier in CARRIERS}
    answers["an integer one off"]["seats"] = 101
    answers["a mean too far off"]["mean_delay"] = 2.0 * (1 + 2e-9)
    answers["a mean that is no number"]["mean_delay"] = float("nan")
    del answers["a window missing"]
    answers["a window of another key"]["carrier"] = "AA"
    flights = flights.replace("zero for null,N1", "zero for null,NA")
    answers["zero for null"] |= {"seats": 0, "known_planes": 0, "unknown_planes": 1}
    answer = pa.Table.from_pylist(list(answers.values()), CARRIER_HOURS.schema)
    comparison = compared(spark, tmp_path, answer, FLIGHTS.partition("\n")[0] + "\n" + flights)["carrier_hours"]
    assert comparison.wrong == len(CARRIERS), "another key is a window too many and one too few"
    assert (comparison.rows, comparison.expected_rows) == (len(CARRIERS) - 1, len(CARRIERS))
    assert not comparison.matches


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        pytest.param(changed("mean_delay", [3.5, float("nan")]), 1, id="a mean that is no number"),
        pytest.param(CARRIER_HOURS.set_column(3, "flights", pa.array([2.0, 1.0])), 1, id="another type"),
    ],
)
def test_a_wrong_answer_is_found(spark: SparkSession, tmp_path: Path, answer: pa.Table, wrong: int) -> None:
    comparisons = compared(spark, tmp_path, answer)
    assert comparisons["carrier_hours"].wrong == wrong
    assert not comparisons["carrier_hours"].matches
    assert comparisons["carrier_hours"].example
    assert comparisons["route_days"].matches


def test_a_window_that_is_there_twice_is_found(spark: SparkSession, tmp_path: Path) -> None:
    comparisons = compared(spark, tmp_path, pa.concat_tables([CARRIER_HOURS, CARRIER_HOURS.slice(0, 1)]))
    assert not comparisons["carrier_hours"].matches
    assert (comparisons["carrier_hours"].rows, comparisons["carrier_hours"].expected_rows) == (3, 2)
