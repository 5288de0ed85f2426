"""What Prometheus scrapes, and the dashboard that reads it."""

from __future__ import annotations

import json
import re
import time
from importlib.resources import files
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.samples import Sample

from headgate.web import prometheus_table
from tests.web.conftest import Serve, Served
from tests.web.fake_job import SLEEPS, WAITS, FakeJob, both, checkpoint, job_with, slow_job


def scraped(served: Served, accept: str = "*/*") -> dict[str, list[Sample]]:
    """Return the samples of each family."""
    reply = served.get("/metrics", Accept=accept)
    assert reply.status == 200
    reader = open_metrics if "openmetrics" in reply.headers["content-type"] else parse
    return {family.name: family.samples for family in reader(reply.body.decode())}


def paced(**fields: Any) -> FakeJob:
    """Return a job with a value for each metric."""
    sampled = {"disk_wait_s": 0.0, "at_lock_s": 0.0, "running_s": 0.0}
    job = job_with({**both(0, {**WAITS, "lag_s": 1.0, **sampled}), **both(1, SLEEPS)}, **fields)
    job.ended_checkpoints.append(checkpoint(3))
    for snapshot in job.taken:
        (report,) = snapshot.reports
        report["operators"][0]["unread"] = {"orders[0]": 17}
        report["operators"][1]["latency_s"] = 0.01
        report["operators"][0]["watermark"] = 1_700_000_000_000_000
        report["machine"]["memory_pressure_s"] = 0.0
    return job


def test_every_metric_of_the_table_is_exported(serve: Serve) -> None:
    names = {f"headgate_{each.name}" for _, table in prometheus_table.TABLES for each in table}
    names |= {f"headgate_{name.removesuffix('_total')}" for name, _, _ in prometheus_table.OTHER}
    exported = scraped(serve(paced()))
    assert set(exported) == names


def test_names_follow_the_rules_of_prometheus(serve: Serve) -> None:
    for name, samples in scraped(serve(paced())).items():
        assert re.fullmatch(r"headgate_[a-z_]+", name)
        if name.endswith("_ratio"):
            assert all(0 <= sample.value <= 1 for sample in samples)


def test_a_counter_of_seconds_is_a_total(serve: Serve) -> None:
    samples = scraped(serve(slow_job()))["headgate_task_busy_seconds"]
    (sample,) = [each for each in samples if each.labels["vertex"] == "warehouse" and each.labels["subtask"] == "1"]
    assert (sample.name, sample.value) == ("headgate_task_busy_seconds_total", 11.0)
    assert sample.labels == {
        "job_id": "1f-0a0b0c0d", "job_name": "orders", "attempt": "0", "vertex": "warehouse", "subtask": "1"
    }  # fmt: skip


def test_what_the_machine_does_not_say_is_left_out(serve: Serve) -> None:
    assert "headgate_machine_memory_pressure_seconds" not in scraped(serve(slow_job()))


def test_counters_of_another_attempt_have_another_label(serve: Serve) -> None:
    job = slow_job()
    served = serve(job)
    job.taken[:] = slow_job(attempt=1).taken[:1]
    samples = scraped(served)["headgate_operator_rows_in"]
    assert {(sample.labels["attempt"], sample.value) for sample in samples} == {("1", 0.0)}


def test_rows_of_earlier_attempts_do_not_count(serve: Serve) -> None:
    job = slow_job(attempt=1)
    last = job.taken[-1].reports[0]["operators"]
    counted = {row["rows_in"] for row in last}
    for row in last:
        row["restored"] = {"rows_in": 100, "rows_out": 0}
    samples = scraped(serve(job))["headgate_operator_rows_in"]
    assert {sample.value for sample in samples} == {count - 100 for count in counted}


def test_two_jobs_of_one_name_are_told_apart(serve: Serve) -> None:
    exported = scraped(serve(slow_job(), slow_job(id="1f-2")))
    assert {sample.labels["job_id"] for sample in exported["headgate_task_busy_seconds"]} == {"1f-0a0b0c0d", "1f-2"}
    for samples in exported.values():
        labels = [tuple(sorted(sample.labels.items())) for sample in samples]
        assert len(labels) == len(set(labels))


def test_no_series_is_of_a_channel_and_labels_are_bounded(serve: Serve) -> None:
    job = slow_job(name="x" * 1000)
    for samples in scraped(serve(job)).values():
        for sample in samples:
            assert "channel" not in sample.labels
            assert all(len(value) <= 128 for value in sample.labels.values())


def test_a_large_job_exports_a_part_of_its_subtasks_and_says_so(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.web.prometheus_export._SUBTASKS", 4)
    exported = scraped(serve(slow_job()))
    assert len(exported["headgate_task_busy_seconds"]) == 4
    assert exported["headgate_job_left_out_subtasks"][0].value == 2


def test_an_idle_source_has_no_watermark_that_a_lag_could_grow_from(serve: Serve) -> None:
    job = paced()
    served = serve(job)
    assert "headgate_operator_watermark_timestamp_seconds" in scraped(served)
    for row in job.taken[-1].reports[0]["operators"]:
        row["is_idle"] = True
    assert "headgate_operator_watermark_timestamp_seconds" not in scraped(served)


def test_an_ended_job_keeps_its_counters_for_a_while(serve: Serve) -> None:
    job = slow_job()
    job.end(time.time())
    served = serve(job)
    exported = scraped(served)
    assert exported["headgate_job_state_info"][0].labels["state"] == "FINISHED"
    assert "headgate_task_busy_seconds" in exported
    assert "headgate_task_input_pool_usage_ratio" not in exported
    job.end(time.time() - 1000)
    assert scraped(served) == {}


def test_the_format_is_the_one_that_was_asked_for(serve: Serve) -> None:
    exported = scraped(serve(slow_job()), "application/openmetrics-text; version=1.0.0")
    assert "headgate_task_busy_seconds" in exported


def test_each_panel_of_the_dashboard_reads_metrics_that_are_exported(serve: Serve) -> None:
    exported = {sample.name for samples in scraped(serve(paced())).values() for sample in samples}
    dashboard = json.loads((files("headgate.web") / "grafana.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) >= 12
    for panel in panels:
        named = {name for target in panel["targets"] for name in re.findall(r"headgate_\w+", target["expr"])}
        assert named, panel["title"]
        assert named <= exported, panel["title"]
    first_row = [panel["title"] for panel in panels if panel["gridPos"]["y"] == min(p["gridPos"]["y"] for p in panels)]
    assert first_row == ["Input pools", "Output pools", "Floating buffers", "Exclusive buffers"]
