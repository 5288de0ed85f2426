"""Counters of tasks as plain values: taken by a TaskManager, added up by the driver. Nothing here changes what it
reads."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.exchange.pool_usage import exclusive_usage, floating_usage, output_usage
from headgate.memory.network_pool import NetworkBufferPool
from headgate.operators.base import MIN_TIME, Operator
from headgate.operators.window import WindowAggregate
from headgate.runtime.builder import BuiltTask
from headgate.runtime.latency import LatencyHistogram, summary
from headgate.runtime.sink import SinkOperator
from headgate.runtime.task import SourceHead
from headgate.runtime.time_account import Wait

Metrics = dict[str, Any]
#: Counters of an operator that are the sum of those of its subtasks.
_ADDED_UP: Final = ("rows_in", "rows_out", "late_rows", "state_bytes", "state_keys")


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """Bytes in the data links of a TaskManager: in segments that are being written, and in the kernel's buffers."""

    writing: int
    kernel: int


def snapshot(
    tasks: Sequence[BuiltTask],
    pool: NetworkBufferPool,
    *,
    remote_bytes: int,
    sendfile_bytes: int,
    link_bytes: LinkBytes,
) -> Metrics:
    """One TaskManager's counters now: bytes, seconds and rows, all counted from the job's start."""
    operators = [_operator(built, node.id) for built in tasks for node in built.vertex.nodes]
    return {
        "operators": operators,
        "edges": [
            {"name": name, "rows_out": writer.rows_out, "bytes_out": writer.partition.bytes_out}
            for built in tasks
            for name, writer in built.writers
        ],
        "tasks": [_task(built) for built in tasks],
        "remote_bytes": remote_bytes,
        "bytes_sent_by_sendfile": sendfile_bytes,
        "in_flight": _in_flight(tasks, link_bytes),
        "network_memory": {
            "segments": pool.total_segments,
            "available": pool.free_segments,
            "requested_usage": pool.requested_usage,
        },
    }


def _in_flight(tasks: Sequence[BuiltTask], link_bytes: LinkBytes) -> dict[str, int]:
    """Bytes under way, by the place where they are."""
    queued = sum(subpartition.queued_bytes for built in tasks for partition in built.partitions
                 for subpartition in partition.subpartitions)  # fmt: skip
    received = sum(channel.queued_bytes for built in tasks for channel in built.channels)
    return {
        "segments": queued + received + link_bytes.writing,
        "pending": sum(writer.pending_bytes for built in tasks for writer in built.task.writers),
        "gathering": sum(built.gathering.memory_bytes for built in tasks if built.gathering is not None),
        "sockets": link_bytes.kernel,
    }


def _operator(built: BuiltTask, node_id: int) -> Metrics:
    node = next(node for node in built.vertex.nodes if node.id == node_id)
    instance = built.nodes[node_id]
    place: Metrics = {"node": node_id, "name": node.name, "subtask": built.subtask}
    if isinstance(instance, SourceHead):
        return {
            **place,
            "kind": "source",
            "rows_in": instance.rows,
            "rows_out": instance.rows,
            "watermark": instance.output.watermark,
            "is_idle": instance.is_idle,
            "split": instance.split,
            "ended_at": instance.ended_at,
        }
    counts: Metrics = {
        "kind": "sink" if node.sink is not None else "operator",
        "rows_in": instance.rows_in,
        "rows_out": instance.rows_out,
        "late_rows": instance.late_rows,
        "state_bytes": instance.state_bytes(),
        "state_keys": instance.state_keys(),
        "watermark": _watermark(instance),
        "latency": [[source, histogram.points()] for source, histogram in _latency(built, instance).items()],
    }
    if isinstance(instance, WindowAggregate):
        counts["emissions"] = instance.emissions.points()
    return {**place, **counts}


def _watermark(instance: Operator) -> int | None:
    """The last watermark that left the operator; a sink passes none on."""
    return None if isinstance(instance, SinkOperator) else getattr(instance.output, "watermark", None)


def _latency(built: BuiltTask, instance: Operator) -> dict[int, LatencyHistogram]:
    return next(entry.latency for entry in built.task.operators if entry.operator is instance)


