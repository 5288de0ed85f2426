"""The answers of the REST interface, asked for over HTTP."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from headgate.observe.profile import Frame, Stack
from headgate.observe.recording import read_recording
from headgate.records.elements import MAX_TIME
from headgate.web.flame_answer import MOST_NODES
from headgate.web.rest import MOST_CHANNELS, MOST_POINTS, MOST_SUBTASKS
from tests.web.conftest import Serve
from tests.web.fake_job import (
    EVENT_TIME,
    FakeJob,
    both,
    checkpoint,
    job_with,
    job_with_channels,
    job_with_watermarks,
    profile_of,
    slow_job,
)

JOB = "/jobs/1f-0a0b0c0d"


@pytest.fixture
def job() -> FakeJob:
    return slow_job(ended_checkpoints=[checkpoint(1), checkpoint(2, failure="it took too long")])


def test_the_jobs_are_listed(serve: Serve, job: FakeJob) -> None:
    (listed,) = serve(job).get("/jobs").json["jobs"]
    assert (listed["id"], listed["name"], listed["state"]) == ("1f-0a0b0c0d", "orders", "RUNNING")


def test_a_job_has_its_graph_and_its_options(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(JOB).json
    assert [vertex["name"] for vertex in answer["vertices"]] == ["numbers", "warehouse", "out"]
    assert [(edge["source"], edge["target"]) for edge in answer["edges"]] == [(0, 1), (1, 2)]
    assert answer["options"] == {"buffer_timeout": "0.01"}


def test_the_cause_is_told_from_its_victims(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(JOB).json
    assert [vertex["role"] for vertex in answer["vertices"]] == ["waits", "cause", ""]
    assert [vertex["level"] for vertex in answer["vertices"]] == ["HIGH", "OK", "OK"]
    assert [edge["role"] for edge in answer["edges"]] == ["waits", ""]


def test_a_vertex_has_no_watermark_an_idle_one_a_time_or_the_end(serve: Serve) -> None:
    answer = serve(job_with_watermarks()).get(JOB).json
    later = EVENT_TIME + 5_000_000
    assert [(each["name"], each["watermark_state"], each["watermark"]) for each in answer["vertices"]] == [
        ("silent", "none", None), ("idle", "idle", None), ("over", "ended", MAX_TIME), ("clicks", "time", later),
        ("out", "time", later),
    ]  # fmt: skip


def test_rates_are_per_second_and_over_all_subtasks(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(JOB).json
    assert answer["vertices"][1]["rows_in_per_s"] == 200
    assert (answer["edges"][0]["rows_per_s"], answer["edges"][0]["bytes_per_s"]) == (100, 1600)


def test_the_totals_of_a_finished_job_are_final_and_its_shares_are_those_of_its_last_seconds(
    serve: Serve, job: FakeJob
) -> None:
    served = serve(job)
    before, edges = served.get(f"{JOB}/vertices/1").json, served.get(JOB).json["edges"]
    (report,) = job.taken[-1].reports
    last = {**report, "clock_s": report["clock_s"] + 0.4,
            "tasks": [{**task, "ended": True} for task in report["tasks"]],
            "operators": [{**row, "rows_in": row["rows_in"] + 7} for row in report["operators"]]}  # fmt: skip
    findings = job.diagnose()
    job.diagnose = lambda: findings  # type: ignore[method-assign]
    job.taken.append(replace(job.taken[-1], at=job.taken[-1].at + 0.4, reports=(last,)))
    job.end(1020.0)
    after = served.get(f"{JOB}/vertices/1").json
    assert after == {**before, "rows_in": before["rows_in"] + 2 * 7}
    assert served.get(JOB).json["edges"] == edges
    assert served.get(f"{JOB}/diagnosis").json["findings"][0]["operator"] == "warehouse"


def test_the_findings_of_a_finished_job_are_final_though_it_has_no_newer_snapshot(
    serve: Serve, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(job)
    with monkeypatch.context() as running:
        running.setattr(FakeJob, "diagnose", lambda _: [])
        assert served.get(f"{JOB}/diagnosis").json["findings"] == []
    assert served.get(f"{JOB}/diagnosis").json["findings"] == [], "an answer for each snapshot"
    job.end(1020.0)
    assert served.get(f"{JOB}/diagnosis").json["findings"][0]["operator"] == "warehouse"


def test_tasks_that_have_not_started_neither_run_nor_have_ended(serve: Serve, job: FakeJob) -> None:
    """In batch mode, a report has no tasks of the stages that come later."""
    for taken in job.taken:
        report = taken.reports[0]
        report["tasks"][:] = [{**task, "ended": task["vertex"] == 0} for task in report["tasks"] if task["vertex"] < 2]
    answer = serve(job).get(JOB).json
    assert [(vertex["running"], vertex["ended"]) for vertex in answer["vertices"]] == [(0, 2), (2, 0), (0, 0)]
    job.taken.clear()
    answer = serve(job).get(JOB).json
    assert [(vertex["running"], vertex["ended"]) for vertex in answer["vertices"]] == [(0, 0)] * 3


def test_a_job_that_restarts_does_not_have_the_verdict_of_the_attempt_that_failed(serve: Serve, job: FakeJob) -> None:
    job.state = replace(job.state, state="RESTARTING", restarts=1)
    verdict = serve(job).get(f"{JOB}/diagnosis").json
    assert (verdict["sentence"], verdict["findings"]) == ("The job restarts after a failure.", [])


def test_a_vertex_has_its_subtasks_page_by_page(serve: Serve, job: FakeJob) -> None:
    served = serve(job)
    assert served.get(f"{JOB}/vertices/1").json["name"] == "warehouse"
    answer = served.get(f"{JOB}/vertices/1/subtasks?offset=1&limit=5").json
    assert (answer["total"], [each["name"] for each in answer["subtasks"]]) == (2, ["warehouse[1]"])


def test_back_pressure_is_as_in_flink(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(f"{JOB}/vertices/0/backpressure").json
    assert (answer["status"], answer["level"], answer["end_timestamp"]) == ("ok", "HIGH", 1011)
    assert [(each["subtask"], each["backpressured_ratio"]) for each in answer["subtasks"]] == [(0, 0.9), (1, 0.9)]


def test_channels_that_wait_most_come_first(serve: Serve) -> None:
    served = serve(job_with_channels(4))
    answer = served.get(f"{JOB}/channels").json
    assert [(each["exchange"], each["consumer"]) for each in answer["channels"]] == [
        ("numbers -> warehouse", 3), ("numbers -> warehouse", 2), ("numbers -> warehouse", 1), ("warehouse -> out", 0),
    ]  # fmt: skip
    worst, local = answer["channels"][0], answer["channels"][-1]
    assert (worst["producer_name"], worst["consumer_name"]) == ("numbers[0]", "warehouse[3]")
    assert (worst["credits_granted"], worst["credits_granted_per_s"], worst["credits_spent_per_s"]) == (220, 20, 20)
    assert (worst["credit_wait_ratio"], worst["credit_wait_s"]) == (0.75, 8.25)
    assert (worst["without_buffer_ratio"], worst["without_buffer_s"]) == (0.375, 4.12)
    assert (worst["credit"], worst["backlog"], worst["queue"], worst["in_flight_bytes"]) == (0, 7, 4, 110_000)
    assert local["credit"] is local["credits_spent_per_s"] is local["credit_wait_ratio"] is local["queue"] is None
    assert (local["backlog"], local["in_flight_bytes"]) == (2, 30)


def test_channels_come_fifty_at_once(serve: Serve) -> None:
    served = serve(job_with_channels(80))
    parts = [served.get(f"{JOB}/channels?offset={offset}").json for offset in (0, 50, 100)]
    assert [(each["total"], len(each["channels"])) for each in parts] == [(80, 50), (80, 30), (80, 0)]
    consumers = [each["consumer"] for part in parts for each in part["channels"]]
    assert consumers == [*range(79, 0, -1), 0]
    assert served.get(f"{JOB}/channels?offset=3&limit=2").json["channels"] == parts[0]["channels"][3:5]


TRACE = f"{JOB}/channels/trace?exchange=numbers+-%3E+warehouse&consumer=1"


def test_a_trace_has_data_and_credit_event_by_event(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(TRACE).json
    assert (answer["producer_name"], answer["consumer_name"], answer["seconds"]) == ("numbers[0]", "warehouse[1]", 2)
    assert (answer["at"], answer["is_complete"], len(answer["events"])) == (1010.0, True, 15)
    assert answer["events"][0] == {"kind": "sent", "at": 0.0, "buffers": 1, "number": 0, "left": 5}
    assert [event["kind"] for event in answer["events"][1:5]] == ["received", "read", "granted", "credited"]


def test_the_page_of_another_site_starts_no_trace(serve: Serve, job: FakeJob) -> None:
    served = serve(job)
    assert served.get(TRACE, sec_fetch_site="cross-site").status == 403
    assert served.get(TRACE, sec_fetch_site="same-origin").status == 200


def test_what_cannot_be_traced_says_why(serve: Serve, job: FakeJob) -> None:
    job.end(2000.0)
    reply = serve(job).get(TRACE)
    assert (reply.status, reply.json["errors"]) == (409, ["its job has ended"])


FLAME = f"{JOB}/vertices/1/flamegraph"


def test_a_profile_has_its_hottest_lines_and_a_flame_graph(serve: Serve, job: FakeJob) -> None:
    served = serve(job)
    answer = served.get(f"{FLAME}?operator=warehouse&subtaskindex=1&seconds=3").json
    assert job.profiled == [("warehouse", 1, 3.0)]
    assert (answer["operator"], answer["subtask"], answer["end_timestamp"]) == ("warehouse", 1, 1011)
    assert [line["line"] for line in answer["hottest"]] == [40, 7, 8, 9, 10]
    root = answer["data"]
    assert (root["name"], root["value"], root["on"]) == ("warehouse[1]", 91, 22.4)
    assert root["children"][0]["children"][0]["children"][0]["name"] == "ask (<i>service.py:40)"


def test_the_last_profile_of_a_vertex_is_answered_and_taken_only_if_there_is_none(serve: Serve, job: FakeJob) -> None:
    served = serve(job)
    first = served.get(FLAME).json
    assert job.profiled == [("warehouse", 0, 2.0)]
    assert served.get(FLAME).json == served.get(f"{FLAME}?operator=warehouse&subtaskindex=0").json == first
    served.get(f"{FLAME}?subtaskindex=1")
    served.get(f"{JOB}/vertices/0/flamegraph")
    assert job.profiled[1:] == [("warehouse", 1, 2.0), ("numbers", 0, 2.0)]


def test_an_ended_job_has_its_last_profile_and_no_other(serve: Serve, job: FakeJob) -> None:
    job.last = profile_of("warehouse", 1)
    job.end(2000.0)
    served = serve(job)
    assert served.get(FLAME).json["subtask"] == 1
    reply = served.get(f"{JOB}/vertices/0/flamegraph")
    assert (reply.status, reply.json["errors"]) == (409, ["its job has ended"])


def test_the_page_of_another_site_starts_no_profile(serve: Serve, job: FakeJob) -> None:
    assert serve(job).get(FLAME, sec_fetch_site="cross-site").status == 403
    assert job.profiled == []


def test_a_flame_graph_is_bounded(serve: Serve, job: FakeJob) -> None:
    def nodes(node: dict[str, Any]) -> int:
        return 1 + sum(map(nodes, node["children"]))

    stacks = tuple(
        Stack(tuple(Frame("/job/" + "x" * 200, depth, f"f{each}", "user") for depth in range(60)), 1, 0.0)
        for each in range(500)
    )
    job.last = profile_of("warehouse", 0, samples=500, stacks=stacks)
    reply = serve(job).get(FLAME)
    assert nodes(reply.json["data"]) == MOST_NODES
    assert len(reply.body) < 300_000


def test_the_diagnosis_says_where_why_and_what_to_do(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(f"{JOB}/diagnosis").json
    (finding,) = answer["findings"]
    assert answer["severity"] == "limit"
    assert answer["sentence"] == finding["sentence"]
    assert (finding["operator"], finding["subtasks"], finding["cause"]) == ("warehouse", [0, 1], "waiting_function")
    assert finding["gain"] == 2.0


def test_a_job_that_keeps_up_has_no_finding(serve: Serve) -> None:
    job = job_with({**both(0, {"idle_s": 0.9, "busy_s": 0.1, "rows": 10})})
    assert serve(job).get(f"{JOB}/diagnosis").json["severity"] == "ok"


def test_before_three_seconds_there_is_no_verdict(serve: Serve, job: FakeJob) -> None:
    del job.taken[2:]
    served = serve(job)
    assert served.get(f"{JOB}/diagnosis").json["severity"] == "pending"
    assert served.get(f"{JOB}/vertices/0/backpressure").json["status"] == "pending"
    job.taken.clear()
    assert served.get(JOB).json["vertices"][0]["rows_in"] == 0


def test_an_ended_job_says_how_it_ended(serve: Serve, job: FakeJob) -> None:
    job.end(2000.0, "FAILED", "UserFunctionError: 'warehouse' failed")
    answer = serve(job).get(f"{JOB}/diagnosis").json
    assert answer["severity"] == "ended"
    assert answer["sentence"] == "The job is FAILED: UserFunctionError: 'warehouse' failed"
    assert answer["findings"], "what was slow before its end"


def test_a_new_snapshot_is_a_new_reading(serve: Serve, job: FakeJob) -> None:
    served = serve(job)
    before = served.get(JOB).json["vertices"][0]["rows_in"]
    del job.taken[-1]
    assert served.get(JOB).json["vertices"][0]["rows_in"] == before - 200


def test_counters_come_without_those_of_tasks(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(f"{JOB}/metrics").json
    assert answer["metrics"]["rows_in"] == 7
    assert "tasks" not in answer["metrics"]


def test_checkpoints_say_which_task_was_slowest(serve: Serve, job: FakeJob) -> None:
    first, second = serve(job).get(f"{JOB}/checkpoints").json["checkpoints"]
    assert (first["id"], first["slowest"], first["alignment_s"]) == (1, "warehouse[1]", 0.4)
    assert second["failure"] == "it took too long"


def test_series_are_listed_and_read(serve: Serve, job: FakeJob) -> None:
    served = serve(job)
    listed = served.get(f"{JOB}/series?contains=warehouse&contains=busy_s&limit=1").json
    assert (listed["total"], len(listed["names"])) == (4, 1)
    answer = served.get(f"{JOB}/series?name=task/warehouse%5B0%5D/busy_s&from=1003&to=1006").json
    assert answer["series"][0]["points"] == [[second, 1, 1, 1] for second in (1003, 1004, 1005)]


def test_an_unknown_series_is_empty(serve: Serve, job: FakeJob) -> None:
    assert serve(job).get(f"{JOB}/series?name=x").json["series"] == [{"name": "x", "points": []}]


def test_many_points_are_joined(serve: Serve, job: FakeJob) -> None:
    answer = serve(job).get(f"{JOB}/series?name=task/warehouse%5B0%5D/busy_s&points=3").json
    assert [point[0] for point in answer["series"][0]["points"]] == [1001, 1005, 1009]


def test_a_recording_can_be_read(serve: Serve, job: FakeJob, tmp_path: Path) -> None:
    reply = serve(job).get(f"{JOB}/recording")
    assert reply.headers["content-type"] == "application/gzip"
    path = tmp_path / "recording.gz"
    path.write_bytes(reply.body)
    assert len(read_recording(path).snapshots) == 12
    assert gzip.decompress(reply.body)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/none", 404),
        (f"{JOB}/vertices/3", 404),
        (f"{JOB}/vertices/-1", 404),
        (f"{JOB}/vertices/%C2%B2", 404),
        (f"{JOB}/vertices/{'9' * 4000}", 404),
        ("/nothing", 404),
        (f"{JOB}/vertices/1/subtasks?limit={MOST_SUBTASKS + 1}", 400),
        (f"{JOB}/vertices/1/subtasks?limit=-1", 400),
        (f"{JOB}/vertices/1/subtasks?limit=1.5", 400),
        (f"{JOB}/vertices/1/subtasks?limit={'9' * 400}", 400),
        (f"{JOB}/channels/trace", 400),
        (f"{TRACE}&seconds=11", 400),
        (f"{FLAME}?operator=numbers", 400),
        (f"{FLAME}?seconds=61", 400),
        (f"{FLAME}?subtaskindex=x", 400),
        (f"{JOB}/channels?limit={MOST_CHANNELS + 1}", 400),
        (f"{JOB}/series?name=x&from=nan", 400),
        (f"{JOB}/series?name=x&points={MOST_POINTS + 1}", 400),
        (f"{JOB}/series?{'&'.join(['name=x'] * 21)}", 400),
        (f"{JOB}?what=1", 400),
    ],
)
def test_what_cannot_be_answered_is_refused(serve: Serve, job: FakeJob, path: str, status: int) -> None:
    reply = serve(job).get(path)
    assert reply.status == status
    assert reply.json["errors"]


def test_every_answer_matches_the_openapi_document(serve: Serve) -> None:
    job = job_with_channels(3, ended_checkpoints=[checkpoint(1), checkpoint(2, failure="it took too long")])
    served = serve(job)
    document = served.get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    paths = {path: each["get"] for path, each in document["paths"].items()}
    asked = 0
    for path, operation in paths.items():
        faults = [operation["responses"][each]["content"]["application/json"]["schema"] for each in ("4XX", "5XX")]
        assert faults == 2 * [{"$ref": "#/components/schemas/Fault"}]
        content = operation["responses"]["200"]["content"]
        if "application/json" not in content:
            continue
        names = {each["name"] for each in operation["parameters"]}
        query = "?exchange=warehouse+-%3E+out" if "exchange" in names else ""
        reply = served.get(path.replace("{job}", job.id).replace("{vertex}", "1") + query)
        _check(document, content["application/json"]["schema"], reply.json)
        asked += 1
    assert asked == len(paths) - 5
    _check(document, {"$ref": "#/components/schemas/Fault"}, served.get("/jobs/none").json)
    job.taken[:] = [None]  # type: ignore[list-item]
    failed = served.get(JOB)
    assert failed.status == 500
    _check(document, {"$ref": "#/components/schemas/Fault"}, failed.json)


def _check(document: dict[str, Any], schema: dict[str, Any], answer: object) -> None:
    closed = json.loads(json.dumps(document["components"]))
    for each in closed["schemas"].values():
        each.setdefault("additionalProperties", False)
    jsonschema.Draft202012Validator({**schema, "components": closed}).validate(answer)
