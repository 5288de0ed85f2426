"""Recordings: what is saved is read back, nothing private is in it, and other files are refused."""

from __future__ import annotations

import gzip
import json
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.errors import RecordingError
from headgate.observe.diagnosis import diagnose
from headgate.observe.lock_samples import lock_samples
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.recording import Recorder, Recording, read_recording, recordings_folder, write_recording
from tests.observe.made_metrics import line, snapshots

TOPOLOGY = line("numbers", "warehouse", "out")
WAITS = {"soft_backpressured_s": 0.9, "busy_s": 0.1, "rows": 100}
SLEEPS = {"busy_s": 1.0, "cpu_s": 0.01, "rows": 100, "batches": 3}
TASKS = {(0, 0): WAITS, (0, 1): WAITS, (1, 0): SLEEPS, (1, 1): SLEEPS}


def saved(path: Path, made: Sequence[MetricsSnapshot], **options: int) -> Path:
    recorder = Recorder(**options)
    for snapshot in made:
        recorder.add(snapshot)
    write_recording(path, recorder.lines, TOPOLOGY, {"options": {"segment_size": "65536"}})
    return path


def test_a_recording_gives_the_same_diagnosis(tmp_path: Path) -> None:
    made = snapshots(TOPOLOGY, TASKS)
    recording = read_recording(saved(tmp_path / "job.gz", made))
    assert recording.topology == TOPOLOGY
    assert recording.facts == {"options": {"segment_size": "65536"}}
    assert diagnose(recording.topology, recording.snapshots) == diagnose(TOPOLOGY, made)
    assert len(recording.snapshots) == len(made)


def test_only_its_owner_may_read_it_and_names_of_splits_are_left_out(tmp_path: Path) -> None:
    made = snapshots(TOPOLOGY, TASKS, count=1)
    made[0].reports[0]["operators"][0] |= {
        "split": "/secret/file.csv",
        "unread": {"/secret/topic[0]": 3, "/secret/topic[1]": 4},
    }
    path = saved(tmp_path / "job.gz", made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"secret" not in gzip.decompress(path.read_bytes())


def test_ten_minutes_are_kept(tmp_path: Path) -> None:
    made = [*snapshots(TOPOLOGY, {}, count=2), *snapshots(TOPOLOGY, {}, count=2, begin=1700.0)]
    assert [each.at for each in read_recording(saved(tmp_path / "job.gz", made)).snapshots] == [1700.0, 1701.0]


def test_the_oldest_snapshots_make_room(tmp_path: Path) -> None:
    made = snapshots(TOPOLOGY, TASKS, count=50)
    kept = read_recording(saved(tmp_path / "job.gz", made, max_bytes=3000)).snapshots
    assert 0 < len(kept) < 50
    assert kept[-1] == made[-1] or kept[-1].at == made[-1].at


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b""), gzip.compress(b"{}"), gzip.compress(b"[" * 100_000),
     gzip.compress(b'{"headgate_recording": 3}'), gzip.compress(b'{"headgate_recording": 1, "topology": 3}'),
     gzip.compress(json.dumps({"headgate_recording": 1, "topology": {"job": "a", "vertices": [], "edges": []}}).encode()
                   + b"\n{}")],
    ids=["empty", "text", "no lines", "no fields", "nested", "another format", "no topology", "no snapshot"],
)  # fmt: skip
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="file"):
        read_recording(path)


def test_a_recording_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "job.gz", snapshots(TOPOLOGY, TASKS))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordingError):
        read_recording(path)


def test_the_doctor_says_what_held_the_job_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "job.gz", snapshots(TOPOLOGY, TASKS))
    assert main(["doctor", str(path), "--json", "-"]) == 0
    output = capsys.readouterr()
    (verdict,) = [each for each in json.loads(output.out)["verdicts"] if each["findings"]]
    assert verdict["findings"][0]["operator"] == "warehouse"
    assert "'warehouse'" in output.err


