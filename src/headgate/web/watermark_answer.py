"""Compute the watermark of a vertex from the watermarks of its subtasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.observe.topology import OperatorShape, Topology
from headgate.records.elements import MAX_TIME, MIN_TIME
from headgate.web.answers import WatermarkState

Rows = Mapping[tuple[int, int], Mapping[str, Any]]


def watermark_of(topology: Topology, vertex: int, rows: Rows) -> tuple[int | None, WatermarkState]:
    """Return the lowest watermark that the vertex's subtasks have sent, and its state.

    `rows` has the counters by (operator id, subtask). A vertex that has only sinks sends no watermark: the result is
    then the lowest watermark of its producers.
    """
    emitting = [each for each in topology.vertices[vertex].operators if each.kind != "sink"]
    if emitting:
        return _least(emitting[-1], topology.vertices[vertex].parallelism, rows)
    found = [watermark_of(topology, producer, rows) for producer in topology.producers(vertex)]
    return _combined(found)


def _least(operator: OperatorShape, parallelism: int, rows: Rows) -> tuple[int | None, WatermarkState]:
    reports = [rows[operator.id, subtask] for subtask in range(parallelism) if (operator.id, subtask) in rows]
    return _combined([_one(report) for report in reports])


def _one(report: Mapping[str, Any]) -> tuple[int | None, WatermarkState]:
    watermark = report.get("watermark")
    if report.get("is_idle"):
        return watermark, "idle"
    if watermark is None or watermark <= MIN_TIME:
        return None, "none"
    return watermark, "ended" if watermark >= MAX_TIME else "time"


def _combined(found: Sequence[tuple[int | None, WatermarkState]]) -> tuple[int | None, WatermarkState]:
    """Return the lowest watermark and its state.

    Idle inputs do not count, unless all inputs are idle. If an active input has sent no watermark, there is none.
    """
    active = [each for each in found if each[1] != "idle"]
    if not active:
        return None, "idle" if found else "none"
    if any(state == "none" for _, state in active):
        return None, "none"
    return min(((watermark or 0), state) for watermark, state in active)
