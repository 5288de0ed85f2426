"""Join orders with the payments of the next hour, in euro by the rate that was valid when the payment came."""

import pyarrow as pa

import headgate as hg

AT = pa.timestamp("s", tz="UTC")


def at(*minutes: int) -> pa.Array:
    return pa.array([60 * minute for minute in minutes], AT)


orders = pa.record_batch({"order": [1, 2, 3, 4], "customer": ["Ada", "Ben", "Ada", "Cem"], "ordered": at(0, 5, 20, 50)})
payments = pa.record_batch(
    {
        "order": [2, 1, 4, 1],
        "amount": [30, 100, 10, 15],
        "currency": ["EUR", "SEK", "GBP", "EUR"],
        "paid": at(8, 31, 70, 95),
    }
)
rates = pa.record_batch(
    {"currency": ["EUR", "SEK", "GBP", "SEK"], "euro": [1.0, 0.09, 1.2, 0.08], "since": at(-60, -60, 0, 40)}
)


def in_euro(payments: hg.DataStream, rates: hg.DataStream) -> hg.DataStream:
    """Each payment with the rate of its currency at its own time."""
    valued = payments.join_as_of(rates, on="currency", how="inner")
    return valued.select("order", "paid", paid_euro="amount * euro")


def paid_orders(orders: hg.DataStream, payments: hg.DataStream) -> hg.DataStream:
    """Each order with each payment of the next hour; an order without a payment has nulls."""
    return orders.join(payments, on="order", within=("0 s", "1 h"), how="left")


if __name__ == "__main__":
    env = hg.StreamEnvironment(parallelism=2)
    ordered, paid, changed = (
        env.from_source(hg.sources.iterable([rows]), watermark=hg.Watermark(column))
        for rows, column in ((orders, "ordered"), (payments, "paid"), (rates, "since"))
    )
    joined = paid_orders(ordered, in_euro(paid, changed))
    half_hours = joined.key_by().window(hg.tumble("30 min")).aggregate(orders=hg.count(), euro=hg.sum("paid_euro"))
    totals = hg.sinks.collect()
    half_hours.sink_to(totals)
    for row in joined.collect().sort_by("order").to_pylist():
        print(row["order"], row["customer"], row["paid_euro"])
    for row in totals.to_table().sort_by("window_start").to_pylist():
        print(f"ordered from {row['window_start']:%H:%M}: {row['orders']} rows, {row['euro']:.2f} euro")
