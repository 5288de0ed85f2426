"""Adds up the counters of a job's TaskManagers."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final

from headgate.observe.channel_columns import channels_of
from headgate.operators.operator import MIN_TIME
from headgate.runtime.latency_markers import summary

Metrics = dict[str, Any]
#: The counters of an operator that are sums over its subtasks.
_ADDED_UP: Final = (
    "busy_s",
    "batches_in",
    "rows_in",
    "rows_out",
    "late_rows",
    "lookup_wait_s",
    "state_bytes",
    "state_keys",
)

#: The counters of an exchange that are sums over its producers.
_ADDED_UP_EDGES: Final = ("rows_out", "bytes_out", "buffers_out", "queued_bytes", "backlog")


def merge(snapshots: Sequence[Metrics]) -> Metrics:
    """Return the job's counters from its TaskManagers' counters. An operator's counters are sums over its subtasks."""
    rows = [row for each in snapshots for row in each["operators"]]
    operators: dict[str, Metrics] = {}
    for row in rows:
        total = operators.setdefault(
            row["name"],
            {"kind": row["kind"], "subtasks": 0, **dict.fromkeys(_ADDED_UP, 0)},
        )
        total["subtasks"] += 1
        for counter in _ADDED_UP:
            total[counter] += row.get(counter, 0)
    for name, total in operators.items():
        total["lag_s"] = max(
            (row["lag_s"] for row in rows if row["name"] == name and row.get("lag_s") is not None), default=None
        )
        total["unread"] = _unread([row.get("unread") for row in rows if row["name"] == name])
        total["watermark"] = _least_watermark([row["watermark"] for row in rows if row["name"] == name])
    for name, latency in _latencies(rows).items():
        operators[name]["latency"] = latency
    return {
        "operators": operators,
        "edges": _edges(snapshots),
        "channels": list(channels_of(snapshots).values()),
        "links": [each["links"] for each in snapshots],
        "tasks": {task["name"]: task for each in snapshots for task in each["tasks"]},
        "taskmanagers": len(snapshots),
        "clock_s": [each["clock_s"] for each in snapshots],
        "rows_in": sum(row["rows_in"] for row in rows if row["kind"] == "source"),
        "rows_out": sum(row["rows_in"] for row in rows if row["kind"] == "sink"),
        "late_rows": sum(row.get("late_rows", 0) for row in rows),
        "remote_bytes": sum(each["remote_bytes"] for each in snapshots),
        "bytes_sent_by_sendfile": sum(each["bytes_sent_by_sendfile"] for each in snapshots),
        "throttle_signals": sum(each["throttle_signals"] for each in snapshots),
        "in_flight": [each["in_flight"] for each in snapshots],
        "machine": [each["machine"] for each in snapshots],
        "network_memory": [each["network_memory"] for each in snapshots],
        "rows_out_before_end": _before_end(rows),
    }


def _edges(snapshots: Sequence[Metrics]) -> dict[str, Metrics]:
    edges: dict[str, Metrics] = {}
    for edge in (edge for each in snapshots for edge in each["edges"]):
        total = edges.setdefault(edge["name"], {**dict.fromkeys(_ADDED_UP_EDGES, 0), "out_pool_usage": 0.0})
        for counter in _ADDED_UP_EDGES:
            total[counter] += edge[counter]
        total["out_pool_usage"] = max(total["out_pool_usage"], edge["out_pool_usage"])
    return edges


def _unread(splits: Sequence[dict[str, int] | None]) -> dict[str, int] | None:
    """Return the number of unread messages by split, for all subtasks; None if no subtask knows it."""
    known = [each for each in splits if each is not None]
    return {split: count for each in known for split, count in each.items()} if known else None


def _least_watermark(watermarks: Sequence[int | None]) -> int | None:
    """Return the least watermark, or None while a subtask has sent no watermark."""
    known = [watermark for watermark in watermarks if watermark is not None and watermark > MIN_TIME]
    return min(known) if len(known) == len(watermarks) else None


def _latencies(rows: Sequence[Metrics]) -> dict[str, Metrics]:
    """Return a latency summary by operator and source, from the markers that reached the operator's subtasks."""
    sources = {row["node"]: row["name"] for row in rows}
    histograms: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        for source, points in row.get("latency", ()):
            histograms.setdefault((row["name"], sources[source]), []).append(points)
    latencies: dict[str, Metrics] = {}
    for (name, source), points in histograms.items():
        latencies.setdefault(name, {})[source] = summary(points)
    return latencies


def _before_end(rows: Sequence[Metrics]) -> int | None:
    """Return the number of rows that operators with an emission log had emitted when the input ended.

    The input ends when the last source subtask reads its last row. Returns None before that time, and for a job without
    such operators (windows). Emissions are logged at intervals, so the true number may be larger.
    """
    ends = [row["ended_at"] for row in rows if row["kind"] == "source"]
    logs = [row["emissions"] for row in rows if "emissions" in row]
    if not logs or not ends or any(end is None for end in ends):
        return None
    return sum(_total_at(log, max(ends)) for log in logs)


def _total_at(log: Sequence[Sequence[float]], time: float) -> int:
    at = bisect.bisect_right(log, time, key=lambda point: point[0])
    return int(log[at - 1][1]) if at else 0
