"""`deduplicate`, `top`, `max_by` and `min_by` in whole jobs: DuckDB's rows at each parallelism, and after restarts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import AdvanceWatermark, OperatorHarness, Restart
from tests.pipelines.pipeline_rig import BATCH, EVENTS, ROWS, assert_same, expected, stream_of

Query = Callable[[hg.DataStream], hg.DataStream]
BY_TIME = "row_number() over (partition by name order by ts desc)"
#: A pipeline, and the same question to DuckDB. All times are different, so each answer is certain.
QUERIES: dict[str, tuple[Query, str]] = {
    "top": (
        lambda stream: stream.key_by("name").top(3, by="ts", final=True),
        f"select *, {BY_TIME} as rank from events qualify {BY_TIME} <= 3",
    ),
    "lowest in windows": (
        lambda stream: stream.key_by("name").window(hg.tumble("10 s")).top(2, by="ts", ascending=True),
        """
        with numbered as (
            select *, time_bucket(interval 10 seconds, ts, timestamp '1970-01-01') as window_start,
                row_number() over (partition by name, window_start order by ts) as rank from events
        )
        select name, window_start, window_start + interval 10 seconds as window_end, ts, number, ratio, score, rank
        from numbered where rank <= 2
        """,
    ),
    "by two columns": (
        lambda stream: stream.key_by("name").top(3, by=["number", "ts"], ascending=[False, True], final=True),
        """
        select *, row_number() over (partition by name order by number desc, ts) as rank from events
        where number is not null qualify rank <= 3
        """,
    ),
    "by two columns in windows": (
        lambda stream: stream.key_by().window(hg.tumble("10 s")).top(1, by=["number", "ts"], rank=False),
        """
        select time_bucket(interval 10 seconds, ts, timestamp '1970-01-01') as window_start,
            window_start + interval 10 seconds as window_end, * from events where number is not null
        qualify row_number() over (partition by window_start order by number desc, ts desc) = 1
        """,
    ),
    "max_by in windows": (
        lambda stream: stream.key_by("name").window(hg.hop("10 s", every="2 s")).max_by("ts").select("name", "ts"),
        """
        select name, max(ts) as ts from (
            select name, ts, unnest(range(0, 10, 2)) as back, (epoch_us(ts) // 2000000) * 2 as latest from events
        ) group by name, latest - back
        """,
    ),
    "min_by of no key": (
        lambda stream: stream.key_by().min_by("ts", final=True),
        "select * from events order by ts limit 1",
    ),
    "latest": (
        lambda stream: stream.deduplicate("name", keep="last").changes().key_by("name").max_by("ts", final=True),
        "select * from events qualify row_number() over (partition by name order by ts desc) = 1",
    ),
    "latest at the end": (
        lambda stream: stream.deduplicate("name", keep="last", final=True).select("name", "number", "ts"),
        "select name, number, ts from events qualify row_number() over (partition by name order by ts desc) = 1",
    ),
    "pairs": (
        lambda stream: stream.select("name", "number").deduplicate(["name", "number"]),
        "select distinct name, number from events",
    ),
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("parallelism", [3, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_those_of_duckdb(query: str, parallelism: int) -> None:
    pipeline, sql = QUERIES[query]
    env = hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(message_size=512, watermark_interval=0))
    assert_same(pipeline(stream_of(env)).collect(), expected(sql))


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "query",
    ["top", "by two columns", "by two columns in windows", "lowest in windows", "latest", "latest at the end", "pairs"],
)
def test_a_restart_changes_nothing(query: str) -> None:
    pipeline, sql = QUERIES[query]
    given: list[pa.RecordBatch | AdvanceWatermark] = []
    for batch in EVENTS.to_batches(max_chunksize=BATCH):
        given += [batch, AdvanceWatermark(max(batch["ts"].cast(pa.int64()).to_pylist()) - 5_000_000)]
    restarts = [Restart(ROWS // 3, parallelism=2), Restart(ROWS // 2, parallelism=3)]
    result = hg.testing.run(lambda env: pipeline(stream_of(env)), given, restarts=restarts)
    assert_same(result.table("returned"), expected(sql))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_last_row_of_each_rank_is_right(parallelism: int) -> None:
    env = hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(message_size=512))
    updates = stream_of(env).key_by("name").top(3, by="ts").collect()
    keys = zip(updates["name"].to_pylist(), updates["rank"].to_pylist(), strict=True)
    last = sorted({key: at for at, key in enumerate(keys)}.values())
    assert len(last) < updates.num_rows
    assert_same(updates.take(last), expected(QUERIES["top"][1]))


@pytest.mark.parametrize("ascending", [False, True])
def test_only_ranks_from_the_first_changed_one_on_are_emitted(ascending: bool) -> None:
    schema = pa.schema({"key": pa.string(), "n": pa.int64()})
    sign = -1 if ascending else 1
    with OperatorHarness(lambda rows: rows.key_by("key").top(3, by="n", ascending=ascending), schema=schema) as harness:
        emitted = []
        for values in ([5], [3], [9], [2], [1], [7], [8, 9, 6], [9]):
            rows = harness.push([{"key": key, "n": sign * n} for n in values for key in ("a", "b")])
            emitted.append([(row["rank"], sign * row["n"]) for row in rows if row["key"] == "a"])
    assert emitted == [
        [(1, 5)],
        [(2, 3)],
        [(1, 9), (2, 5), (3, 3)],
        [],
        [],
        [(2, 7), (3, 5)],
        [(2, 9), (3, 8)],
        [(3, 9)],
    ]


def test_a_key_is_passed_on_again_after_its_time() -> None:
    env = hg.StreamEnvironment(parallelism=3)
    kept = stream_of(env).key_by("name").top(10_000, by="ts", ascending=True, final=True).select("name", "ts").collect()
    again = env.from_source(
        hg.sources.iterable(kept.to_batches(max_chunksize=200)),
        watermark=hg.Watermark("ts", out_of_orderness=timedelta(hours=1)),
    )
    found = again.set_parallelism(1).deduplicate("name", ttl="7 s").collect()
    wanted: list[tuple[str | None, int]] = []
    held: dict[str | None, int] = {}
    given = zip(kept["name"].to_pylist(), kept["ts"].cast(pa.int64()).to_pylist(), strict=True)
    for name, time in sorted(given, key=lambda row: row[1]):
        if name not in held or time >= held[name] + 7_000_000:
            held[name] = time
            wanted.append((name, time))
    rows = zip(found["name"].to_pylist(), found["ts"].cast(pa.int64()).to_pylist(), strict=True)
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)


def test_mistakes_are_found_at_the_call() -> None:
    stream = stream_of(hg.StreamEnvironment())
    by_name = stream.key_by("name")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: by_name.top(0, by="ts"), "top: 0 must be a whole number of rows"),
        (lambda: by_name.top(True, by="ts"), "top: True must be a whole number"),
        (lambda: by_name.top(1, by="nothing"), "top: there is no column 'nothing'"),
        (lambda: by_name.top(1, by="name"), "top: 'name' is a key column"),
        (lambda: by_name.top(1, by="ts", ascending="no"), "ascending='no' must be True or False"),  # type: ignore[arg-type]
        (lambda: by_name.top(1, by="ts", ascending=[0]), "ascending=.0. must be True or False"),  # type: ignore[list-item]
        (lambda: by_name.top(1, by=["number", "ts"], ascending=[True]), "ascending= has 1 values, and by= has 2"),
        (lambda: by_name.top(1, by=[]), "top: by= needs at least one column"),
        (lambda: by_name.top(1, by=["ts", "ts"]), "top: column 'ts' is named twice"),
        (lambda: by_name.top(1, by=["ts", "name"]), "top: 'name' is a key column"),
        (lambda: stream.key_by("number").top(1, by=["ts", "name"]), "'name' is string, and rows are ranked by numbers"),
        (lambda: by_name.top(2, by="ts", rank=False), "rank=False leaves rows of a key that nothing tells apart"),
        (lambda: by_name.top(1, by="ts", rank=0), "rank=0 must be True or False"),  # type: ignore[arg-type]
        (lambda: by_name.max_by(["ts"]), "max_by: .'ts'. must be the name of one column"),  # type: ignore[arg-type]
        (lambda: by_name.max_by("ts", final=1), "final=1 must be True or False"),  # type: ignore[arg-type]
        (lambda: stream.key_by("number").min_by("name"), "'name' is string, and rows are ranked by numbers"),
        (lambda: by_name.window(hg.tumble("1 s")).max_by("ts").key_by("name").window(hg.tumble("1 s")).max_by("ts"),
         "has columns of its own called 'window_end', 'window_start'; leave yours out"),
        (lambda: stream.deduplicate("nothing"), "deduplicate: there is no column 'nothing'"),
        (lambda: stream.deduplicate([]), "on= needs at least one column"),
        (lambda: stream.deduplicate("name", keep="any"), "keep='any' must be"),  # type: ignore[arg-type]
        (lambda: stream.deduplicate("name", ttl=0), "ttl=0 is too short"),
        (lambda: stream.deduplicate("name", ttl="soon"), "deduplicate: ttl: 'soon' is not a duration"),
        (lambda: stream.key_by("name").aggregate(final=True, rows=hg.count()).deduplicate("name", keep="last", ttl=1),
         "ttl= has no effect with keep='last' and without event time"),
        (lambda: stream.deduplicate("name", final=True), "final=True has no effect with keep='first'"),
        (lambda: stream.deduplicate("name", keep="last", final=1), "final=1 must be True"),  # type: ignore[arg-type]
        (lambda: stream.deduplicate("name", keep="last", ttl=1, final=True), "ttl= and final=True exclude each other"),
        (lambda: stream.deduplicate("name", keep="last", final=True).key_by("name").window(hg.tumble("1 s")),
         "lost at 'deduplicate', whose rows .* come at the end"),
    ]  # fmt: skip
    for call, error in calls:
        with pytest.raises(hg.PlanError, match=error):
            call()
