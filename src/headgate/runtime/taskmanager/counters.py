"""Reads the counters of a TaskManager's tasks as plain values, for the driver, which adds them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.exchange.pool_usage import exclusive_usage, floating_usage, output_usage
from headgate.memory.network_pool import NetworkBufferPool
from headgate.operators.operator import Operator
from headgate.runtime.task.heads import SourceHead
from headgate.runtime.task.sink_operator import SinkOperator
from headgate.runtime.task.task_builder import BuiltTask
from headgate.runtime.task.task_exchanges import BuiltOutput
from headgate.runtime.task.thread_clock import ThreadClock
from headgate.runtime.task.time_account import SNAPSHOT, TASK, WRITE, Wait

Counters = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """Bytes in a TaskManager's data links: in segments that the links send now, and in the kernel's socket buffers."""

    writing: int
    kernel: int


def snapshot(
    tasks: Sequence[BuiltTask],
    pool: NetworkBufferPool,
    *,
    remote_bytes: int,
    sendfile_bytes: int,
    throttle_signals: int,
    link_bytes: LinkBytes,
    host: str,
    clock: float,
    machine: Counters,
    channels: Counters,
    links: Sequence[Counters],
    collected: Callable[[ThreadClock], float],
) -> Counters:
    """Return one TaskManager's current counters. Bytes and seconds count from the start of the attempt.

    The rows of operators count from the job's start. `restored` has those of earlier attempts, by counter.

    `clock` is the current time of the tasks' monotonic clock, in seconds. `collected` returns the seconds in which the
    garbage collector ran on a thread.
    """
    operators: list[Counters] = []
    rows: list[Counters] = []
    edges = [_edge(output, built.subtask) for built in tasks for output in built.outputs]
    for built in tasks:
        seconds = built.task.times.seconds()
        operators += [_operator(built, node.id, seconds) for node in built.vertex.nodes]
        rows.append(_task(built, seconds, collected(built.task.thread)))
    return {
        "clock_s": clock,
        "host": host,
        "operators": operators,
        "edges": edges,
        "channels": channels,
        "links": links,
        "tasks": rows,
        "remote_bytes": remote_bytes,
        "bytes_sent_by_sendfile": sendfile_bytes,
        "throttle_signals": throttle_signals,
        "in_flight": _in_flight(tasks, sum(edge["queued_bytes"] for edge in edges), link_bytes),
        "machine": machine,
        "network_memory": {
            "segments": pool.total_segments,
            "segment_size": pool.segment_size,
            "available": pool.free_segments,
            "requested_usage": pool.requested_usage,
        },
    }


def _edge(output: BuiltOutput, producer: int) -> Counters:
    partition = output.writer.partition
    return {
        "name": output.name,
        "producer": producer,
        "rows_out": output.writer.rows_out,
        "bytes_out": partition.bytes_out,
        "buffers_out": sum(subpartition.buffers_sent for subpartition in partition.subpartitions),
        "out_pool_usage": output_usage([partition.pool]).ratio,
        "queued_bytes": partition.queued_bytes,
        "backlog": partition.backlog,
    }


def _in_flight(tasks: Sequence[BuiltTask], queued: int, link_bytes: LinkBytes) -> dict[str, int]:
    """Return the bytes in flight by the place where they are. `queued` is the number of bytes that wait in outputs."""
    received = sum(channel.queued_bytes for built in tasks for channel in built.channels)
    return {
        "segments": queued + received + link_bytes.writing,
        "pending": sum(writer.pending_bytes for built in tasks for writer in built.task.writers),
        "gathering": sum(built.gathering.memory_bytes for built in tasks if built.gathering is not None),
        "sockets": link_bytes.kernel,
    }


def _operator(built: BuiltTask, node_id: int, seconds: Sequence[float]) -> Counters:
    node = next(node for node in built.vertex.nodes if node.id == node_id)
    instance = built.nodes[node_id]
    place: Counters = {"node": node_id, "name": node.name, "subtask": built.subtask}
    if isinstance(instance, SourceHead):
        split, split_has_rows = instance.split_now()
        return {
            **place,
            "kind": "source",
            "busy_s": seconds[instance.bucket] + seconds[Wait.READER],
            "rows_in": instance.rows,
            "rows_out": instance.rows,
            "restored": dict.fromkeys(("rows_in", "rows_out"), instance.restored_rows),
            "batches_in": instance.batches,
            "lag_s": instance.lag,
            "unread": instance.unread,
            "watermark": instance.output.watermark,
            "is_idle": instance.is_idle,
            "split": split,
            "split_has_rows": split_has_rows,
            "split_silent_s": instance.split_silence,
            "ended_at": instance.ended_at,
        }
    entry = next(entry for entry in built.task.operators if entry.operator is instance)
    counts: Counters = {
        "kind": "sink" if node.sink is not None else "operator",
        "busy_s": seconds[entry.bucket],
        "rows_in": instance.rows_in,
        "rows_out": instance.rows_out,
        "batches_in": entry.batches,
        "late_rows": instance.late_rows,
        "restored": entry.restored,
        "lookup_wait_s": instance.lookup_wait_s,
        "state_bytes": instance.state_bytes(),
        "state_keys": instance.state_keys(),
        "watermark": _watermark(instance),
        "latency_s": entry.latency_s,
        "latency": [[source, histogram.points()] for source, histogram in entry.latency.items()],
    }
    if instance.emissions is not None:
        counts["emissions"] = instance.emissions.points()
    return {**place, **counts}


def _watermark(instance: Operator) -> int | None:
    """Return the last watermark that left the operator, None for a sink."""
    return None if isinstance(instance, SinkOperator) else getattr(instance.output, "watermark", None)


def _task(built: BuiltTask, seconds: Sequence[float], collection: float) -> Counters:
    task = built.task
    debloated: Counters = {}
    if built.debloating is not None:
        debloated["debloated_buffer_size"] = built.debloating.buffer_size
        debloated["time_to_consume_s"] = built.debloating.time_to_consume
    return {
        **debloated,
        **_pool_usage(built),
        "name": task.name,
        "vertex": built.vertex.id,
        "subtask": built.subtask,
        "ended": task.has_ended,
        "idle_s": seconds[Wait.INPUT],
        "soft_backpressured_s": seconds[Wait.OUTPUT_SOFT],
        "hard_backpressured_s": seconds[Wait.OUTPUT_HARD],
        "checkpoint_wait_s": seconds[Wait.CHECKPOINT],
        "throttle_wait_s": seconds[Wait.THROTTLED],
        "closed_s": seconds[Wait.CLOSED],
        "busy_s": sum(seconds[TASK:]) + seconds[Wait.READER] + seconds[Wait.INTERPRETER],
        "interpreter_wait_s": seconds[Wait.INTERPRETER],
        "input_s": seconds[TASK],
        "output_s": seconds[WRITE],
        "snapshot_s": seconds[SNAPSHOT],
        "collection_s": collection,
        "cpu_s": task.thread.cpu(),
        "run_delay_s": task.thread.run_delay(),
        "disk_wait_s": task.thread.disk_wait,
        "at_lock_s": task.thread.at_lock,
        "running_s": task.thread.running,
        "segments_in_use": sum(partition.pool.in_use for partition in built.partitions),
        "input_queue": sum(channel.queue_length for channel in built.channels),
        "gathering_bytes": built.gathering.memory_bytes if built.gathering is not None else 0,
        "gathering_file_bytes": built.gathering.file_bytes if built.gathering is not None else 0,
        "messages_spilled": built.gathering.messages_spilled if built.gathering is not None else 0,
        "rows_dropped": built.input.rows_dropped if built.input is not None else 0,
        "reader_stops": sum(channel.reader_stops for channel in built.channels),
        "alignment_spilled_bytes": sum(channel.bytes_spilled for channel in built.channels),
    }


def _pool_usage(built: BuiltTask) -> Counters:
    pools = [pool for gate in built.gates for pool in gate.pools]
    floating, exclusive = floating_usage(pools, built.channels), exclusive_usage(built.channels)
    return {
        "out_pool_usage": output_usage(partition.pool for partition in built.partitions).ratio,
        "in_pool_usage": (floating + exclusive).ratio,
        "input_floating_usage": floating.ratio,
        "input_exclusive_usage": exclusive.ratio,
    }
