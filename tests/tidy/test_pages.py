"""Generated parts of pages are as the code has them now, and every name, counter and command is on a page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.runtime.master.metric_table import METRICS
from tests.runtime.jobs import eventually

SCRIPT = Path(__file__).parents[2] / "scripts" / "docs.py"


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    """The script that writes pages."""
    spec = importlib.util.spec_from_file_location("docs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_generated_parts_are_fresh(docs: ModuleType) -> None:
    stale = [str(page) for page, text in docs.pages().items() if page.read_text() != text]
    assert stale == [], "run scripts/docs.py"


def test_all_planted_bugs_are_on_the_page(docs: ModuleType) -> None:
    root = docs.ROOT
    modules = [path for path in root.glob("tests/**/test_*.py") if "\nBUGS = [" in path.read_text()]
    planting = {str(path.relative_to(root)) for path in modules}
    page = (docs.DOCS / "evidence" / "planted-bugs.md").read_text()
    assert sorted(planting) == sorted(
        line.removeprefix(docs.BUGS).removesuffix(" -->") for line in page.splitlines() if line.startswith(docs.BUGS)
    )


def test_the_reference_shows_nothing_that_headgate_alone_calls(docs: ModuleType) -> None:
    page = docs.api()
    members = {line.rpartition(".")[2] for line in page.splitlines() if line.startswith("#### ")}
    assert {"bound", "launch", "spec"} <= docs.INTERNAL
    assert members & docs.INTERNAL == set()
    assert {"value", "put_all", "register_event_time_timer"} <= members


def test_every_name_is_in_the_reference(docs: ModuleType) -> None:
    shown = [name for names in docs.SECTIONS.values() for name in names]
    assert sorted([*shown, *docs.ELSEWHERE]) == sorted(hg.__all__)


def batch_of_spark_pid() -> dict[str, Any]:
    throttle = hg.throttle.SparkPid(batch_interval="20 ms")
    config = hg.Config(flow_control="unbounded", throttle=throttle)
    deployment = hg.LocalDeployment(taskmanagers=1, processes=False)
    env = hg.StreamEnvironment(parallelism=1, config=config, deployment=deployment)
    schema = pa.schema([("n", pa.int64())])
    numbers = hg.sources.generate(
        lambda start, n: pa.record_batch({"n": range(start, start + n)}), schema=schema, rate=100
    )
    env.from_source(numbers).sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        batch: dict[str, Any] = eventually(lambda: job.metrics()["throttle_batches"])[0]
        return batch
    finally:
        job.cancel()


def test_every_counter_of_a_job_is_in_the_table() -> None:
    rows = [pa.record_batch({"key": [1, 2, 1]})]
    config = hg.Config(latency_interval="1 ms", debloat=True)
    deployment = hg.LocalDeployment(taskmanagers=2, processes=False)
    env = hg.StreamEnvironment(parallelism=2, config=config, deployment=deployment)
    stream = env.from_source(hg.sources.iterable(rows)).name("rows")
    stream.key_by("key").aggregate(n=hg.count()).name("sums").sink_to(hg.sinks.null()).name("end")
    counters: dict[str, Any] = env.execute().metrics
    latency = counters["operators"]["sums"].setdefault("latency", {})  # a short job may end before the first marker
    assert set(latency) <= {"rows"}
    below: dict[str, dict[str, Any]] = {
        "": counters,
        "throttle_batches": batch_of_spark_pid(),
        "in_flight": counters["in_flight"][0],
        "machine": counters["machine"][0],
        "network_memory": counters["network_memory"][0],
        "operators": counters["operators"]["sums"],
        "edges": next(iter(counters["edges"].values())),
        "channels": counters["channels"][0],
        "links": counters["links"][0][0],
        "tasks": next(task for name, task in counters["tasks"].items() if name.startswith("sums")),
    }
    assert {place: sorted(each) for place, each in below.items()} == {
        place: sorted(metric.name for metric in table) for place, table in METRICS.items()
    }
