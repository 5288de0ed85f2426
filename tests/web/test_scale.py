"""The page of a large job: 500 subtasks and 62,500 channels.

Each of its 500 TaskManagers, one for a subtask, reports half of the channels of its end, so that all channels are
reported. That is more than happens: a TaskManager reports the 50 worst channels of each end, here at most 25,000.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import pytest

from headgate.observe.channel_columns import Columns
from headgate.observe.diagnosis import diagnose
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.recording import Recorder
from tests.ending import TooLate
from tests.observe.made_metrics import Tasks, line, snapshots
from tests.web.conftest import Serve
from tests.web.fake_job import IDLES, SLEEPS, WAITS, FakeJob

JOB = "/jobs/1f-0a0b0c0d"
SUBTASKS = 250
CHANNELS = SUBTASKS * SUBTASKS
EDGE = "numbers -> sums"
#: What a page asks for each second, and what a click adds.
PATHS = [JOB, f"{JOB}/diagnosis", f"{JOB}/channels?limit=50", f"{JOB}/vertices/1/subtasks?limit=10",
         f"{JOB}/vertices/0/backpressure", f"{JOB}/channels?offset=50000&limit=50", f"{JOB}/checkpoints",
         f"{JOB}/series?contains=busy_s", f"{JOB}/series?name=task/sums[7]/busy_s"]  # fmt: skip
ROUNDS = 12


def large_job() -> FakeJob:
    topology = line("numbers", "sums", parallelism=SUBTASKS)
    tasks: Tasks = {(0, subtask): WAITS for subtask in range(SUBTASKS)}
    tasks = {**tasks, **{(1, subtask): SLEEPS if subtask == 7 else IDLES for subtask in range(SUBTASKS)}}
    return FakeJob(topology=topology, taken=[_spread(each) for each in snapshots(topology, tasks, count=ROUNDS + 12)])


def _spread(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Return the snapshot of a job of which each task has a TaskManager of its own."""
    (report,) = snapshot.reports
    rows = [{**row, "late_rows": 0, "state_bytes": 10, "state_keys": 2} for row in report["operators"]]
    reports = []
    for task, row in zip(report["tasks"], rows, strict=True):
        producing = task["vertex"] == 0
        edges = [{"name": EDGE, "producer": task["subtask"], "rows_out": 0, "bytes_out": 0}] if producing else []
        channels = _channels(task["subtask"], report["clock_s"], producing=producing)
        reports.append({**report, "tasks": [task], "operators": [row], "edges": edges, "channels": channels})
    return replace(snapshot, reports=reports)


def _channels(subtask: int, seconds: float, *, producing: bool) -> Columns:
    """Return half of the channels of a subtask, as a TaskManager reports them. The higher its number in the report,
    the longer a channel waits."""
    half = range(SUBTASKS // 2)
    others = [(subtask + each if producing else subtask - each - len(half)) % SUBTASKS for each in half]
    same = [subtask] * len(half)
    waited = [seconds * each / SUBTASKS for each in half]
    sending: Columns = {
        "backlog": list(half), "queued_bytes": [100] * len(half), "queued_buffers": list(half),
        "buffers_sent": [10 * seconds] * len(half), "bytes_sent": [1000 * seconds] * len(half),
        "credit": [0] * len(half), "credits_granted": [10 * seconds] * len(half), "credit_wait_s": waited,
    }  # fmt: skip
    receiving: Columns = {
        "queue": list(half), "received_bytes": [50] * len(half), "free_exclusive": [0] * len(half),
        "free_floating": [0] * len(half), "unannounced_credit": [0] * len(half), "without_buffer_s": waited,
    }  # fmt: skip
    nothing = [None] * len(half)
    return {
        "edge": [EDGE] * len(half), "producer": same if producing else others,
        "consumer": others if producing else same,
        **dict.fromkeys(receiving if producing else sending, nothing), **(sending if producing else receiving),
    }  # fmt: skip


@pytest.mark.alone
def test_the_page_of_a_large_job_answers_within_100_ms(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """99 of 100 answers do. In each round there is a new snapshot, and its first requests compute the answers of all.

    A real job has already diagnosed a snapshot when the page asks for it. Processor time is measured, in which other
    programs do not count.
    """
    job = large_job()
    vertices = job.topology.vertices
    assert sum(vertex.parallelism for vertex in vertices) == 500
    assert vertices[0].parallelism * vertices[1].parallelism == CHANNELS == 62_500
    every, history = job.taken[:], job._history()
    monkeypatch.setattr(FakeJob, "_history", lambda _: history)
    # A driver holds twelve snapshots. Without this, each collection looks at 24, and at what other tests have left.
    gc.collect()
    gc.freeze()
    served = serve(job)
    times: list[tuple[float, str]] = []
    for number in range(ROUNDS):
        job.taken[:] = every[number : number + 12]
        findings = diagnose(job.topology, job.taken)
        monkeypatch.setattr(FakeJob, "diagnose", lambda _, found=findings: found)
        for path in PATHS:
            began = time.process_time()
            reply = served.get(path)
            times.append((round(time.process_time() - began, 3), path))
            assert reply.status == 200
    times.sort()
    if times[int(0.99 * len(times))][0] >= 0.1:
        raise TooLate(times[-10:])
    assert served.get(f"{JOB}/diagnosis").json["findings"][0]["subtasks"] == [7]
    answer = served.get(f"{JOB}/channels?limit=1").json
    assert answer["total"] == CHANNELS
    assert answer["channels"][0]["credit_wait_ratio"] == pytest.approx(124 / SUBTASKS, abs=0.001)


@pytest.mark.alone
def test_a_snapshot_of_a_large_job_is_recorded_in_a_part_of_its_second() -> None:
    """A driver records each second, beside all that it does for the job."""
    snapshot, recorder = large_job().taken[-1], Recorder()
    began = time.process_time()
    recorder.add(snapshot)
    took = time.process_time() - began
    if took >= 0.25:
        raise TooLate(took)
    assert recorder.nbytes > 0