def _task(built: BuiltTask) -> Metrics:
    task = built.task
    debloated: Metrics = {}
    if built.debloating is not None:
        debloated["debloated_buffer_size"] = built.debloating.buffer_size
        debloated["time_to_consume_s"] = built.debloating.time_to_consume
    return {
        **debloated,
        **_pool_usage(built),
        "name": task.name,
        "idle_s": task.times.seconds(Wait.IDLE),
        "soft_backpressured_s": task.times.seconds(Wait.SOFT),
        "hard_backpressured_s": task.times.seconds(Wait.HARD),
        "segments_in_use": sum(partition.pool.in_use for partition in built.partitions),
        "input_queue": sum(channel.queue_length for channel in built.channels),
        "gathering_bytes": built.gathering.memory_bytes if built.gathering is not None else 0,
        "gathering_file_bytes": built.gathering.file_bytes if built.gathering is not None else 0,
        "messages_spilled": built.gathering.messages_spilled if built.gathering is not None else 0,
        "alignment_spilled_bytes": sum(channel.bytes_spilled for channel in built.channels),
    }


def _pool_usage(built: BuiltTask) -> Metrics:
    floating, exclusive = floating_usage(built.floating_pools, built.channels), exclusive_usage(built.channels)
    return {
        "out_pool_usage": output_usage(partition.pool for partition in built.partitions).ratio,
        "in_pool_usage": (floating + exclusive).ratio,
        "input_floating_usage": floating.ratio,
        "input_exclusive_usage": exclusive.ratio,
    }


def merge(snapshots: Sequence[Metrics]) -> Metrics:
    """The job's counters from its TaskManagers': operators by name, subtasks added up."""
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
        total["watermark"] = _least_watermark([row["watermark"] for row in rows if row["name"] == name])
    for name, latency in _latencies(rows).items():
        operators[name]["latency"] = latency
    return {
        "operators": operators,
        "edges": _edges(snapshots),
        "tasks": {task["name"]: task for each in snapshots for task in each["tasks"]},
        "taskmanagers": len(snapshots),
        "rows_in": sum(row["rows_in"] for row in rows if row["kind"] == "source"),
        "rows_out": sum(row["rows_in"] for row in rows if row["kind"] == "sink"),
        "late_rows": sum(row.get("late_rows", 0) for row in rows),
        "remote_bytes": sum(each["remote_bytes"] for each in snapshots),
        "bytes_sent_by_sendfile": sum(each["bytes_sent_by_sendfile"] for each in snapshots),
        "in_flight": [each["in_flight"] for each in snapshots],
        "network_memory": [each["network_memory"] for each in snapshots],
        "rows_out_before_end": _before_end(rows),
    }


def _edges(snapshots: Sequence[Metrics]) -> dict[str, Metrics]:
    edges: dict[str, Metrics] = {}
    for edge in (edge for each in snapshots for edge in each["edges"]):
        total = edges.setdefault(edge["name"], {"rows_out": 0, "bytes_out": 0})
        total["rows_out"] += edge["rows_out"]
        total["bytes_out"] += edge["bytes_out"]
    return edges


def _least_watermark(watermarks: Sequence[int | None]) -> int | None:
    """How far all subtasks have come; None while one of them has sent no watermark."""
    known = [watermark for watermark in watermarks if watermark is not None and watermark > MIN_TIME]
    return min(known) if len(known) == len(watermarks) else None


def _latencies(rows: Sequence[Metrics]) -> dict[str, Metrics]:
    """By operator and source, what the markers that reached the operator's subtasks say; nothing where none did."""
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
    """Rows that window operators had emitted when the last source subtask read its last row; None before that, or
    without windows. Emissions are logged at intervals, so this is what had been emitted at least."""
    ends = [row["ended_at"] for row in rows if row["kind"] == "source"]
    logs = [row["emissions"] for row in rows if "emissions" in row]
    if not logs or not ends or any(end is None for end in ends):
        return None
    return sum(_total_at(log, max(ends)) for log in logs)


def _total_at(log: Sequence[Sequence[float]], time: float) -> int:
    at = bisect.bisect_right(log, time, key=lambda point: point[0])
    return int(log[at - 1][1]) if at else 0
