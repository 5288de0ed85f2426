"""Warns the user once that event time stands still while rows flow, and names the split that holds event time back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobGraph

log = logging.getLogger(__name__)

#: The seconds that a watermark may stand still while rows flow.
STANDS: Final = 10.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Row = Mapping[str, Any]


@dataclass(slots=True)
class _Standing:
    """An operator's watermark, the time since which it stands still, and the operator's row count at that time."""

    watermark: int
    since: float
    rows: int
    is_reported: bool = False


class StalledWatermarks:
    """The warnings about watermarks that stand still, in the driver's log.

    `update` gets a function that returns the counters of each operator and subtask, see `Attempt.operators`.
    """

    def __init__(self, job: JobGraph, clock: Callable[[], float] = time.monotonic) -> None:
        nodes = [node for vertex in job.vertices for node in vertex.nodes]
        #: Operators that use event time, with the sources whose watermarks reach them.
        self._sources = {node.name: sources for node in nodes if (sources := _timed_sources(node, nodes))}
        self._standing: dict[str, _Standing] = {}
        self._clock = clock

    def update(self, rows: Callable[[], Sequence[Row]]) -> None:
        if not self._sources:
            return
        now, operators = self._clock(), rows()
        for name, sources in self._sources.items():
            mine = [row for row in operators if row["name"] == name]
            if mine:
                self._update_operator(name, mine, [row for row in operators if row["name"] in sources], now)

    def _update_operator(self, name: str, mine: Sequence[Row], sources: Sequence[Row], now: float) -> None:
        watermark = min(row["watermark"] for row in mine)
        rows = sum(row["rows_in"] for row in mine)
        standing = self._standing.get(name)
        if standing is None or watermark != standing.watermark or rows < standing.rows:
            self._standing[name] = _Standing(watermark, now, rows)
            return
        flows = rows > standing.rows
        if standing.is_reported or not flows or now - standing.since < STANDS or watermark == MAX_TIME:
            return
        holding = [row for row in sources if row["watermark"] <= watermark and not row["is_idle"]]
        if holding:
            standing.is_reported = True
            self._warn(name, standing, rows - standing.rows, min(holding, key=lambda row: int(row["watermark"])), now)

    def _warn(self, name: str, standing: _Standing, rows: int, holder: Row, now: float) -> None:
        read = "has given no row yet" if holder["watermark"] == MIN_TIME else f"is at {_shown(holder['watermark'])}"
        log.warning(
            "%s: its watermark has stood at %s for %.0f s, while %d rows came; %s[%d] holds it: it reads %s, which %s. "
            "No window that ends later fires until that split goes on or ends. If it may be silent for long, use "
            "hg.Watermark(..., idle_timeout=...)",
            name, _shown(standing.watermark), now - standing.since, rows,
            holder["name"], holder["subtask"], holder["split"], read,
        )  # fmt: skip


def _timed_sources(node: Node, nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names of the sources whose watermarks reach an operator that uses event time.

    The set is empty for an operator that does not use event time.
    """
    if "by_time" not in node.attributes:
        return frozenset()
    by_id = {other.id: other for other in nodes}
    reached, waiting = {node.id}, [node]
    while waiting:
        for edge in waiting.pop().inputs:
            if edge.source not in reached:
                reached.add(edge.source)
                waiting.append(by_id[edge.source])
    return frozenset(by_id[each].name for each in reached if by_id[each].watermark is not None)


def _shown(watermark: int) -> str:
    """Return a time in ISO format, or in microseconds if Python's calendar does not have the year."""
    if watermark == MIN_TIME:
        return "no time"
    try:
        return (_EPOCH + timedelta(microseconds=watermark)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{watermark} us"
