"""Test a pipeline: the test gives rows and watermarks, and restarts the pipeline before each row."""

import pyarrow as pa

import headgate as hg
from headgate.testing import AdvanceWatermark, Restart, at

TRIPS = pa.schema({"city": pa.string(), "km": pa.int64(), "at": pa.timestamp("us", "UTC")})


def pipeline(env: hg.StreamEnvironment) -> None:
    trips = env.from_source(hg.sources.csv("trips/*.csv", schema=TRIPS), watermark=hg.Watermark("at", "5 s"))
    totals = trips.key_by("city").window(hg.tumble("1 min")).late_output("late").aggregate(km=hg.sum("km"))
    totals.select("city", "km").sink_to(hg.sinks.parquet("totals/")).name("totals")
    totals.side_output("late").sink_to(hg.sinks.parquet("late/")).name("late")


GIVEN = [
    {"city": "Rome", "km": 7, "at": at("10 s")},
    {"city": "Oslo", "km": 3, "at": at("50 s")},
    {"city": "Rome", "km": 5, "at": at("30 s")},
    AdvanceWatermark(at("1 min")),
    {"city": "Oslo", "km": 9, "at": at("40 s")},
]


def test_trips_are_summed_by_minute_and_late_ones_put_aside() -> None:
    result = hg.testing.run(pipeline, GIVEN)  # neither trips/ nor totals/ is touched
    hg.testing.assert_same_rows(result["totals"], [{"city": "Rome", "km": 12}, {"city": "Oslo", "km": 3}])
    assert result["late"] == [{"city": "Oslo", "km": 9, "at": at("40 s")}]


def test_every_trip_counts_once_wherever_the_pipeline_is_resumed() -> None:
    undisturbed = hg.testing.run(pipeline, GIVEN)
    for row in range(4):
        resumed = hg.testing.run(pipeline, GIVEN, restarts=[Restart(row, parallelism=3)])
        hg.testing.assert_same_rows(resumed["totals"], undisturbed["totals"])
        hg.testing.assert_same_rows(resumed["late"], undisturbed["late"])


if __name__ == "__main__":  # or by pytest, which finds both tests by their names
    test_trips_are_summed_by_minute_and_late_ones_put_aside()
    test_every_trip_counts_once_wherever_the_pipeline_is_resumed()
    print("2 tests passed")
