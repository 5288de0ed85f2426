"""Nexmark on Flink SQL. The Python of Flink's own environment runs this file, so it imports nothing of Headgate.

The arguments are the parallelism and the jars that read Parquet. The program reads requests from standard input, one
JSON line for each run: `{"query": "q0", "folder": path}`. It answers on standard output with `{"seconds": s}` or
`{"error": text}`. All runs share one JVM, so Flink is warm after the first one. The queries are those of nexmark-flink.
"""

from __future__ import annotations

import json
import os
import sys
import time

COLUMNS = {
    "persons": "id bigint, name string, email_address string, credit_card string, city string, state string, "
    "date_time timestamp(3), extra string",
    "auctions": "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, "
    "expires timestamp(3), seller bigint, category bigint, date_time timestamp(3), extra string",
    "bids": "auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp(3), "
    "extra string",
}
SOURCE = """
create temporary table {kind} ({columns}, watermark for date_time as date_time - interval '4' second)
with ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')
"""
OPTIONS = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "table.local-time-zone": "UTC",
}
COUNTS = ", ".join(
    f"{count} {where} as {rank}_{what}"
    for what, count in (
        ("bids", "count(*)"),
        ("bidders", "count(distinct bidder)"),
        ("auctions", "count(distinct auction)"),
    )
    for rank, where in (
        ("total", ""),
        ("rank1", "filter (where price < 10000)"),
        ("rank2", "filter (where price >= 10000 and price < 1000000)"),
        ("rank3", "filter (where price >= 1000000)"),
    )
)
HOPS = """
    select auction, count(*) as num, window_start, window_end
    from table(hop(table bids, descriptor(date_time), interval '2' second, interval '10' second))
    group by auction, window_start, window_end
"""
CHANNEL_ID = r"regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
QUERIES = {
    "q0": "select auction, bidder, price, date_time, extra from bids",
    "q1": "select auction, bidder, 0.908 * price as price, date_time, extra from bids",
    "q2": "select auction, price from bids where mod(auction, 123) = 0",
    "q3": """select p.name, p.city, p.state, a.id from auctions a join persons p on a.seller = p.id
        where a.category = 10 and (p.state = 'OR' or p.state = 'ID' or p.state = 'CA')""",
    "q5": f"""select b.auction, b.num from ({HOPS}) b join (
            select max(num) as maxn, window_start, window_end from ({HOPS}) group by window_start, window_end) m
        on b.window_start = m.window_start and b.window_end = m.window_end and b.num >= m.maxn""",
    "q7": """select b.auction, b.price, b.bidder, b.date_time, b.extra from bids b join (
            select max(price) as maxprice, window_end as date_time
            from table(tumble(table bids, descriptor(date_time), interval '10' second))
            group by window_start, window_end) m
        on b.price = m.maxprice where b.date_time between m.date_time - interval '10' second and m.date_time""",
    "q8": """select p.id, p.name, p.window_start from (
            select id, name, window_start, window_end
            from table(tumble(table persons, descriptor(date_time), interval '10' second))
            group by id, name, window_start, window_end) p
        join (
            select seller, window_start, window_end
            from table(tumble(table auctions, descriptor(date_time), interval '10' second))
            group by seller, window_start, window_end) a
        on p.id = a.seller and p.window_start = a.window_start and p.window_end = a.window_end""",
    "q9": """select * from (
            select a.*, b.auction, b.bidder, b.price, b.date_time as date_time_of_bid, b.extra as extra_of_bid,
                row_number() over (partition by a.id order by b.price desc, b.date_time asc) as place
            from auctions a, bids b where a.id = b.auction and b.date_time between a.date_time and a.expires)
        where place <= 1""",
    "q11": """select bidder, count(*), session_start(date_time, interval '10' second) as start_time,
            session_end(date_time, interval '10' second) as end_time
        from bids group by bidder, session(date_time, interval '10' second)""",
    "q14": """select auction, bidder, 0.908 * price as price,
            case when hour(date_time) >= 8 and hour(date_time) <= 18 then 'dayTime'
                when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end as time_type,
            date_time, extra, char_length(extra) - char_length(replace(extra, 'c', '')) as c_counts
        from bids where 0.908 * price > 1000000 and 0.908 * price < 50000000""",
    "q15": f"""select date_format(date_time, 'yyyy-MM-dd') as d, {COUNTS} from bids
        group by date_format(date_time, 'yyyy-MM-dd')""",
    "q16": f"""select channel, date_format(date_time, 'yyyy-MM-dd') as d, max(date_format(date_time, 'HH:mm')) as m,
            {COUNTS} from bids group by channel, date_format(date_time, 'yyyy-MM-dd')""",
    "q17": f"""select auction, date_format(date_time, 'yyyy-MM-dd') as d, {COUNTS.partition(", count(distinct")[0]},
            min(price), max(price), avg(price), sum(price)
        from bids group by auction, date_format(date_time, 'yyyy-MM-dd')""",
    "q18": """select auction, bidder, price, channel, url, date_time, extra from (
            select *, row_number() over (partition by bidder, auction order by date_time desc) as place from bids)
        where place <= 1""",
    "q19": """select * from (
            select *, row_number() over (partition by auction order by price desc) as place from bids)
        where place <= 10""",
    "q20": """select auction, bidder, price, channel, url, b.date_time, b.extra, item_name, description, initial_bid,
            reserve, a.date_time as date_time_of_auction, expires, seller, category, a.extra as extra_of_auction
        from bids b join auctions a on b.auction = a.id where a.category = 10""",
    "q21": f"""select auction, bidder, price, channel, case when lower(channel) = 'apple' then '0'
            when lower(channel) = 'google' then '1' when lower(channel) = 'facebook' then '2'
            when lower(channel) = 'baidu' then '3' else {CHANNEL_ID} end as channel_id
        from bids where {CHANNEL_ID} is not null or lower(channel) in ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """select auction, bidder, price, channel, split_index(url, '/', 3) as dir1,
            split_index(url, '/', 4) as dir2, split_index(url, '/', 5) as dir3 from bids""",
}


def execute(query: str, folder: str, parallelism: int) -> float:
    """Run the query. Return the seconds from submitting the job to its end, start-up included."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {**OPTIONS, "parallelism.default": str(parallelism)}.items():
        environment.get_config().set(name, value)
    for kind, columns in COLUMNS.items():
        environment.execute_sql(SOURCE.format(kind=kind, columns=columns, path=os.path.join(folder, kind)))
    found = environment.sql_query(QUERIES[query])
    environment.create_temporary_view("found", found)
    environment.execute_sql(_sink(found))
    began = time.perf_counter()
    environment.execute_sql("insert into nothing select * from found").wait()
    return time.perf_counter() - began


def _sink(found: object) -> str:
    """Return the statement that makes a table without rows for the columns of a query."""
    schema = found._j_table.getResolvedSchema()  # type: ignore[attr-defined]
    columns = [f"c{place} {column.getDataType().getLogicalType().copy(True).asSerializableString()}"
               for place, column in enumerate(schema.getColumns())]  # fmt: skip
    return f"create temporary table nothing ({', '.join(columns)}) with ('connector' = 'blackhole')"


def main() -> None:
    parallelism, os.environ["HADOOP_CLASSPATH"] = int(sys.argv[1]), sys.argv[2]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM logs to standard output
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, object] = {"seconds": execute(request["query"], request["folder"], parallelism)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
