"""Every counter of `JobResult.metrics`, with its unit and meaning. `docs/reference/metrics.md` is made from this table;
a test compares it with the counters of a job."""

from __future__ import annotations

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """A counter: its name, its unit or type, and what it counts."""

    name: str
    unit: str
    meaning: str


#: By the place of the counters: a job's own, and those below one of its keys.
METRICS: Final[dict[str, tuple[Metric, ...]]] = {
    "": (
        Metric("taskmanagers", "count", "TaskManagers that have reported."),
        Metric("rows_in", "rows", "Rows that sources have read."),
        Metric(
            "rows_out",
            "rows",
            "Rows that sinks have taken. A row that goes to two sinks counts twice. So does each row that a running "
            "aggregate emits on its way.",
        ),
        Metric(
            "late_rows",
            "rows",
            "Rows that windows dropped because all their windows were gone. Rows that go to a `late_output` that is "
            "read are not counted. The driver's log names the bounds when a job drops rows.",
        ),
        Metric("remote_bytes", "bytes", "Bytes received at the data sockets of all TaskManagers, with headers."),
        Metric(
            "bytes_sent_by_sendfile",
            "bytes",
            "Bytes that the kernel sent from files of batch mode without a copy. 0 under TLS.",
        ),
        Metric("in_flight", "list", "Bytes between tasks, one dict for each TaskManager."),
        Metric("network_memory", "list", "Network buffers, one dict for each TaskManager."),
        Metric(
            "rows_out_before_end",
            "rows or None",
            "Rows that windows had emitted when the last source subtask read its last row. Emissions are logged at "
            "intervals, so the true number is at least this.",
        ),
        Metric("operators", "dict", "Counters of each operator, by its name."),
        Metric("edges", "dict", "Counters of each exchange, by `operator -> operator`."),
        Metric("tasks", "dict", "Counters of each task, by `chain[subtask]`."),
    ),
    "in_flight": (
        Metric("segments", "bytes", "In network buffers: written and not yet read."),
        Metric(
            "pending",
            "bytes",
            "In writers, outside of buffers: slices that wait for a full message, and messages that wait for buffers.",
        ),
        Metric("gathering", "bytes", "In readers: the parts of a message that is not complete, in memory."),
        Metric("sockets", "bytes", "In the kernel's socket buffers."),
    ),
    "network_memory": (
        Metric("segments", "count", "Network buffers of the TaskManager."),
        Metric("available", "count", "Those that no pool holds."),
        Metric(
            "requested_usage",
            "ratio",
            "What all outputs and inputs could use, over what there is. Above 1 they compete.",
        ),
    ),
    "operators": (
        Metric("kind", "text", "`source`, `operator` or `sink`."),
        Metric("subtasks", "count", "Its parallelism."),
        Metric("rows_in", "rows", "Rows that it has taken."),
        Metric("rows_out", "rows", "Rows that it has emitted."),
        Metric("late_rows", "rows", "Rows that it dropped as late."),
        Metric("state_bytes", "bytes", "Keyed state that it holds now."),
        Metric("state_keys", "keys", "How many keys that state is of."),
        Metric(
            "watermark",
            "microseconds or None",
            "The least of its subtasks' last watermarks, since the epoch. None while a subtask has sent none, and for "
            "sinks. 2^63 - 1 when the input has ended.",
        ),
        Metric(
            "latency",
            "dict",
            "With `latency_interval`, by source: `count` of the markers that reached the operator, and `p50_s`, "
            "`p99_s` and `max_s` of their ages in seconds.",
        ),
    ),
    "edges": (
        Metric("rows_out", "rows", "Rows that left by the exchange, once, however many channels get them."),
        Metric("bytes_out", "bytes", "Bytes written into buffers, for each channel."),
    ),
    "tasks": (
        Metric("name", "text", "The task's name again."),
        Metric("idle_s", "seconds", "It waited for input."),
        Metric(
            "soft_backpressured_s",
            "seconds",
            "It waited for a free buffer before it took the next batch. Checkpoints and timers ran meanwhile.",
        ),
        Metric("hard_backpressured_s", "seconds", "It waited for a free buffer within one batch."),
        Metric("segments_in_use", "count", "Buffers that its outputs hold."),
        Metric(
            "out_pool_usage",
            "ratio",
            "`segments_in_use` over what its outputs may have now. Above 1 while it uses overdraft buffers.",
        ),
        Metric(
            "in_pool_usage",
            "ratio",
            "Received and unread buffers over what its inputs may have, exclusive and floating together.",
        ),
        Metric("input_exclusive_usage", "ratio", "The same of the exclusive buffers alone."),
        Metric(
            "input_floating_usage",
            "ratio",
            "The same of the floating buffers alone. Without credit all buffers count as floating. So does what a task "
            "of the same TaskManager sent.",
        ),
        Metric("input_queue", "buffers", "Buffers received and not yet read."),
        Metric("gathering_bytes", "bytes", "Of incomplete messages, in memory."),
        Metric("gathering_file_bytes", "bytes", "Of incomplete messages, in files."),
        Metric("messages_spilled", "count", "Messages that were gathered in a file."),
        Metric(
            "alignment_spilled_bytes",
            "bytes",
            "Read to disk while a barrier blocked a channel. Only without credit.",
        ),
        Metric("debloated_buffer_size", "bytes", "With `debloat`: the buffer size that it asks for."),
        Metric("time_to_consume_s", "seconds", "With `debloat`: how long it needs for what is in flight to it."),
    ),
}  # fmt: skip
