"""Apply Python functions to rows: to whole batches where speed counts, and to single rows where it does not."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg

READINGS = pa.schema({"sensor": pa.int64(), "celsius": pa.float64()})
WITH_FAHRENHEIT = READINGS.append(pa.field("fahrenheit", pa.float64()))
ALARMS = pa.schema({"message": pa.string()})


def reading(start: int, n: int) -> pa.RecordBatch:
    """Return rows `start` to `start + n - 1`. Row i depends only on i."""
    numbers = range(start, start + n)
    return pa.record_batch([[i % 10 for i in numbers], [15 + i * 7 % 23 for i in numbers]], schema=READINGS)


def add_fahrenheit(batch: pa.RecordBatch) -> pa.RecordBatch:
    fahrenheit = pc.add(pc.multiply(batch["celsius"], 1.8), 32.0)
    return pa.record_batch([*batch.columns, fahrenheit], schema=WITH_FAHRENHEIT)


def alarm(row: dict[str, Any]) -> dict[str, Any]:
    return {"message": f"sensor {row['sensor']}: {row['celsius']:.0f} C are {row['fahrenheit']:.0f} F"}


env = hg.StreamEnvironment(parallelism=2)
alarms = (
    env.from_source(hg.sources.generate(reading, rows=1000))
    .map_batches(add_fahrenheit, schema=WITH_FAHRENHEIT)
    .filter("sensor = 3 and celsius > 30")
    .map(alarm, schema=ALARMS)
)
for row in alarms.collect(limit=3).to_pylist():
    print(row["message"])
