"""Join two sources with different columns into one stream, and print the plan."""

import pyarrow as pa

import headgate as hg

shop = pa.record_batch({"item": ["tea", "milk", "tea"], "euros": [3.5, 1.2, 3.5]})
web = pa.record_batch({"article": ["milk", "tea"], "cents": [115, 349]})

env = hg.StreamEnvironment(parallelism=2)
in_shop = env.from_source(hg.sources.iterable([shop])).name("shop")
on_web = env.from_source(hg.sources.iterable([web])).name("web").select(item="article", euros="cents / 100")

sales = in_shop.union(on_web).key_by("item").aggregate(final=True, sold=hg.count(), euros=hg.sum("euros"))
sales.sink_to(hg.sinks.printer())

env.explain()
result = env.execute("sales")
print(f"{result.rows_in} rows read, {result.rows_out} written")
