"""Ask a running job for its bottleneck, the cause, and what to do."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import headgate as hg

SCHEMA = pa.schema({"order": pa.int64()})


def orders(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.arange(start, start + count))], schema=SCHEMA)


def check(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(0.2)  # it waits for a server
    return batch


if __name__ == "__main__":
    env = hg.StreamEnvironment(parallelism=2, config=hg.Config(network_memory="4 MiB"))
    rows = env.from_source(hg.sources.generate(orders, schema=SCHEMA, batch_rows=1000)).name("orders")
    rows.rebalance().map_batches(check, schema=SCHEMA).name("warehouse").sink_to(hg.sinks.null())
    job = env.execute_async("shop")
    print("its page:", job.web_url)
    time.sleep(8)
    [finding] = job.diagnose()
    levels = {vertex["vertex"]: vertex["level"] for vertex in job.backpressure()}
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "shop.recording"
        job.save_recording(recording)  # for `headgate doctor`
        print(f"recorded: {recording.stat().st_size > 0}")
        job.save_page(Path(folder) / "shop.html")  # what the page shows now, for a ticket
    trace = job.trace_channel("orders -> warehouse", seconds=0.5)  # what passes the channel that waits most
    print(f"traced: {len(trace.events) > 0}")
    line = job.profile("warehouse", seconds=1).hottest[0]  # where its function spends its time
    print(f"{line.share:.0%} of the time in {line.frame.function}")
    job.cancel()
    print(f"{levels['orders']}: {' and '.join(finding.waits)} waits for {finding.operator}, a {finding.cause.name}")
