"""Warns the user that windows or joins drop late rows: at the first row, and at the end, with the total."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from headgate.plan.job_graph import JobGraph

log = logging.getLogger(__name__)


class LateRowWarnings:
    """Logs warnings about late rows on the driver. `update` gets a function that returns the job's counters."""

    def __init__(self, job: JobGraph) -> None:
        nodes = [node for vertex in job.vertices for node in vertex.nodes]
        self._bounds = {node.name: node.attributes["bound"] for node in nodes if "bound" in node.attributes}
        self._reported: dict[str, int] = {}

    def update(self, metrics: Callable[[], Mapping[str, Any]], *, ended: bool) -> None:
        if not self._bounds:
            return
        operators = metrics()["operators"]
        for name in self._bounds.keys() & operators.keys():
            late, reported = operators[name]["late_rows"], self._reported.get(name, 0)
            if late > reported and (ended or not reported):
                self._reported[name] = late
                so_far, bound = "" if ended else " so far", self._bounds[name]
                log.warning("%s: %d rows%s came late and were dropped (%s); %s", name, late, so_far, bound, _way(bound))


def _way(bound: str) -> str:
    """Return how to lose no rows. Only windows have an allowed lateness and an output for late rows."""
    if "allowed_lateness" in bound:
        return "raise one of the two, or keep such rows with late_output(tag)"
    return "raise it"
