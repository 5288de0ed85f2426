"""Find orders that are not paid for within 15 minutes of event time, with state and timers for each order."""

from typing import Any

import pyarrow as pa

import headgate as hg

PATIENCE = 15 * 60_000_000  # event time is in microseconds


class Unpaid(hg.KeyedProcessFunction):
    items = hg.MapState(pa.string(), pa.int64())
    due = hg.ValueState(pa.int64(), ttl="7 d")  # so that the state of an order without an end is removed

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        if row["what"] != "paid":
            self.items.put(row["what"], self.items.get(row["what"], 0) + 1)
            if self.due.value() is None:
                self.due.update(ctx.timestamp + PATIENCE)
                ctx.register_event_time_timer(self.due.value())
        elif self.due.value() is not None and ctx.timestamp <= self.due.value():
            ctx.delete_event_time_timer(self.due.value())
            self.forget()
        else:  # too late: the timer fires or has fired, even if the watermark has not arrived yet
            yield hg.SideOutput("late", {"order": row["order"]})

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        (order,) = ctx.key
        yield {"order": order, "items": sorted(self.items.items())}
        self.forget()

    def forget(self) -> None:
        self.items.clear()
        self.due.clear()


EVENTS = pa.schema([("order", pa.int64()), ("what", pa.string()), ("at", pa.timestamp("s", tz="UTC"))])


def unpaid(events: hg.DataStream) -> hg.DataStream:
    """Return the unpaid orders. This is a function, so that tests/testing/test_examples_by_hand.py can give it rows."""
    return events.key_by("order").process(
        Unpaid(),
        schema=pa.schema([("order", pa.int64()), ("items", pa.map_(pa.string(), pa.int64()))]),
        side_outputs={"late": pa.schema([("order", pa.int64())])},
    )


if __name__ == "__main__":
    whats = ["tea", "milk", "bread", "tea", "paid", "tea", "paid"]
    times = [0, 10, 60, 120, 600, 660, 1200]
    events = pa.table([[1, 1, 2, 3, 1, 3, 2], whats, times], schema=EVENTS)
    env = hg.StreamEnvironment(parallelism=2)
    source = hg.sources.iterable(events.to_batches(max_chunksize=2))
    orders = unpaid(env.from_source(source, watermark=hg.Watermark("at")))
    orders.side_output("late").sink_to(hg.sinks.printer("paid too late: "))
    for row in orders.collect().sort_by("order").to_pylist():
        print(f"order {row['order']} is not paid for: {dict(row['items'])}")
