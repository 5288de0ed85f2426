"""Counters of what leaves operators and exchanges: rows, bytes and the watermark."""

from __future__ import annotations

import pyarrow as pa

import headgate as hg
from headgate.operators.operator import MAX_TIME
from headgate.runtime.master.job_metrics import merge
from tests.runtime.jobs import NUMBERS, environment, eventually

ODD = pa.schema({"odd": pa.int64()})
SECOND = 1_000_000


def at(seconds: int) -> pa.RecordBatch:
    return pa.record_batch({"ts": pa.array([seconds * SECOND], pa.timestamp("us"))})


def test_rows_and_bytes_of_each_edge(processes: bool) -> None:
    def sort(batch: pa.RecordBatch) -> list[pa.RecordBatch | hg.SideOutput]:
        odd = [n for n in batch["n"].to_pylist() if n % 2]
        return [batch, hg.SideOutput("odd", pa.record_batch({"odd": pa.array(odd, pa.int64())}))]

    env = environment(processes)
    rows = env.from_source(hg.sources.iterable([[{"n": n} for n in range(100)]] * 4, schema=NUMBERS))
    sorted_rows = rows.map_batches(sort, schema=NUMBERS, side_outputs={"odd": ODD})
    sorted_rows.broadcast().sink_to(hg.sinks.null()).name("all")
    sorted_rows.side_output("odd").key_by("odd").aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    metrics = env.execute().metrics
    edges = metrics["edges"]
    assert {name: edge["rows_out"] for name, edge in edges.items()} == {
        "map_batches -> all": 400, "map_batches (odd) -> aggregate": 200,
    }  # fmt: skip
    assert edges["map_batches -> all"]["bytes_out"] > 2 * 400 * 8, "each of two channels got all of them"
    assert edges["map_batches (odd) -> aggregate"]["bytes_out"] > 200 * 8
    aggregate = metrics["operators"]["aggregate"]
    assert aggregate["state_keys"] == 50
    assert aggregate["state_bytes"] > 50 * 8


def test_watermarks_of_operators(processes: bool) -> None:
    """While it runs, as far as the source has come; at the end, infinite."""

    def batches(_subtask: int, _subtasks: int):  # type: ignore[no-untyped-def]
        yield at(100)
        yield at(150)
        yield from (at(150) for _ in iter(int, 1))

    env = environment(processes, parallelism=1, buffer_timeout=0, watermark_interval=0)
    source = hg.sources.iterable(batches, schema=at(0).schema, bounded=False)
    stream = env.from_source(source, watermark=hg.Watermark("ts", out_of_orderness="10 s"))
    windows = stream.filter("ts is not null").key_by().window(hg.tumble("1 s")).aggregate(rows=hg.count())
    windows.sink_to(hg.sinks.null())
    job = env.execute_async()
    expected = {"iterable": 140 * SECOND, "filter": 140 * SECOND, "window": 140 * SECOND, "null": None}
    try:
        eventually(lambda: watermarks(job) == expected, timeout=60)
    finally:
        job.cancel()


def watermarks(job: hg.JobHandle) -> dict[str, int | None]:
    return {name: operator["watermark"] for name, operator in job.metrics()["operators"].items()}


def test_watermarks_end_with_the_input(processes: bool) -> None:
    env = environment(processes)
    stream = env.from_source(hg.sources.iterable([at(1), at(2)]), watermark=hg.Watermark("ts"))
    stream.key_by("ts").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    operators = env.execute().metrics["operators"]
    assert {name: operator["watermark"] for name, operator in operators.items()} == {
        "iterable": MAX_TIME, "window": MAX_TIME, "null": None,
    }  # fmt: skip


def test_no_metrics_yet() -> None:
    assert (merge([])["edges"], merge([])["operators"]) == ({}, {})
