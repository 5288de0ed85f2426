"""What a console shows of running jobs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

import headgate as hg
from headgate.api.live_view import QUIET, JobSight, LiveView, state_of
from headgate.observe.verdict import MEASURING, Verdict, verdict_of
from headgate.terminal import PlainConsole

JOB = JobSight(
    name="counts", status="RUNNING", state="RUNNING, checkpoint 3 complete", verdict=verdict_of([]),
    page="http://127.0.0.1:40317/#2f1c", tunnel="ssh -N -L 40317:127.0.0.1:40317 far",
)  # fmt: skip


class Shown:
    """A view, its clock, and what it wrote."""

    def __init__(self, terminal: bool) -> None:
        self.now = 0.0
        self._file = io.StringIO()
        console = PlainConsole(file=self._file, width=200, force_terminal=terminal)
        self.view = LiveView(console, lambda: self.now)

    def after(self, seconds: float, job: JobSight) -> str:
        """Return what is written for a job that looks so after some seconds."""
        self.now += seconds
        self._file.truncate(self._file.seek(0))
        self.view.update([job])
        return self._file.getvalue()


def test_a_terminal_has_the_state_the_verdict_and_the_page_now() -> None:
    shown = Shown(terminal=True)
    with shown.view:
        written = shown.after(0, JOB)
        for text in (JOB.state, "no bottleneck", "http://127.0.0.1:40317/#2f1c", "ssh -N -L"):
            assert text in written
        assert "a slow sink" in shown.after(0.5, replace(JOB, verdict=Verdict("a slow sink", ("sink",))))


def test_elsewhere_there_is_a_line_for_each_change_and_one_in_ten_seconds_at_most() -> None:
    shown = Shown(terminal=False)
    slow = replace(JOB, verdict=Verdict("a slow sink", ("sink",)))
    with shown.view:
        assert shown.after(0, replace(JOB, verdict=MEASURING)).splitlines() == [
            "job 'counts' is RUNNING: measuring its first seconds",
            "  its page: http://127.0.0.1:40317/#2f1c",
            "  from your own machine, first: ssh -N -L 40317:127.0.0.1:40317 far",
        ]
        assert shown.after(QUIET / 2, slow) == ""
        assert shown.after(QUIET / 2, slow) == "job 'counts' is RUNNING: a slow sink\n"
        assert shown.after(QUIET, replace(slow, state="RUNNING, checkpoint 4")) == ""
        assert shown.after(QUIET, replace(slow, verdict=Verdict("a slower sink", ("sink",)))) == ""


def at(severity: str, text: str) -> JobSight:
    """Return the job with a verdict of this severity about a place of this name."""
    return replace(JOB, verdict=Verdict(f"{severity.lower()}: {text}", (severity, text, "slow_function")))


@pytest.mark.parametrize(("severity", "word"), [("BEHIND", "behind"), ("STUCK", "stuck")])
def test_elsewhere_no_line_says_what_limits_a_job_that_keeps_up(severity: str, word: str) -> None:
    """There is one if the job falls behind or is stuck there, and one if it no longer is."""
    shown = Shown(terminal=False)
    with shown.view:
        assert shown.after(0, at("LIMIT", "'sums'")).splitlines()[0] == "job 'counts' is RUNNING"
        assert shown.after(QUIET, JOB) == "job 'counts' is RUNNING: no bottleneck\n"
        assert shown.after(QUIET, at("LIMIT", "'sums'")) == ""
        assert shown.after(QUIET, JOB) == ""
        assert shown.after(QUIET, at(severity, "'sums'")) == f"job 'counts' is RUNNING: {severity.lower()}: 'sums'\n"
        assert shown.after(QUIET, at("LIMIT", "'sums'")) == f"job 'counts' is RUNNING: no longer {word}\n"
        assert shown.after(QUIET, at("LIMIT", "'out'")) == ""
        assert shown.after(QUIET, at(severity, "'sums'")) == f"job 'counts' is RUNNING: {severity.lower()}: 'sums'\n"
        restarting = replace(at("LIMIT", "'out'"), status="RESTARTING")
        assert shown.after(QUIET, restarting) == "job 'counts' is RESTARTING\n"


def test_a_terminal_shows_what_limits_a_job_that_keeps_up() -> None:
    shown = Shown(terminal=True)
    with shown.view:
        assert "limit: 'sums'" in shown.after(0, at("LIMIT", "'sums'"))


def test_a_name_cannot_command_the_terminal() -> None:
    shown = Shown(terminal=False)
    assert "\x1b" not in shown.after(0, replace(JOB, verdict=Verdict("\x1b[31m[red]'a'", ("a",))))
    assert "[red]'a'" in shown.after(QUIET, replace(JOB, verdict=Verdict("[red]'a'", ("b",))))


def test_the_state_of_a_job_is_one_line() -> None:
    assert state_of("CREATED", 0, []) == "CREATED"
    failed = hg.CheckpointRecord(checkpoint=3, triggered_at=0.0, duration=0.5, failure="the job restarts")
    assert state_of("RESTARTING", 1, [failed]) == ("RESTARTING, restarted 1 time, checkpoint 3 failed, 0.50 s, 0 bytes")
    complete = hg.CheckpointRecord(checkpoint=4, triggered_at=0.0, duration=0.062, size=25_000, kind="savepoint")
    assert state_of("RUNNING", 2, [failed, complete]) == (
        "RUNNING, restarted 2 times, savepoint 4 complete, 0.06 s, 25,000 bytes"
    )
