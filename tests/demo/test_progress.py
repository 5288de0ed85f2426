from __future__ import annotations

import io

from rich.console import Console

from headgate.demo.progress import Progress, table


def rendered(view: object, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    console.print(view)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_rates_are_over_the_time_between_two_looks() -> None:
    now = {"flights": {"rows_in": 0, "rows_out": 3000}, "sink": {"rows_in": 500, "rows_out": 0}}
    before = {"flights": {"rows_in": 0, "rows_out": 1000}}
    lines = rendered(table(now, before, 2.0)).splitlines()
    assert lines[1].split() == ["flights", "0", "3,000", "1,000"]
    assert lines[2].split() == ["sink", "500", "0", "250"]


def test_a_terminal_shows_every_operator_and_anything_else_stays_silent() -> None:
    for terminal in (True, False):
        clock = iter([0.0, 0.5])
        console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
        with Progress(console, 10_000, clock=lambda clock=clock: next(clock)) as progress:  # type: ignore[misc]
            progress.update({"flights": {"rows_out": 4000}})
        written = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("8,000" in written) == terminal
        assert terminal or written == ""
