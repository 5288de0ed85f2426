"""Let a function fail once. The job restarts from a checkpoint, and the sums are the same as without the failure."""

import logging
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import headgate as hg

logging.getLogger("headgate").setLevel(logging.ERROR)  # otherwise it logs the failure with its traceback
folder = Path(tempfile.mkdtemp())
failed = folder / "failed"


def readings(start: int, n: int) -> pa.RecordBatch:
    number = np.arange(start, start + n)
    return pa.record_batch({"sensor": number % 3, "value": number})


def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch["value"][0].as_py() > 5_000 and not failed.exists():
        failed.touch()
        raise OSError("the sensor's database is away")
    return batch


config = hg.Config(
    checkpoint_dir=folder / "checkpoints", checkpoint_interval="100 ms", restart=hg.restart.fixed(3, delay="100 ms")
)
env = hg.StreamEnvironment(parallelism=2, config=config)
stream = env.from_source(hg.sources.generate(readings, rows=10_000, rate=10_000))
checked = stream.map_batches(fails_once, schema=stream.schema)
totals = checked.key_by("sensor").aggregate(final=True, total=hg.sum("value"), rows=hg.count())
totals.sink_to(hg.sinks.parquet(folder / "totals"))
job = env.execute_async("readings")
result = job.wait()
complete = [each for each in job.checkpoints() if each.failure is None]
print(f"more than one checkpoint: {len(complete) > 1}, started again: {job.restarts} time, {job.guarantee}")
rows = ds.dataset(folder / "totals").to_table().sort_by("sensor").to_pylist()
print(f"{result.rows_in} rows, {sum(row['rows'] for row in rows)} counted, total {sum(row['total'] for row in rows)}")
