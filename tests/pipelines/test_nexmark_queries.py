"""The queries of `examples/nexmark.py` give DuckDB's answers over the same rows, out of order and after restarts."""

from __future__ import annotations

import runpy
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.nexmark.nexmark_functions import NexmarkSource
from headgate.testing import AdvanceWatermark, Restart
from tests.pipelines.pipeline_rig import assert_same

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "nexmark.py"))
QUERIES, KINDS = EXAMPLE["QUERIES"], EXAMPLE["kinds"]
#: With 100 events per second no two events have the same time, and there are 40 s of them.
EVENTS, RATE, DISORDER = 4_000, 100, 30
#: In microseconds. The rows of a group are less than this apart: 30 persons are 1,500 events.
BOUND = {"persons": 16_000_000, "auctions": 6_000_000, "bids": 1_000_000}
BATCH = 230

COUNTS = ", ".join(
    f"{count} filter (where {where}) as {rank}_{what}"
    for what, count in (
        ("bids", "count(*)"), ("bidders", "count(distinct bidder)"), ("auctions", "count(distinct auction)")
    )
    for rank, where in (
        ("total", "true"), ("rank1", "price < 10000"), ("rank2", "price >= 10000 and price < 1000000"),
        ("rank3", "price >= 1000000"),
    )
)  # fmt: skip
HOPS = """
    select auction, count(*) as num, window_end from (
        select auction, unnest(generate_series(
            time_bucket(interval 2 seconds, date_time) + interval 2 seconds,
            time_bucket(interval 2 seconds, date_time) + interval 10 seconds, interval 2 seconds)) as window_end
        from bids) group by auction, window_end
"""
OFFERED = """
    select a.*, b.bidder, b.price, b.date_time as date_time_of_bid, b.extra as extra_of_bid
    from auctions a join bids b on a.id = b.auction and b.date_time between a.date_time and a.expires
"""
CHANNEL_ID = r"""
    case lower(channel) when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
    else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end
"""
#: DuckDB's queries, by the name of ours.
EXPECTED = {
    "q0": "select auction, bidder, price, date_time, extra from bids",
    "q1": "select auction, bidder, date_time, extra, 0.908 * price as price from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """select name, city, state, a.id from auctions a join persons p on a.seller = p.id
        where category = 10 and state in ('OR', 'ID', 'CA')""",
    "q4": f"""select category, trunc(avg(final))::bigint as price from (
        select max(price) as final, category from ({OFFERED}) group by id, category) group by category""",
    "q5": f"""with counts as ({HOPS}) select auction, num, window_end from counts
        qualify num = max(num) over (partition by window_end)""",
    "q6": f"""select seller, id as auction, trunc(avg(final) over (
            partition by seller order by expires, id rows 9 preceding))::bigint as price
        from (select id, seller, expires, max(price) as final from ({OFFERED}) group by id, seller, expires)""",
    "q7": """select auction, price, bidder, date_time, extra from bids
        qualify price = max(price) over (partition by time_bucket(interval 10 seconds, date_time))""",
    "q8": """select distinct p.id, p.name, time_bucket(interval 10 seconds, p.date_time) as window_start
        from persons p join auctions a on p.id = a.seller
        and time_bucket(interval 10 seconds, p.date_time) = time_bucket(interval 10 seconds, a.date_time)""",
    "q9": f"""select * from ({OFFERED})
        qualify row_number() over (partition by id order by price desc, date_time_of_bid) = 1""",
    "q10": "select *, strftime(date_time, '%Y-%m-%d') as day, strftime(date_time, '%H:%M') as minute from bids",
    "q11": """with marked as (
            select *, date_time - lag(date_time) over w < interval 10 seconds as follows from bids
            window w as (partition by bidder order by date_time)
        ), numbered as (
            select *, sum((follows is not true)::int) over (partition by bidder order by date_time) as number
            from marked
        ) select bidder, min(date_time) as window_start, max(date_time) + interval 10 seconds as window_end,
            count(*) as bid_count from numbered group by bidder, number""",
    # The clock decides the window of a bid, so only the sum over all windows is known.
    "q12": "select bidder, count(*) as bid_count from bids group by bidder",
    "q13": "select auction, bidder, price, date_time, 'side ' || auction % 10000 as value from bids",
    "q14": """select auction, bidder, 0.908 * price as price, date_time, extra,
            case when hour(date_time) between 8 and 18 then 'dayTime'
                when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end
                as bid_time_type,
            length(extra) - length(replace(extra, 'c', '')) as c_counts
        from bids where 0.908 * price > 1000000 and 0.908 * price < 50000000""",
    "q15": f"select strftime(date_time, '%Y-%m-%d') as day, {COUNTS} from bids group by day",
    "q16": f"""select channel, strftime(date_time, '%Y-%m-%d') as day, max(strftime(date_time, '%H:%M')) as minute,
        {COUNTS} from bids group by channel, day""",
    "q17": f"""select auction, strftime(date_time, '%Y-%m-%d') as day, {COUNTS.partition(", count(distinct")[0]},
        min(price) as min_price, max(price) as max_price, sum(price)::bigint as sum_price,
        trunc(avg(price))::bigint as avg_price from bids group by auction, day""",
    "q18": "select * from bids qualify row_number() over (partition by bidder, auction order by date_time desc) = 1",
    "q19": """select *, row_number() over (partition by auction order by price desc) as rank from bids
        qualify rank <= 10""",
    "q20": """select b.*, a.* exclude (id, date_time, extra), a.date_time as date_time_of_auction,
        a.extra as extra_of_auction from bids b join auctions a on b.auction = a.id where category = 10""",
    "q21": f"select auction, bidder, price, channel, {CHANNEL_ID} as channel_id from bids where channel_id <> ''",
    "q22": """select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
        split_part(url, '/', 6) as dir3 from bids""",
}
#: In upserting output, a row replaces the last row with the same values of these columns.
UPSERTS = {
    "q9": ["id"], "q15": ["day"], "q16": ["channel", "day"], "q17": ["auction", "day"], "q18": ["bidder", "auction"],
    "q19": ["auction", "rank"],
}  # fmt: skip


@cache
def rows(kind: Any) -> pa.RecordBatch:
    source = hg.sources.nexmark(kind, EVENTS, rate=RATE, disorder=DISORDER)
    assert isinstance(source, NexmarkSource)
    return source.make(0, source.rows or 0)


@cache
def expected(name: str) -> pa.Table:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for kind in ("persons", "auctions", "bids"):
            database.register(kind, pa.Table.from_batches([rows(kind)]))
        return database.sql(EXPECTED[name]).to_arrow_table()


def pipeline(name: str, env: hg.StreamEnvironment) -> hg.DataStream:
    streams = {}
    for kind in KINDS(name):
        source = hg.sources.nexmark(kind, EVENTS, rate=RATE, disorder=DISORDER)
        streams[kind] = env.from_source(source, watermark=hg.Watermark("date_time", BOUND[kind] / 1e6)).name(kind)
    found: hg.DataStream = QUERIES[name](**streams)
    return found


def final(name: str, found: pa.Table) -> pa.Table:
    """The rows that no later row replaces, with DuckDB's columns."""
    if name == "q12":
        sums = found.group_by("bidder").aggregate([("bid_count", "sum")])
        found = sums.rename_columns(["bidder", "bid_count"])
    if name in UPSERTS:
        keys = list(zip(*(found[column].to_pylist() for column in UPSERTS[name]), strict=True))
        found = found.take(list({key: row for row, key in enumerate(keys)}.values()))
    return found.select(expected(name).column_names)


def given(kind: str) -> list[pa.RecordBatch | AdvanceWatermark]:
    """The rows in batches, and after each batch the watermark."""
    table, steps = pa.Table.from_batches([rows(kind)]), []
    for batch in table.to_batches(max_chunksize=BATCH):
        steps += [batch, AdvanceWatermark(max(batch["date_time"].cast(pa.int64()).to_pylist()) - BOUND[kind])]
    return steps


#: The queries that `make test` restarts.
RESTARTED = ("q4", "q5", "q6", "q8", "q9", "q11", "q19")


def test_every_query_has_an_answer_to_compare() -> None:
    assert list(QUERIES) == list(EXPECTED)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("name", "parallelism"),
    [(name, 3) for name in EXPECTED]
    + [pytest.param(name, 1, marks=() if name in ("q5", "q6", "q8", "q19") else pytest.mark.soak) for name in EXPECTED],
)
def test_a_query_agrees_with_duckdb(name: str, parallelism: int) -> None:
    threads = hg.LocalDeployment(processes=False)
    config = hg.Config(message_size=4096, watermark_interval=0)
    env = hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=threads)
    found = pipeline(name, env).collect()
    assert expected(name).num_rows > 0
    assert_same(final(name, found), expected(name))


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        pytest.param(name, *change, marks=() if change == (3, 2) and name in RESTARTED else pytest.mark.soak)
        for name in EXPECTED
        if name != "q12"  # the clock decides what it emits
        for change in ((3, 2), (1, 1), (1, 3))
    ],
)
def test_a_restart_from_a_checkpoint_changes_nothing(name: str, before: int, after: int) -> None:
    kinds = KINDS(name)
    count = sum(rows(kind).num_rows for kind in kinds)
    result = hg.testing.run(
        lambda env: pipeline(name, env),
        given(kinds[0]) if len(kinds) == 1 else {kind: given(kind) for kind in kinds},
        parallelism=before,
        restarts=[Restart(count // 2, parallelism=after)],
    )
    assert result.late_rows == 0
    assert_same(final(name, result.table("returned")), expected(name))


def test_of_the_highest_bids_q9_takes_the_earliest_one() -> None:
    auction = rows("auctions").slice(0, 1)
    [opened], [number] = auction["date_time"].to_pylist(), auction["id"].to_pylist()
    bids = rows("bids").slice(0, 4).to_pydict() | {
        "auction": [number] * 4,
        "price": [7, 9, 9, 8],
        "date_time": [opened + timedelta(milliseconds=after) for after in (1, 3, 2, 4)],
    }
    given_bids = pa.record_batch(bids, schema=rows("bids").schema)
    result = hg.testing.run(lambda env: pipeline("q9", env), {"auctions": [auction], "bids": [given_bids]})
    found = final("q9", result.table("returned")).to_pylist()
    assert [(row["price"], row["bidder"]) for row in found] == [(9, bids["bidder"][2])]
