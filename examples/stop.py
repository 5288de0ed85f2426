"""Stop a job without end, resume it with more subtasks, and drain it. Every row is counted once."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import headgate as hg

folder = Path(tempfile.mkdtemp())
config = hg.Config(checkpoint_dir=folder / "checkpoints")


def readings(start: int, n: int) -> pa.RecordBatch:
    number = np.arange(start, start + n)
    times = pa.array(number * 1000, pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([pa.array(number % 3), times], names=["sensor", "at"])


def counting(parallelism: int, resume: str | None = None) -> hg.JobHandle:
    env = hg.StreamEnvironment(parallelism=parallelism, config=config)
    stream = env.from_source(hg.sources.generate(readings, rate=10_000), watermark=hg.Watermark("at")).uid("readings")
    counts = stream.key_by("sensor").window(hg.tumble("1 s")).aggregate(rows=hg.count()).uid("counts")
    counts.sink_to(hg.sinks.parquet(folder / "counts")).uid("files")
    return env.execute_async("readings", resume)


def wait_for(job: hg.JobHandle, rows: int) -> None:
    while job.status() != "RUNNING" or job.metrics()["rows_in"] < rows:
        time.sleep(0.01)


first = counting(parallelism=1)
wait_for(first, 2000)
last = first.stop()  # its last checkpoint holds the windows that are not full
second = counting(parallelism=2, resume=last)
wait_for(second, first.wait().rows_in + 2000)
second.stop(drain=True)  # now they fire
counted = sum(ds.dataset(folder / "counts").to_table()["rows"].to_pylist())
print(f"{first.status()}, {second.status()}, all are counted: {counted == second.wait().rows_in}")
