"""A running total: each row replaces the last one of its key. Some sinks take such rows, others want to be asked."""

import tempfile

import pyarrow.dataset as ds

import headgate as hg

sales = [[{"shop": "Rome", "euro": 7}], [{"shop": "Oslo", "euro": 3}], [{"shop": "Rome", "euro": 5}]]

env = hg.StreamEnvironment(config=hg.Config(buffer_timeout=0))
totals = env.from_source(hg.sources.iterable(sales)).key_by("shop").aggregate(euro=hg.sum("euro"))
latest = {row["shop"]: row["euro"] for row in totals.collect().to_pylist()}  # the last row of a shop is its total
print(latest)

with tempfile.TemporaryDirectory() as folder:
    try:
        totals.sink_to(hg.sinks.csv(f"{folder}/totals"))
    except hg.PlanError as error:
        print("refused:", error.message.partition(":")[0])
    totals.changes().sink_to(hg.sinks.csv(f"{folder}/changes"))  # a history of the totals
    env.execute()
    changes = ds.dataset(f"{folder}/changes", format="csv").to_table()["euro"].to_pylist()
print("the largest total in the history:", max(changes))
