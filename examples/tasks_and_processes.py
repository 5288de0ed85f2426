"""Choose which operators share a task, how many subtasks each has, and where they run.

An exchange costs more than a call, so Headgate chains operators where it can. A slow operator gains from a task of its
own, or from more subtasks.
"""

import pyarrow as pa

import headgate as hg


def numbers(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch  # imagine that this takes long


# Two TaskManagers, so that rows cross a socket. Each is a process, as on a cluster.
env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(taskmanagers=2, processes=True))
(
    env.from_source(hg.sources.generate(numbers, rows=100_000))
    .name("numbers")
    .uid("numbers-1")  # its identity in checkpoints, also when the pipeline changes
    .filter("n % 2 = 0")
    .rebalance()
    .map_batches(slow, schema=pa.schema({"n": pa.int64()}))
    .name("slow")
    .set_parallelism(4)
    .select(half="n / 2")
    .name("half")
    .disable_chaining()
    .sink_to(hg.sinks.null())  # drops its rows, so the result shows the cost of the pipeline alone
)
env.explain()
result = env.execute("cost")
print(f"{result.rows_out} rows in {result.duration_s:.1f} s; through sockets: {result.metrics['remote_bytes'] > 0}")
