"""Prometheus scrapes a real job that fails once: counters begin at 0 again, and have another `attempt` label."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headgate as hg
from headgate.web.job_pages import SWITCH, pages
from tests.runtime.jobs import NUMBERS, endless, environment, eventually
from tests.web.test_scrape import Prometheus, has_prometheus

#: The least rows that the job has taken before it fails.
RESTORED = 5000
#: Seconds that Prometheus may take to start and to scrape twice within five seconds.
PATIENCE = 90.0
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
