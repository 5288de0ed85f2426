"""Choose rows of each key: the first of several equal ones, the greatest ones, and those of each hour."""

import pyarrow as pa

import headgate as hg

if __name__ == "__main__":
    bids = pa.table(
        {
            "id": [1, 2, 2, 3, 4, 5],  # number 2 was sent twice
            "item": ["lamp", "vase", "vase", "lamp", "lamp", "vase"],
            "price": [20, 75, 75, 35, 30, 60],
            "at": pa.array([0, 600, 600, 1800, 3700, 5000], pa.timestamp("s", tz="UTC")),
        }
    )
    env = hg.StreamEnvironment()
    stream = env.from_source(hg.sources.iterable(bids.to_batches()), watermark=hg.Watermark("at"))
    once = stream.deduplicate("id", ttl="1 h")  # forgets an id after an hour of event time
    best, last, hourly = hg.sinks.collect(), hg.sinks.collect(), hg.sinks.collect()
    once.key_by("item").top(2, by="price", final=True).sink_to(best)
    once.key_by("item").max_by("at", final=True).sink_to(last)
    once.key_by().window(hg.tumble("1 h")).min_by("price").sink_to(hourly)
    env.execute()
    for row in best.to_table().sort_by([("item", "ascending"), ("rank", "ascending")]).to_pylist():
        print(f"{row['item']}: number {row['rank']} is {row['price']}")
    print("last bids:", dict(sorted((row["item"], row["price"]) for row in last.to_table().to_pylist())))
    for row in hourly.to_table().sort_by("window_start").to_pylist():
        print(f"cheapest from {row['window_start']:%H:%M}: {row['item']} for {row['price']}")