def test_the_doctor_says_when_a_job_became_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The place and the cause stay, and the source falls behind only later."""
    tasks = {**TASKS, **{(0, each): {**WAITS, "lag_s": 0.5} for each in range(2)}}
    made = snapshots(TOPOLOGY, tasks, count=30)
    for second, snapshot in enumerate(made):
        for row in snapshot.reports[0]["operators"][:2]:
            row["lag_s"] = 0.0 if second < 15 else 2.0 * (second - 14)
    assert main(["doctor", str(saved(tmp_path / "job.gz", made)), "--json", "-"]) == 0
    verdicts = [each["findings"] for each in json.loads(capsys.readouterr().out)["verdicts"] if each["findings"]]
    assert [(each[0]["operator"], each[0]["severity"]) for each in verdicts] == [
        ("warehouse", "limit"), ("warehouse", "behind"),
    ]  # fmt: skip


def test_the_doctor_saves_the_page_of_a_recording(tmp_path: Path) -> None:
    path = saved(tmp_path / "job.gz", snapshots(TOPOLOGY, TASKS))
    assert main(["doctor", str(path), "--html", str(tmp_path / "job.html")]) == 0
    page = (tmp_path / "job.html").read_bytes()
    assert b"This is a recording. It does not say how the job ended." in page
    assert b"The job is RECORDED" not in page
    assert main(["doctor", str(path), "--html", str(tmp_path / "no/job.html")]) == 1


def test_the_doctor_refuses_a_damaged_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = snapshots(TOPOLOGY, TASKS)
    for snapshot in made:
        del snapshot.reports[0]["tasks"][0]["busy_s"]
    assert main(["doctor", str(saved(tmp_path / "job.gz", made))]) == 1
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_the_doctor_refuses_a_recording_of_a_time_that_no_calendar_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    made = snapshots(TOPOLOGY, TASKS, count=1, begin=1e300)
    assert main(["doctor", str(saved(tmp_path / "job.gz", made)), option, str(tmp_path / "out")]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_the_doctor_refuses_reports_of_which_it_can_make_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made,) = snapshots(TOPOLOGY, TASKS, count=1)
    reports = [{name: value for name, value in each.items() if name != "operators"} for each in made.reports]
    path = saved(tmp_path / "job.gz", [replace(made, reports=reports)])
    assert main(["doctor", str(path), "--html", str(tmp_path / "out")]) == 1
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sleeps", "says"),
    [
        ({"at_lock_s": 0.0, "running_s": 0.1, "disk_wait_s": 0.0}, "by samples of 2 of 6 tasks"),
        ({"disk_wait_s": 0.0}, "unknown, because the system does not show the system calls of threads, or where the"),
        ({}, "unknown, because the system does not show what threads do"),
    ],
)
def test_the_doctor_says_whether_waits_for_the_lock_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sleeps: dict[str, float], says: str
) -> None:
    tasks = {place: {**SLEEPS, **sleeps} if place[0] else does for place, does in TASKS.items()}
    assert main(["doctor", str(saved(tmp_path / "job.gz", snapshots(TOPOLOGY, tasks))), "--json", "-"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["lock_waits"].startswith(says)
    assert f"waits for the interpreter lock: {says}" in " ".join(output.err.split())


def test_waits_for_the_lock_are_unknown_without_reports_in_old_recordings_and_with_metrics_off() -> None:
    made = snapshots(TOPOLOGY, TASKS)
    for task in made[-1].reports[0]["tasks"]:
        del task["at_lock_s"], task["running_s"]
    assert (
        lock_samples(Recording(TOPOLOGY, {}, made))
        == "unknown, because the job's version of Headgate took no samples of it"
    )
    assert lock_samples(Recording(TOPOLOGY, {}, [])) == "unknown, because no task has reported"
    off = {"options": {"metrics": "False"}}
    assert lock_samples(Recording(TOPOLOGY, off, made)) == "unknown, because the job ran with metrics=False"


def test_recordings_of_failed_jobs_are_private_and_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = recordings_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for number in range(25):
        (folder / f"{number:02}.recording").touch()
        os.utime(folder / f"{number:02}.recording", (number, number))
    recordings_folder()
    assert sorted(path.name for path in folder.iterdir())[0] == "05.recording"


def test_a_folder_that_others_may_read_gets_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recordings_folder().chmod(0o755)
    with pytest.raises(PermissionError, match="headgate-recordings"):
        recordings_folder()
