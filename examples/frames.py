"""Functions on frames: pandas in one step, polars in the next. Headgate hands over whole batches."""

import pandas as pd
import polars as pl
import pyarrow as pa

import headgate as hg

trips = [{"city": "Rome", "km": 2.0}, {"city": "Oslo", "km": 12.0}, {"city": "Rome", "km": 30.0}]
WITH_LEVEL = pa.schema({"city": pa.string(), "km": pa.float64(), "level": pa.string()})


def with_level(trips: pd.DataFrame) -> pd.DataFrame:
    levels = pd.cut(trips["km"], [0, 10, 20, float("inf")], labels=["short", "middle", "long"])
    return trips.assign(level=levels.astype(str))


def shouted(trips: pl.DataFrame) -> pl.DataFrame:
    return trips.with_columns(pl.col("city").str.to_uppercase())


env = hg.StreamEnvironment()
rows = (
    env.from_source(hg.sources.iterable(trips))
    .map_batches(with_level, schema=WITH_LEVEL, frame="pandas")
    .map_batches(shouted, schema=WITH_LEVEL, frame="polars")
    .collect()
)
for row in rows.to_pylist():
    print(row)
