"""Read CSV files, clean the rows with SQL expressions, and write Parquet files, which appear when the job has ended."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headgate as hg

TRIPS = pa.schema({"city": pa.string(), "km": pa.float64(), "minutes": pa.int64()})

with tempfile.TemporaryDirectory() as folder:
    for day, text in enumerate(["city,km,minutes\nOslo,3.5,12\nRome,,8\n", "city,km,minutes\nRome,7.0,30\n"]):
        Path(folder, f"day{day}.csv").write_text(text)

    env = hg.StreamEnvironment(parallelism=2)
    (
        env.from_source(hg.sources.csv(f"{folder}/*.csv", schema=TRIPS))
        .filter("km is not null")
        .with_columns(km_per_hour="km * 60 / minutes")
        .sink_to(hg.sinks.parquet(f"{folder}/trips"))
    )
    result = env.execute("csv to parquet")
    print(f"{result.rows_in} rows read, {result.rows_out} written")
    for row in pq.read_table(f"{folder}/trips").sort_by("city").to_pylist():
        print(row)
