"""Compute every aggregate of a column for each gauge and day. Read Parquet files, and write CSV files."""

import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headgate as hg

WEIR = [(2, 1.5, "calm"), (9, 2.5, "rain"), (15, 3.25, "rain"), (23, 2.0, "calm"), (30, 1.75, "fog")]
rows = [
    {"gauge": "weir", "at": datetime(2024, 5, 1) + timedelta(hours=hour), "level": level, "sky": sky}
    for hour, level, sky in WEIR
]
with tempfile.TemporaryDirectory() as folder:
    pq.write_table(pa.Table.from_pylist(rows), f"{folder}/readings.parquet")

    env = hg.StreamEnvironment(parallelism=2)
    readings = hg.sources.parquet(f"{folder}/*.parquet", columns=["gauge", "at", "level", "sky"])
    gauges = env.from_source(readings, watermark=hg.Watermark("at", out_of_orderness="1 h")).key_by("gauge")
    days = (
        gauges.window(hg.tumble("1 day"))
        .aggregate(
            lowest=hg.min("level"),
            highest=hg.max("level"),
            morning=hg.first("level"),  # first and last go by event time, not by the order in which rows come
            night=hg.last("level"),
            skies=hg.count_distinct("sky"),
        )
        .select("gauge", "lowest", "highest", "morning", "night", "skies")
    )
    days.sink_to(hg.sinks.csv(f"{folder}/days"))
    two_days = gauges.window(hg.hop("2 days", every="1 day")).aggregate(
        mean=hg.mean("level"),
        spread=hg.stddev("level"),
        variance=hg.var("level"),
        skies=hg.approx_count_distinct("sky"),
        median=hg.quantile("level", 0.5),  # needs pip install 'headgate[sketches]'
        high=hg.count(where="level > 1.5"),
        levels=hg.collect_list("level"),  # in no particular order
    )
    means = two_days.collect()  # runs both, and reads the files once
    for row in means.sort_by("window_start").to_pylist():
        print(f"{row['gauge']}, two days from {row['window_start']:%d %B} on: {row['mean']} of {sorted(row['levels'])}")
    lines = {line for path in Path(folder, "days").glob("*.csv") for line in path.read_text().splitlines()}
    print(*sorted(lines), sep="\n")
