"""Count rows that come after their window has fired. Rows that come even later go to a side output."""

import pyarrow as pa

import headgate as hg

READINGS = pa.schema({"at": pa.timestamp("s", tz="UTC"), "level": pa.float64()})


def per_minute(readings: hg.DataStream) -> hg.DataStream:
    return (
        readings.key_by()
        .window(hg.tumble("1 min"))
        .allowed_lateness("2 min")  # until then a row that comes late emits its window's row again
        .late_output("late")  # and from then on it goes here, instead of being dropped
        .aggregate(readings=hg.count())
    )


if __name__ == "__main__":
    batches = [  # in the order in which they come: 30 and 20 are behind
        pa.record_batch([pa.array(seconds, READINGS.field("at").type), pa.array([1.0] * len(seconds))], schema=READINGS)
        for seconds in ([10, 70], [30, 80], [400], [20])
    ]
    env = hg.StreamEnvironment(config=hg.Config(buffer_timeout=0))
    source = hg.sources.iterable(batches)
    levels = per_minute(env.from_source(source, watermark=hg.Watermark("at", out_of_orderness="5 s")))
    late = hg.sinks.collect()
    levels.side_output("late").sink_to(late)
    # The last row of each window counts.
    counts = {row["window_start"]: row["readings"] for row in levels.collect().to_pylist()}
    for start, readings in counts.items():
        print(f"{start:%H:%M}  {readings}")
    print(f"{sum(counts.values()) + late.rows} readings in all, counted or put aside")
