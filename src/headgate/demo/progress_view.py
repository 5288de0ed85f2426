"""Show the demo's progress: the state of the job, its bottleneck, how much is read, and the rows of all operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from headgate.api.live_view import JobSight, LiveView

#: The counters of operators by name, such as {"filter": {"rows_in": 5, "rows_out": 3}}.
Counters = Mapping[str, Mapping[str, Any]]


class Progress:
    """Shows the demo's job, as `LiveView` does.

    On a terminal, it also shows a bar and a table below the job. Use it as a context manager.
    """

    def __init__(self, console: Console, total_rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_rows = total_rows
        self._clock = clock
        self._before: tuple[float, Counters] = (clock(), {})
        self._view = LiveView(console, clock)

    def __enter__(self) -> Progress:
        self._view.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._view.__exit__(*error)

    def update(self, operators: Counters, job: JobSight) -> None:
        """Show the current counters and the job's state. Rates are averages since the last call."""
        now = self._clock()
        then, before = self._before
        self._before = (now, {name: dict(counters) for name, counters in operators.items()})
        if now > then:
            read = max((_moved(counters) for counters in operators.values()), default=0)
            bar = ProgressBar(total=self._total_rows, completed=min(read, self._total_rows), width=60)
            self._view.update([job], bar, table(operators, before, now - then))


def table(operators: Counters, before: Counters, seconds: float) -> Table:
    """Return a table of the rows and rates of every operator. The rates are over the `seconds` since `before`."""
    view = Table(box=None, pad_edge=False)
    view.add_column("operator")
    for heading in ("rows in", "rows out", "rows/s"):
        view.add_column(heading, justify="right")
    for name, counters in operators.items():
        rate = (_moved(counters) - _moved(before.get(name, {}))) / seconds
        view.add_row(name, f"{counters.get('rows_in', 0):,}", f"{counters.get('rows_out', 0):,}", f"{rate:,.0f}")
    return view


def _moved(counters: Mapping[str, Any]) -> int:
    """Return how many rows went through an operator. A source has no input rows, and a sink has no output rows."""
    return max(int(counters.get("rows_in", 0)), int(counters.get("rows_out", 0)))
