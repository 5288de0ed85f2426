"""The progress that the demo shows."""

from __future__ import annotations

import io
from functools import partial

from rich.console import Console

from headgate.api.live_view import JobSight
from headgate.demo.progress_view import Progress, table
from headgate.observe.verdict import verdict_of
from headgate.terminal import PlainConsole


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


def test_only_a_terminal_shows_the_bar_and_the_table() -> None:
    job = JobSight(name="demo", status="RUNNING", state="RUNNING, checkpoint 3", verdict=verdict_of([]))
    for terminal in (True, False):
        clock = iter([0.0, 0.5, 0.5])
        file = io.StringIO()
        console = PlainConsole(file=file, width=100, force_terminal=terminal)
        with Progress(console, 10_000, clock=partial(next, clock)) as progress:
            progress.update({"flights": {"rows_out": 4000}}, job)
        written = file.getvalue()
        assert ("8,000" in written) == ("checkpoint 3" in written) == terminal
        assert "no bottleneck" in written
