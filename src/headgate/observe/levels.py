"""The levels of back-pressure, with Flink's limits. They depend on how long a task waits for room in its output."""

from __future__ import annotations

from typing import Any, Final

from headgate.observe.metrics_window import TaskWindow, Window

#: A task is OK up to the share `_OK` of the time, LOW up to the share `_LOW`, and HIGH above that.
_OK: Final = 0.10
_LOW: Final = 0.50


def level(share: float) -> str:
    """Return the level of a blocked share.

    >>> [level(share) for share in (0.1, 0.5, 0.51)]
    ['OK', 'LOW', 'HIGH']
    """
    return "OK" if share <= _OK else "LOW" if share <= _LOW else "HIGH"


def backpressure(window: Window) -> list[dict[str, Any]]:
    """Return the back-pressure of each vertex and subtask in a window, as JSON values.

    A vertex has the level of its worst subtask. `ratio`, `idle_ratio` and `busy_ratio` are shares of the window. A
    vertex has the largest values of its subtasks, so its three values may add up to more than 1.
    """
    return [_vertex(window, vertex.id, vertex.name) for vertex in window.topology.vertices if window.of(vertex.id)]


def _vertex(window: Window, vertex: int, name: str) -> dict[str, Any]:
    tasks = window.of(vertex)
    return {
        "vertex": name,
        "level": level(window.blocked(vertex)),
        "ratio": round(window.blocked(vertex), 3),
        "idle_ratio": round(max(task.idle for task in tasks), 3),
        "busy_ratio": round(window.busy(vertex), 3),
        "subtasks": [_subtask(task) for task in tasks],
    }


def _subtask(task: TaskWindow) -> dict[str, Any]:
    return {
        "subtask": task.subtask,
        "level": level(task.blocked),
        "ratio": round(task.blocked, 3),
        "idle_ratio": round(task.idle, 3),
        "busy_ratio": round(task.busy, 3),
    }
