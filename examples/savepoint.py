"""Take a savepoint of a running job, and resume another job from it, with more subtasks. Every row is counted once."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import headgate as hg

folder = Path(tempfile.mkdtemp())


def readings(start: int, n: int) -> pa.RecordBatch:
    number = np.arange(start, start + n)
    return pa.record_batch({"sensor": number % 3, "value": number})


def counting(parallelism: int) -> hg.StreamEnvironment:
    env = hg.StreamEnvironment(parallelism=parallelism)
    stream = env.from_source(hg.sources.generate(readings, rows=60_000, rate=10_000)).uid("readings")
    totals = stream.key_by("sensor").aggregate(final=True, total=hg.sum("value"), rows=hg.count()).uid("totals")
    totals.sink_to(hg.sinks.parquet(folder / "totals")).uid("files")  # by uids they are found when more is added
    return env


job = counting(parallelism=1).execute_async("readings")
while not job.metrics()["rows_in"]:
    time.sleep(0.01)
savepoint = job.savepoint(folder / "savepoints")  # of a job that takes no checkpoints of its own
job.cancel()
result = counting(parallelism=2).execute("readings", resume=savepoint)
rows = ds.dataset(folder / "totals").to_table().sort_by("sensor").to_pylist()
print(f"{result.rows_in} rows, {sum(row['rows'] for row in rows)} counted, total {sum(row['total'] for row in rows)}")
