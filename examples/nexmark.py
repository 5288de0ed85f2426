"""The queries of the Nexmark benchmark, about an auction site. `QUERY` says which one runs."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

import headgate as hg

QUERY = "q5"
FOR_EVER = "3650 d"
#: In q6, at most so many auctions of one seller close in the same millisecond.
MOST_AT_ONCE = 100
#: For each `auction % 10000`, a text that q13 looks up.
SIDE_INPUT = pa.table({"key": range(10_000), "value": [f"side {key}" for key in range(10_000)]})
CHANNEL_ID = """
    case lower(channel) when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
    else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end
"""
TIME_OF_DAY = """
    case when hour(date_time) between 8 and 18 then 'dayTime'
    when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end
"""
#: How q15 to q17 rank bids by their price.
RANKS = ("price < 10000", "price >= 10000 and price < 1000000", "price >= 1000000")


def ranked(what: str, aggregate: Callable[..., Any]) -> dict[str, Any]:
    """The aggregate of all bids, and of the bids of each rank."""
    ranks = {f"rank{rank}_{what}": aggregate(where=where) for rank, where in enumerate(RANKS, start=1)}
    return {f"total_{what}": aggregate(), **ranks}


ALL_RANKED = {
    **ranked("bids", hg.count),
    **ranked("bidders", partial(hg.count_distinct, "bidder")),
    **ranked("auctions", partial(hg.count_distinct, "auction")),
}


def q0(bids: hg.DataStream) -> hg.DataStream:
    """All bids as they are: the cost of reading and moving them."""
    return bids.select("auction", "bidder", "price", "date_time", "extra")


def q1(bids: hg.DataStream) -> hg.DataStream:
    """Prices in euros, as decimals."""
    return bids.select("auction", "bidder", "date_time", "extra", price="0.908BD * price")


def q2(bids: hg.DataStream) -> hg.DataStream:
    """The bids for some auctions."""
    return bids.filter("auction % 123 = 0").select("auction", "price")


def q3(auctions: hg.DataStream, persons: hg.DataStream) -> hg.DataStream:
    """Who sells in category 10 and lives in Oregon, Idaho or California."""
    sold = auctions.filter("category = 10").select("id", "seller")
    sellers = persons.filter("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    return sold.join(sellers, on={"seller": "id"}, ttl=FOR_EVER).select("name", "city", "state", "id")


def q4(auctions: hg.DataStream, bids: hg.DataStream) -> hg.DataStream:
    """The mean price of the auctions of each category, at the end of the input."""
    offers = bids.select("auction", "price", "date_time")
    offered = auctions.join(offers, on={"id": "auction"}, within=("date_time", "expires"), suffix="_of_bid")
    won = offered.key_by("id", "category").aggregate(final=True, price=hg.max("price"))
    return (
        won.key_by("category")
        .aggregate(final=True, mean=hg.mean("price"))
        .select("category", price="cast(mean as bigint)")
    )


def q5(bids: hg.DataStream) -> hg.DataStream:
    """The auctions with the most bids of the last 10 s, every 2 s."""
    counts = bids.key_by("auction").window(hg.hop("10 s", every="2 s")).aggregate(num=hg.count())
    counts = counts.select("auction", "num")
    most = counts.key_by().window(hg.tumble("2 s")).aggregate(num=hg.max("num")).select("num")
    return counts.join(most, on="num", window=hg.tumble("2 s")).select("auction", "num", "window_end")


def q6(auctions: hg.DataStream, bids: hg.DataStream) -> hg.DataStream:
    """The mean price of each seller's last ten auctions that have closed: a row each time that an auction closes."""
    offers = bids.select("auction", "price", "date_time")
    offered = auctions.join(offers, on={"id": "auction"}, within=("date_time", "expires"), suffix="_of_bid")
    # From here on, the event time of a row is the moment when its auction closes: a window fires at this moment.
    offered = offered.select("id", "seller", "price", date_time_of_bid="expires")
    closed = offered.key_by("seller", "id").window(hg.tumble("1 ms")).aggregate(price=hg.max("price"))
    # The auctions of a seller come from several subtasks. These windows put them into the order in which they closed.
    at_once = closed.select("seller", "id", "price").key_by("seller").window(hg.tumble("1 ms"))
    in_order = at_once.top(MOST_AT_ONCE, by="id", ascending=True)
    last_ten = in_order.key_by("seller").window(hg.count_window(10, every=1))
    means = last_ten.aggregate(auction=hg.last("id"), mean=hg.mean("price"))
    return means.select("seller", "auction", price="cast(mean as bigint)")


def q7(bids: hg.DataStream) -> hg.DataStream:
    """The highest bids of each 10 s."""
    bids = bids.select("auction", "bidder", "price", "date_time", "extra")
    highest = bids.key_by().window(hg.tumble("10 s")).aggregate(price=hg.max("price")).select("price")
    found = bids.join(highest, on="price", window=hg.tumble("10 s"))
    return found.select("auction", "price", "bidder", "date_time", "extra")


def q8(auctions: hg.DataStream, persons: hg.DataStream) -> hg.DataStream:
    """Who came and opened an auction within the same 10 s."""
    window = hg.tumble("10 s")
    new = persons.key_by("id", "name").window(window).aggregate(times=hg.count()).select("id", "name")
    sellers = auctions.key_by("seller").window(window).aggregate(auctions=hg.count()).select("seller")
    return new.join(sellers, on={"id": "seller"}, window=window).select("id", "name", "window_start")


