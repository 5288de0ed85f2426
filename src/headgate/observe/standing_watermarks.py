"""Find watermarks that do not advance while rows flow: which operator waits, and which source holds its watermark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

from headgate.observe.finding import Cause, Finding, Remedy, Severity
from headgate.observe.metrics_window import OperatorWindow, Window
from headgate.observe.topology import OperatorShape, VertexShape
from headgate.records.elements import MAX_TIME, MIN_TIME

#: The seconds for which a watermark may stand still.
STANDS: Final = 10.0
#: The seconds by which a report may be older than its snapshot.
_REPORT_AGE: Final = 2.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The name of the cause in each finding of this module.
CAUSE: Final = "standing_watermark"


def standing_watermarks(windows: Sequence[Window]) -> list[Finding]:
    """Return a finding for each operator whose watermark stood still for ten seconds while rows came."""
    recent = _recent(windows)
    if not recent or recent[-1].end - recent[0].end < STANDS - 2:
        return []
    vertices = recent[-1].topology.vertices
    timed = [(vertex, operator) for vertex in vertices for operator in vertex.operators if _waits(operator)]
    findings = (_standing(recent, vertex, operator) for vertex, operator in timed)
    return [finding for finding in findings if finding is not None]


def _recent(windows: Sequence[Window]) -> list[Window]:
    """Return the windows that ended in the last ten seconds, the latest last."""
    recent = takewhile(lambda window: windows[-1].end - window.end <= STANDS, reversed(windows))
    return list(recent)[::-1]


def _standing(windows: Sequence[Window], vertex: VertexShape, operator: OperatorShape) -> Finding | None:
    watermarks = {_watermark(window, vertex.id, operator.id) for window in windows}
    rows = sum(each.rows_in for window in windows[1:] for _, each in _subtasks(window, vertex.id, operator.id))
    if len(watermarks) != 1 or not rows:
        return None
    (watermark,) = watermarks
    if watermark is None or watermark == MAX_TIME:
        return None
    held = _holder(windows, vertex.id, watermark)
    if held is None:
        return None
    origin, source, subtask, reader = held
    seconds = windows[-1].end - windows[0].end
    return Finding(
        place=repr(f"{source.name}[{subtask}]"),
        vertex=origin,
        operator=source.name,
        subtasks=(subtask,),
        waits=(operator.name,),
        cause=Cause(
            name=CAUSE,
            text=f"its watermark has stood at {_shown(watermark)} for {seconds:.0f} s, while {rows} rows came",
            evidence={"rows": float(rows), "seconds": seconds, "watermark": float(watermark)},
        ),
        remedy=Remedy(
            text="no window that ends later fires until its split goes on or ends; if it may be silent for long, use "
            "hg.Watermark(..., idle_timeout=...)"
        ),
        severity=Severity.BEHIND,
        note=_what_it_reads(f"{source.name}[{subtask}]", reader),
    )


def _waits(operator: OperatorShape) -> bool:
    """Return whether an operator waits for event time."""
    return operator.timed and operator.kind != "source"


def _holder(
    windows: Sequence[Window], vertex: int, watermark: int
) -> tuple[int, OperatorShape, int, OperatorWindow] | None:
    """Return the source subtask that holds a watermark back: of the active subtasks, the one with the lowest watermark.

    A subtask that reads rows holds nothing back, see `_reads_rows`.
    The result is (the id of its vertex, its operator, its number, its window), or None if there is no such subtask.
    """
    window = windows[-1]
    topology = window.topology
    heads = [(each, topology.vertices[each].operators[0]) for each in (*topology.upstream(vertex), vertex)]
    holding = [
        (reader.watermark, each, source, subtask, reader)
        for each, source in heads
        if source.kind == "source" and source.timed
        for subtask, reader in _subtasks(window, each, source.id)
        if reader.watermark is not None and reader.watermark <= watermark and not reader.is_idle
        if not _reads_rows(windows, each, reader, subtask)
    ]
    return min(holding, key=lambda each: each[0])[1:] if holding else None


def _reads_rows(windows: Sequence[Window], vertex: int, reader: OperatorWindow, subtask: int) -> bool:
    """Return whether a source subtask has read rows from each split that holds its watermark since the first window.

    Its watermark then goes on with rows that are later: event time may be in minutes, or in days.
    """
    if reader.watermark == MIN_TIME or reader.split_has_rows is False:
        return False
    if reader.split_has_rows:
        silent, stands = reader.split_silent_s, windows[-1].end - windows[0].end
        return silent is not None and silent < stands - _REPORT_AGE
    recent = (
        each for window in windows[1:] for number, each in _subtasks(window, vertex, reader.id) if number == subtask
    )
    return any(each.rows_in for each in recent)


def _what_it_reads(place: str, reader: OperatorWindow) -> str:
    if reader.split is None or reader.watermark is None:
        return ""
    has_rows = reader.watermark > MIN_TIME if reader.split_has_rows is None else reader.split_has_rows
    if not has_rows:
        return f"{place} has read no row of {reader.split} yet"
    return f"{place} reads {reader.split} and is at {_shown(reader.watermark)}"


def _shown(watermark: int) -> str:
    """Return a time in ISO format, or in microseconds if Python's calendar does not have the year."""
    if watermark == MIN_TIME:
        return "no time"
    try:
        return (_EPOCH + timedelta(microseconds=watermark)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{watermark} us"


def _watermark(window: Window, vertex: int, operator: int) -> int | None:
    """Return the lowest watermark of an operator's subtasks, or None if a subtask has no watermark."""
    watermarks = [each.watermark for _, each in _subtasks(window, vertex, operator)]
    known = [watermark for watermark in watermarks if watermark is not None]
    return min(known) if known and len(known) == len(watermarks) else None


def _subtasks(window: Window, vertex: int, operator: int) -> Iterator[tuple[int, OperatorWindow]]:
    for task in window.of(vertex):
        yield task.subtask, task.operators[operator]
