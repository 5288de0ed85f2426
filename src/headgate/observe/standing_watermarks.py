"""Watermarks that stand still while rows flow: which operator waits, and which source holds its watermark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.observe.finding import Cause, Finding, Remedy, Severity
from headgate.observe.metrics_window import OperatorWindow, Window
from headgate.observe.topology import OperatorShape, VertexShape

#: Seconds that a watermark may stand.
STANDS: Final = 10.0
#: The watermark of an input that has ended.
_END: Final = (1 << 63) - 1


def standing_watermarks(windows: Sequence[Window]) -> list[Finding]:
    """Return the operators with event time whose watermark has stood for ten seconds while rows came."""
    recent = [window for window in windows if windows[-1].end - window.end <= STANDS]
    if not recent or recent[-1].end - recent[0].end < STANDS - 2:
        return []
    vertices = recent[-1].topology.vertices
    timed = [(vertex, operator) for vertex in vertices for operator in vertex.operators if operator.timed]
    findings = (_standing(recent, vertex, operator) for vertex, operator in timed)
    return [finding for finding in findings if finding is not None]


def _standing(windows: Sequence[Window], vertex: VertexShape, operator: OperatorShape) -> Finding | None:
    watermarks = {_watermark(window, vertex.id, operator.id) for window in windows}
    rows = sum(each.rows_in for window in windows for _, each in _subtasks(window, vertex.id, operator.id))
    if len(watermarks) != 1 or not rows:
        return None
    (watermark,) = watermarks
    if watermark is None or watermark == _END:
        return None
    held = _holder(windows[-1], vertex.id, watermark)
    if held is None:
        return None
    source, subtask = held
    return Finding(
        place=repr(f"{source.name}[{subtask}]"),
        vertex=vertex.id,
        operator=source.name,
        subtasks=(subtask,),
        waits=(operator.name,),
        cause=Cause(
            name="standing_watermark",
            text=f"its watermark has stood for {windows[-1].end - windows[0].end:.0f} s, while {rows} rows came",
            evidence={"rows": float(rows), "seconds": windows[-1].end - windows[0].end},
        ),
        remedy=Remedy(text="see why its split gives no rows; hg.Watermark(idle_timeout=) lets time go on without it"),
        severity=Severity.BEHIND,
    )


def _holder(window: Window, vertex: int, watermark: int) -> tuple[OperatorShape, int] | None:
    """Return the source subtask that holds a watermark: the one with the least watermark that is not idle."""
    topology = window.topology
    sources = [each for each in (*topology.upstream(vertex), vertex) if not topology.producers(each)]
    holding = [
        (reader.watermark, topology.vertices[each].operators[0], subtask)
        for each in sources
        for subtask, reader in _subtasks(window, each, topology.vertices[each].operators[0].id)
        if reader.watermark is not None and reader.watermark <= watermark and not reader.is_idle
    ]
    if not holding:
        return None
    _, operator, subtask = min(holding, key=lambda each: each[0])
    return operator, subtask


def _watermark(window: Window, vertex: int, operator: int) -> int | None:
    """Return the least watermark of an operator's subtasks; None if one does not tell."""
    watermarks = [each.watermark for _, each in _subtasks(window, vertex, operator)]
    known = [watermark for watermark in watermarks if watermark is not None]
    return min(known) if known and len(known) == len(watermarks) else None


def _subtasks(window: Window, vertex: int, operator: int) -> Iterator[tuple[int, OperatorWindow]]:
    for task in window.of(vertex):
        yield task.subtask, task.operators[operator]
