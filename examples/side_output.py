"""Put rows that a function cannot use into a side output, each with a reason."""

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg

ORDERS = pa.schema({"item": pa.string(), "pieces": pa.int64()})
REFUSED = pa.schema({"item": pa.string(), "why": pa.string()})


def check(batch: pa.RecordBatch) -> list[pa.RecordBatch | hg.SideOutput]:
    good = pc.greater(batch["pieces"], 0)
    bad = batch.filter(pc.invert(good))
    why = pa.array([f"{pieces} pieces" for pieces in bad["pieces"].to_pylist()], pa.string())
    return [batch.filter(good), hg.SideOutput("refused", pa.record_batch([bad["item"], why], schema=REFUSED))]


rows = [{"item": "tea", "pieces": 3}, {"item": "milk", "pieces": -1}, {"item": "tea", "pieces": 2}]


def pipeline(env: hg.StreamEnvironment) -> dict[str, hg.DataStream]:
    orders = env.from_source(hg.sources.iterable([rows], schema=ORDERS))
    checked = orders.map_batches(check, schema=ORDERS, side_outputs={"refused": REFUSED})
    totals = checked.key_by("item").aggregate(final=True, pieces=hg.sum("pieces"))
    return {"totals": totals, "refused": checked.side_output("refused")}


if __name__ == "__main__":
    streams = pipeline(hg.StreamEnvironment(parallelism=2))
    refused = hg.sinks.collect()
    streams["refused"].sink_to(refused)
    print(streams["totals"].collect().to_pylist())
    print("refused:", refused.to_table().to_pylist())
