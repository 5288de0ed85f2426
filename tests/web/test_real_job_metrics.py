"""Prometheus scrapes real jobs: each panel has data, and after a failure counters begin at 0 with another `attempt`."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headgate as hg
from headgate.web.job_pages import SWITCH, pages
from tests.runtime.jobs import NUMBERS, endless, environment, eventually
from tests.web.test_scrape import Prometheus, has_prometheus, panel_queries

#: The least rows that the job has taken before it fails.
RESTORED = 5000
#: Seconds that Prometheus may take to start and to scrape twice within five seconds.
PATIENCE = 90.0
#: 2023-11-14 22:13:20 UTC, in microseconds since the epoch.
EVENT_TIME = 1_700_000_000_000_000
#: The panels that have no data here, and why.
WITHOUT_DATA: dict[str, str] = (
    {} if Path("/proc/self/schedstat").exists() else {"Waits for a processor": "this kernel does not count such waits"}
)
_fails = threading.Event()


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH)
    _fails.clear()
    yield
    pages.close()


def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    if _fails.is_set():
        _fails.clear()
        raise ValueError("once")
    return batch


def started(folder: Path) -> hg.JobHandle:
    env = environment(
        taskmanagers=1,
        checkpoint_dir=str(folder / "checkpoints"),
        checkpoint_interval=0.1,
        latency_interval=0.1,
        restart=hg.restart.fixed(1, delay=0.1),
    )
    rows = endless(env, rate=5000.0).name("numbers").rebalance()
    rows.map_batches(fails_once, schema=NUMBERS).name("once").sink_to(hg.sinks.null())
    return env.execute_async("orders")


def clicks(start: int, count: int) -> pa.RecordBatch:
    """Rows of seven users, 5,000 in a second of event time."""
    rows = range(start, start + count)
    times = pa.array([EVENT_TIME + 200 * row for row in rows], pa.timestamp("us"))
    return pa.record_batch({"user": pa.array([row % 7 for row in rows], pa.int64()), "at": times})


def windowed(folder: Path) -> hg.JobHandle:
    """Start a job with a value for each panel: a rate, event time, an exchange between two TaskManagers, a window and
    checkpoints."""
    env = environment(taskmanagers=2, checkpoint_dir=str(folder / "checkpoints"), checkpoint_interval=0.2)
    source = hg.sources.generate(clicks, rate=5000.0, batch_rows=256)
    rows = env.from_source(source, watermark=hg.Watermark("at", out_of_orderness="0 s")).name("clicks")
    counts = rows.key_by("user").window(hg.tumble("1 s")).aggregate(clicks=hg.count())
    counts.sink_to(hg.sinks.null())
    return env.execute_async("clicks")


def test_every_panel_of_the_dashboard_has_data_of_a_real_job(tmp_path: Path) -> None:
    has_prometheus()
    job = windowed(tmp_path)
    prometheus = Prometheus(tmp_path, urlsplit(str(job.web_url)).port or 0)
    queries = panel_queries()
    assert WITHOUT_DATA.keys() <= {title for title, _ in queries}
    try:
        for title, query in queries:
            if title not in WITHOUT_DATA:
                assert eventually(partial(prometheus.ask, query), PATIENCE), title
    finally:
        prometheus.stop()
        job.cancel()


def rows_in(url: str, operator: str) -> dict[int, float]:
    """Return the rows that the operator took, by attempt, as one scrape has them."""
    with urllib.request.urlopen(f"{url}metrics", timeout=30) as reply:
        families = {each.name: each for each in text_string_to_metric_families(reply.read().decode())}
    rows: dict[int, float] = {}
    for sample in families["headgate_operator_rows_in"].samples if "headgate_operator_rows_in" in families else ():
        if sample.labels["operator"] == operator:
            attempt = int(sample.labels["attempt"])
            rows[attempt] = rows.get(attempt, 0.0) + sample.value
    return rows


def newest_checkpoint(folder: Path) -> int:
    complete = folder.glob("checkpoints/*/chk-*/_metadata")
    return max((int(each.parent.name.removeprefix("chk-")) for each in complete), default=0)


def test_after_a_restart_the_rows_count_from_0(tmp_path: Path) -> None:
    job = started(tmp_path)
    try:
        url = str(job.web_url).partition("#")[0]
        eventually(lambda: rows_in(url, "once").get(0, 0) > RESTORED)
        before = newest_checkpoint(tmp_path)
        eventually(lambda: newest_checkpoint(tmp_path) > before + 1)  # the next one may have begun before
        _fails.set()
        eventually(lambda: rows_in(url, "once").get(1))
        for operator in ("numbers", "once"):
            exported = rows_in(url, operator)[1]
            assert job.metrics()["operators"][operator]["rows_in"] - exported >= RESTORED
    finally:
        job.cancel()


def test_prometheus_itself_sees_both_attempts(tmp_path: Path) -> None:
    has_prometheus()
    job = started(tmp_path)
    prometheus = Prometheus(tmp_path, urlsplit(str(job.web_url)).port or 0)
    latency = 'headgate_operator_latency_seconds{operator="once"}'
    rate = 'sum by (attempt) (rate(headgate_operator_rows_in_total{operator="once"}[5s])) > 0'
    try:
        eventually(lambda: prometheus.ask(rate), PATIENCE)
        eventually(lambda: prometheus.ask(latency), PATIENCE)
        _fails.set()
        eventually(lambda: "1" in {sample["metric"]["attempt"] for sample in prometheus.ask(rate)}, PATIENCE)
    finally:
        prometheus.stop()
        job.cancel()
