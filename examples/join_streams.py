"""Join orders with the payments that come within an hour, and sum up what is paid in each half hour."""

import pyarrow as pa

import headgate as hg

AT = pa.timestamp("s", tz="UTC")
MINUTES = [0, 5, 20, 50]
orders = pa.record_batch(
    {
        "order": [1, 2, 3, 4],
        "customer": ["Ada", "Ben", "Ada", "Cem"],
        "ordered": pa.array([60 * minute for minute in MINUTES], AT),
    }
)
payments = pa.record_batch(
    {
        "order": [2, 1, 4, 1],
        "euro": [30, 10, 25, 15],
        "paid": pa.array([60 * minute for minute in (8, 31, 70, 95)], AT),
    }
)


def paid_orders(orders: hg.DataStream, payments: hg.DataStream) -> hg.DataStream:
    """Each order with each payment of the next hour; an order without a payment has nulls."""
    return orders.join(payments, on="order", within=("0 s", "1 h"), how="left")


if __name__ == "__main__":
    env = hg.StreamEnvironment(parallelism=2)
    ordered = env.from_source(hg.sources.iterable([orders]), watermark=hg.Watermark("ordered"))
    paid = env.from_source(hg.sources.iterable([payments]), watermark=hg.Watermark("paid"))
    joined = paid_orders(ordered, paid)
    half_hours = joined.key_by().window(hg.tumble("30 min")).aggregate(orders=hg.count(), euro=hg.sum("euro"))
    totals = hg.sinks.collect()
    half_hours.sink_to(totals)
    for row in joined.collect().sort_by([("order", "ascending"), ("paid", "ascending")]).to_pylist():
        print(row["order"], row["customer"], row["euro"])
    for row in totals.to_table().sort_by("window_start").to_pylist():
        print(f"ordered from {row['window_start']:%H:%M}: {row['orders']} rows, {row['euro']} euro")
