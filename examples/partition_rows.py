"""Distribute rows to the subtasks of the next operator by a function of your own."""

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg


def by_parity(batch: pa.RecordBatch, _subtasks: int) -> pa.Array:
    """Return the subtask of each row of a batch: an array with one integer for each row."""
    return pc.bit_wise_and(batch["order"], 1)


# In threads: the sink's function changes `workers`. In processes, the default, it would change copies of it.
env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
orders = env.from_source(
    hg.sources.iterable([pa.record_batch({"order": pa.array(range(i, i + 4))}) for i in (0, 4, 8)])
)
workers: dict[int, list[int]] = {0: [], 1: []}
orders.partition_by(by_parity).sink_to(
    hg.sinks.for_each_batch(lambda batch, info: workers[info.subtask].extend(batch["order"].to_pylist()))
)
env.explain()
env.execute("orders")
for worker, numbers in workers.items():
    print(f"worker {worker}: {len(numbers)} rows of {'odd' if numbers[0] % 2 else 'even'} orders")
