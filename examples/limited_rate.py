"""Limit how fast a source reads, for example to spare the system that it reads from."""

import numpy as np
import pyarrow as pa

import headgate as hg


def orders(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"order": pa.array(np.arange(start, start + count))})


if __name__ == "__main__":
    env = hg.StreamEnvironment()
    source = hg.sources.generate(orders, rows=2_000, batch_rows=100)
    rows = env.from_source(source, throttle=hg.throttle.FixedRate(2_000, burst="100 ms")).name("orders")
    rows.rebalance().sink_to(hg.sinks.null())
    result = env.execute()
    waited = result.metrics["tasks"]["orders[0]"]["throttle_wait_s"]
    print(f"{result.rows_in} rows in {result.duration_s:.1f} s")
    print(f"the source waited for its throttle: {waited > 0.5}")
