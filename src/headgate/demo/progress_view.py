"""What the demo shows while it runs: the share of the input read, how the job and its checkpoints are, and every
operator's rows and rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

#: Operators' counters: name -> {"rows_in": ..., "rows_out": ...}.
Counters = Mapping[str, Mapping[str, Any]]


class Progress:
    """A live table on a terminal; elsewhere nothing until the end."""

    def __init__(self, console: Console, total_rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_rows = total_rows
        self._clock = clock
        self._began = clock()
        self._before: tuple[float, Counters] = (self._began, {})
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._shown = console.is_terminal

    def __enter__(self) -> Progress:
        if self._shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._live.stop()

    def update(self, operators: Counters, state: str) -> None:
        """Show the counters as they are now, and the job's state; rates are since the last call."""
        now = self._clock()
        then, before = self._before
        self._before = (now, {name: dict(counters) for name, counters in operators.items()})
        if self._shown and now > then:
            read = max((_moved(counters) for counters in operators.values()), default=0)
            bar = ProgressBar(total=self._total_rows, completed=min(read, self._total_rows), width=60)
            self._live.update(Group(bar, state, table(operators, before, now - then)), refresh=True)


def table(operators: Counters, before: Counters, seconds: float) -> Table:
    """Rows and rates of every operator, the rates over `seconds` since `before`."""
    view = Table(box=None, pad_edge=False)
    view.add_column("operator")
    for heading in ("rows in", "rows out", "rows/s"):
        view.add_column(heading, justify="right")
    for name, counters in operators.items():
        rate = (_moved(counters) - _moved(before.get(name, {}))) / seconds
        view.add_row(name, f"{counters.get('rows_in', 0):,}", f"{counters.get('rows_out', 0):,}", f"{rate:,.0f}")
    return view


def _moved(counters: Mapping[str, Any]) -> int:
    """Rows through an operator: a source has none coming in, a sink none going out."""
    return max(int(counters.get("rows_in", 0)), int(counters.get("rows_out", 0)))
