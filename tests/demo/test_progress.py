"""The progress that the demo shows."""

from __future__ import annotations

import io
from functools import partial

from rich.console import Console

import headgate as hg
from headgate.api.progress import state_of
from headgate.demo.progress_view import Progress, table


def rendered(view: object, terminal: bool = False) -> str:
    written = io.StringIO()
    Console(file=written, width=100, force_terminal=terminal).print(view)
    return written.getvalue()


def test_rates_are_over_the_time_since_the_last_update() -> None:
    now = {"flights": {"rows_in": 0, "rows_out": 3000}, "sink": {"rows_in": 500, "rows_out": 0}}
    before = {"flights": {"rows_in": 0, "rows_out": 1000}}
    lines = rendered(table(now, before, 2.0)).splitlines()
    assert lines[1].split() == ["flights", "0", "3,000", "1,000"]
    assert lines[2].split() == ["sink", "500", "0", "250"]


def test_only_a_terminal_shows_progress() -> None:
    for terminal in (True, False):
        clock = iter([0.0, 0.5])
        file = io.StringIO()
        console = Console(file=file, width=100, force_terminal=terminal)
        with Progress(console, 10_000, clock=partial(next, clock)) as progress:
            progress.update({"flights": {"rows_out": 4000}}, "RUNNING")
        written = file.getvalue()
        assert ("8,000" in written) == ("RUNNING" in written) == terminal
        assert terminal or written == ""


def test_the_state_of_a_job_is_one_line() -> None:
    assert state_of("CREATED", 0, []) == "CREATED"
    failed = hg.CheckpointRecord(checkpoint=3, triggered_at=0.0, duration=0.5, failure="the job restarts")
    assert state_of("RESTARTING", 1, [failed]) == ("RESTARTING, restarted 1 time, checkpoint 3 failed, 0.50 s, 0 bytes")
    complete = hg.CheckpointRecord(checkpoint=4, triggered_at=0.0, duration=0.062, size=25_000, kind="savepoint")
    assert state_of("RUNNING", 2, [failed, complete]) == (
        "RUNNING, restarted 2 times, savepoint 4 complete, 0.06 s, 25,000 bytes"
    )
