"""The monitor of a job on the driver, without the job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import headgate as hg
from headgate.observe.topology import topology_of
from headgate.plan.job_graph import build_job_graph
from headgate.runtime.master.hot_keys import HotKeys
from headgate.runtime.master.job_monitor import JobMonitor
from headgate.runtime.master.slow_functions import SlowFunctions
from headgate.runtime.master.task_requests import TaskRequests
from tests.observe.made_metrics import snapshots


def test_the_counters_of_a_job_are_added_up_once_a_second_not_at_each_report() -> None:
    """500 TaskManagers report 2,000 times a second, and each sum reads the reports of all."""
    env = hg.StreamEnvironment(parallelism=2)
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))])
    source = hg.sources.iterable([pa.RecordBatch.from_pylist([], schema)])
    rows = env.from_source(source, watermark=hg.Watermark("at", out_of_orderness="0 s"))
    rows.key_by("n").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    graph = build_job_graph(env._jobs.graph.graph(env._jobs.pending))
    now, sums = [1000.0], [0]
    reports = [snapshot.reports for snapshot in snapshots(topology_of("late", graph), {}, count=3)]
    attempt: Any = SimpleNamespace(
        has_reported=True, credentials=SimpleNamespace(attempt=0), reports=lambda: reports[int(now[0]) - 1000]
    )

    def metrics() -> dict[str, Any]:
        sums[0] += 1
        return {"operators": {}}

    def asks(*_: object) -> Any:
        raise AssertionError("nothing is slow")

    monitor = JobMonitor(
        "late", graph, hg.Config(), functions=SlowFunctions(asks),
        hot_keys=HotKeys(graph, lambda subtask: subtask, TaskRequests()), clock=lambda: now[0],
    )  # fmt: skip
    assert monitor._late_rows._bounds
    for tenth in range(21):
        now[0] = 1000.0 + tenth / 10
        for _ in range(20):
            monitor.on_report(attempt, metrics)
    assert sums == [3]
    assert len(monitor.snapshots()) == 3
