"""Telling the user that windows drop rows as late: once when it begins, and how many there were at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from headgate.plan.job_graph import JobGraph

log = logging.getLogger(__name__)


class LateRowWarnings:
    """Warns in the driver's log; `look` takes what gives the job's counters as they are now."""

    def __init__(self, job: JobGraph) -> None:
        nodes = [node for vertex in job.vertices for node in vertex.nodes]
        self._bounds = {node.name: node.attributes["bound"] for node in nodes if "bound" in node.attributes}
        self._told: dict[str, int] = {}

    def look(self, metrics: Callable[[], Mapping[str, Any]], *, ended: bool) -> None:
        if not self._bounds:
            return
        operators = metrics()["operators"]
        for name in self._bounds.keys() & operators.keys():
            late, told = operators[name]["late_rows"], self._told.get(name, 0)
            if late > told and (ended or not told):
                self._told[name] = late
                log.warning(
                    "%s: %d rows%s came late and were dropped (%s); raise one of the two, or keep such rows with "
                    "late_output(tag)", name, late, "" if ended else " so far", self._bounds[name],
                )  # fmt: skip
