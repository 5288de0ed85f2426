"""Compare ways to distribute rows to the next operator's subtasks: how many of eight rows each subtask gets."""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa

import headgate as hg

batches = [
    pa.record_batch({"row": [i]}) for i in range(8)
]  # single rows, so that distributing batches is distributing rows


def counts(way: Callable[[hg.DataStream], hg.DataStream]) -> list[int]:
    """Return how many rows each of the four subtasks of the sink gets. The source has two subtasks."""
    threads = hg.LocalDeployment(processes=False)  # in processes, the default, `got` would be a copy in each of them
    env = hg.StreamEnvironment(parallelism=4, config=hg.Config(buffer_timeout=0), deployment=threads)
    rows = env.from_source(hg.sources.iterable(batches)).set_parallelism(2)
    got: Counter[int] = Counter()
    count = hg.sinks.for_each_batch(lambda batch, info: got.update([info.subtask] * batch.num_rows))
    way(rows).sink_to(count).set_parallelism(2 if way is hg.DataStream.forward else 4)
    env.execute()
    return [got[subtask] for subtask in range(4)]


print(f"rebalance  in turn, to all                    {counts(hg.DataStream.rebalance)}")
print(f"rescale    in turn, to neighbours: 0 1 or 2 3 {counts(hg.DataStream.rescale)}")
print(f"shuffle    by chance                          {sum(counts(hg.DataStream.shuffle))} in all")
print(f"forward    to the one of the same number      {counts(hg.DataStream.forward)}")
print(f"to_one     to the first                       {counts(hg.DataStream.to_one)}")
print(f"broadcast  every row to all                   {counts(hg.DataStream.broadcast)}")
