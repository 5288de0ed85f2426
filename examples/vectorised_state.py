"""Five functions with state that calculate all keys of a batch at once: running sum, alert, first visits, sessions, and
an exponential average."""

from typing import Any

import numpy as np
import pyarrow as pa

import headgate as hg

READINGS = pa.schema([("sensor", pa.string()), ("value", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])


def with_column(batch: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(values)], names=[*batch.schema.names, name])


class RunningSum(hg.KeyedBatchFunction):
    """Add to each row the sum of its sensor's values so far."""

    total = hg.ColumnState(pa.float64())

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        sums = keys.running_sum(batch["value"], before=self.total.values())
        self.total.update(sums[keys.last])
        return with_column(batch, "total", sums)


class Alert(hg.KeyedBatchFunction):
    """Return the rows at which a sensor's value rises above the limit."""

    value = hg.ColumnState(pa.float64(), default=-np.inf)

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        values = np.asarray(batch["value"])
        previous = keys.previous(values, before=self.value.values())
        self.value.update(values[keys.last])
        return batch.filter(pa.array((previous <= self.limit) & (values > self.limit)))


class FirstPerDay(hg.KeyedBatchFunction):
    """Return the first row of each sensor, and again a day after it."""

    seen = hg.ColumnState(pa.bool_(), ttl="1 d")

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        seen = self.seen.values()
        is_new = ~seen
        if is_new.any():
            self.seen.update(True, where=is_new)
            return batch.take(pa.array(keys.first[is_new]))


class Sessions(hg.KeyedBatchFunction):
    """Add to each row the number of its session. A session ends when no row of the sensor follows for the gap."""

    at = hg.ColumnState(pa.timestamp("us"))
    number = hg.ColumnState(pa.int64())

    def __init__(self, gap: np.timedelta64) -> None:
        self.gap = gap

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        at = np.asarray(batch["at"])
        is_new = ~(at - keys.previous(at, before=self.at.values()) <= self.gap)  # the first row has NaT before it
        numbers = keys.running_sum(is_new, before=self.number.values())
        self.at.update(at[keys.last])
        self.number.update(numbers[keys.last])
        return with_column(batch, "session", numbers)


class Average(hg.KeyedBatchFunction):
    """Add to each row the exponential average of its sensor. Each average needs the one of the row before."""

    average = hg.ColumnState(pa.float64(), default=np.nan)

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> Any:
        values, average = np.asarray(batch["value"]), self.average.values()
        averages = np.empty(len(values))
        for rows, of in keys.rounds():
            new, old = values[rows], average[of]
            average[of] = averages[rows] = np.where(np.isnan(old), new, old + self.weight * (new - old))
        self.average.update(average)
        return with_column(batch, "average", averages)


def added(name: str, kind: pa.DataType) -> pa.Schema:
    """Return the schema of the readings with one more column."""
    return READINGS.append(pa.field(name, kind))


#: The functions by name, with the schema of their rows.
FUNCTIONS = {
    "running sum": (RunningSum(), added("total", pa.float64())),
    "alert": (Alert(5.0), READINGS),
    "first per day": (FirstPerDay(), READINGS),
    "sessions": (Sessions(np.timedelta64(30, "m")), added("session", pa.int64())),
    "average": (Average(0.5), added("average", pa.float64())),
}

if __name__ == "__main__":
    minutes = [0, 5, 10, 70, 75, 80]
    at = pa.array([60_000_000 * minute for minute in minutes], pa.timestamp("us", tz="UTC"))
    readings = pa.table([["a", "b", "a", "a", "b", "b"], [1.0, 4.0, 2.0, 6.0, 8.0, 3.0], at], schema=READINGS)
    for name, (function, schema) in FUNCTIONS.items():
        env = hg.StreamEnvironment()
        stream = env.from_source(hg.sources.iterable(readings.to_batches(max_chunksize=4)))
        result = stream.key_by("sensor").process(function, schema=schema).collect()
        print(f"{name}: {list(zip(result['sensor'].to_pylist(), result[-1].to_pylist(), strict=True))}")