def q9(auctions: hg.DataStream, bids: hg.DataStream) -> hg.DataStream:
    """The highest bid for each auction, of equal ones the earliest. A row replaces the auction's last row."""
    offers = bids.select("auction", "bidder", "price", "date_time", "extra")
    offered = auctions.join(offers, on={"id": "auction"}, within=("date_time", "expires"), suffix="_of_bid")
    return offered.key_by("id").top(1, by=["price", "date_time_of_bid"], ascending=[False, True], rank=False)


def q10(bids: hg.DataStream) -> hg.DataStream:
    """All bids with day and minute, for files: `.sink_to(hg.sinks.parquet(folder, partition_by=["day", "minute"]))`."""
    return bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')", minute="date_format(date_time, 'HH:mm')")


def q11(bids: hg.DataStream) -> hg.DataStream:
    """How often each person bids without a pause of 10 s."""
    return bids.key_by("bidder").window(hg.session("10 s")).aggregate(bid_count=hg.count())


def q12(bids: hg.DataStream) -> hg.DataStream:
    """How often each person bids in 10 s of the machine's clock."""
    windows = bids.key_by("bidder").window(hg.tumble("10 s", time="processing"))
    return windows.aggregate(bid_count=hg.count())


def q13(bids: hg.DataStream) -> hg.DataStream:
    """Each bid with a text of a table."""
    found = bids.with_columns(key="auction % 10000").lookup(SIDE_INPUT, on="key")
    return found.select("auction", "bidder", "price", "date_time", "value")


def q14(bids: hg.DataStream) -> hg.DataStream:
    """Bids of a middle price, with the time of day and the number of letters c."""
    found = bids.with_columns(price="0.908BD * price").filter("price > 1000000 and price < 50000000")
    letters = "length(extra) - length(replace(extra, 'c', ''))"
    columns = ("auction", "bidder", "price", "date_time", "extra")
    return found.select(*columns, bid_time_type=TIME_OF_DAY, c_counts=letters)


def q15(bids: hg.DataStream) -> hg.DataStream:
    """The bids, bidders and auctions of each day. A row replaces the day's last row."""
    days = bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')")
    return days.key_by("day").aggregate(**ALL_RANKED)


def q16(bids: hg.DataStream) -> hg.DataStream:
    """The same for each channel. A row replaces the last row of its channel and day."""
    days = bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')", at="date_format(date_time, 'HH:mm')")
    return days.key_by("channel", "day").aggregate(minute=hg.max("at"), **ALL_RANKED)


def q17(bids: hg.DataStream) -> hg.DataStream:
    """The prices of each auction and day. A row replaces the last row of its auction and day."""
    days = bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')").key_by("auction", "day")
    prices: dict[str, Any] = {
        f"{name}_price": make("price") for name, make in (("min", hg.min), ("max", hg.max), ("sum", hg.sum))
    }
    found = days.aggregate(mean=hg.mean("price"), **ranked("bids", hg.count), **prices)
    counts = ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids")
    return found.select("auction", "day", *counts, *prices, avg_price="cast(mean as bigint)")


def q18(bids: hg.DataStream) -> hg.DataStream:
    """The last bid of each person for each auction. A row replaces the last row of the same person and auction."""
    return bids.deduplicate(["bidder", "auction"], keep="last")


def q19(bids: hg.DataStream) -> hg.DataStream:
    """The ten highest bids for each auction. A row replaces the auction's last row with the same rank."""
    return bids.key_by("auction").top(10, by="price")


def q20(auctions: hg.DataStream, bids: hg.DataStream) -> hg.DataStream:
    """The bids for auctions of category 10, with the auction's columns."""
    return bids.join(auctions.filter("category = 10"), on={"auction": "id"}, ttl=FOR_EVER, suffix="_of_auction")


def q21(bids: hg.DataStream) -> hg.DataStream:
    """Bids with the id of their channel, from its name or from the URL."""
    found = bids.select("auction", "bidder", "price", "channel", channel_id=CHANNEL_ID)
    return found.filter("channel_id <> ''")


def q22(bids: hg.DataStream) -> hg.DataStream:
    """Bids with the folders of their URL."""
    folders = {f"dir{number}": f"split_part(url, '/', {number + 3})" for number in (1, 2, 3)}
    return bids.select("auction", "bidder", "price", "channel", **folders)


QUERIES: dict[str, Callable[..., hg.DataStream]] = {
    query.__name__: query
    for query in (
        q0,
        q1,
        q2,
        q3,
        q4,
        q5,
        q6,
        q7,
        q8,
        q9,
        q10,
        q11,
        q12,
        q13,
        q14,
        q15,
        q16,
        q17,
        q18,
        q19,
        q20,
        q21,
        q22,
    )
}


def kinds(name: str) -> list[Any]:
    """The streams that a query reads: auctions, bids, persons."""
    return list(inspect.signature(QUERIES[name]).parameters)


if __name__ == "__main__":
    env = hg.StreamEnvironment(parallelism=2)
    watermark = hg.Watermark("date_time", out_of_orderness="4 s")
    sources = {kind: hg.sources.nexmark(kind, 50_000, rate=1_000) for kind in kinds(QUERY)}
    result = QUERIES[QUERY](**{kind: env.from_source(made, watermark=watermark) for kind, made in sources.items()})
    rows = result.collect()
    print(QUERY, rows.num_rows, "rows")
    for row in rows.sort_by(rows.column_names[-1]).slice(max(0, rows.num_rows - 3)).to_pylist():
        print(row)
