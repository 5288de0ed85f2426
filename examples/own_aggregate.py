"""An aggregate of your own, in windows: the mean price per unit, weighted by the quantity."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg


class WeightedMean(hg.AggregateFunction):
    """The state of a group is the total value and the total quantity. All groups of a batch are computed together."""

    state = pa.schema({"value": pa.float64(), "quantity": pa.float64()})
    type = pa.float64()

    def create(self, count: int) -> Any:
        return {"value": np.zeros(count), "quantity": np.zeros(count)}

    def accumulate(self, values: pa.RecordBatch, groups: Any, count: int) -> Any:
        price, quantity = (column.to_numpy() for column in values.columns)
        return {
            "value": np.bincount(groups, price * quantity, count),
            "quantity": np.bincount(groups, quantity, count),
        }

    def merge(self, states: Any, others: Any) -> Any:
        return {name: pc.add(states[name], others[name]) for name in self.state.names}

    def result(self, states: Any) -> Any:
        return pc.divide(states["value"], states["quantity"])


weighted_mean = WeightedMean()
trades = pa.table({
    "share": ["A", "B", "A", "A", "B"],
    "price": [10.0, 3.0, 12.0, 20.0, 5.0],
    "quantity": [100, 10, 300, 50, 30],
    "at": pa.array([5, 20, 45, 70, 95], pa.timestamp("s", tz="UTC")),
})  # fmt: skip
env = hg.StreamEnvironment(parallelism=2)
means = (
    env.from_source(hg.sources.iterable(trades.to_batches()), watermark=hg.Watermark("at"))
    .key_by("share")
    .window(hg.tumble("1 min"))
    .aggregate(mean=weighted_mean("price", "quantity"), trades=hg.count())
    .collect()
)
for row in means.sort_by([("window_start", "ascending"), ("share", "ascending")]).to_pylist():
    print(f"{row['window_start']:%H:%M}  {row['share']}  {row['mean']:.2f}  {row['trades']}")
