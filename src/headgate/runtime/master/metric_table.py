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
        Metric("machine", "list", "What the machine took from the job, one dict for each TaskManager."),
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
        Metric(
            "channels",
            "list",
            "Counters of the channels that waited longest in the last second, one dict for each. A TaskManager reports "
            "at most 50 that it sends on, and 50 that it receives on.",
        ),
        Metric(
            "links",
            "list",
            "The connections on which the TaskManagers send, one list of dicts for each TaskManager. Their values, but "
            "for the first three, are what Linux says of a TCP connection (TCP_INFO). They are None elsewhere.",
        ),
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
    "machine": (
        Metric(
            "cpu_pressure_s",
            "seconds or None",
            "Some task of the machine waited for a processor (/proc/pressure). All values of `machine` are None where "
            "the machine does not say.",
        ),
        Metric("memory_pressure_s", "seconds or None", "Some task of the machine waited for memory."),
        Metric("io_pressure_s", "seconds or None", "Some task of the machine waited for a disk."),
        Metric("throttled_s", "seconds or None", "The control group had used up its processor quota."),
        Metric("machine_cpu_s", "seconds or None", "All programs of the machine used its processors."),
        Metric("cores", "count", "Processors of the machine."),
        Metric("cpu_s", "seconds", "The process used processors."),
        Metric("steal_s", "seconds or None", "The hypervisor gave the machine's processors to other machines."),
        Metric("block_delay_s", "seconds or None", "The process waited for its disk reads."),
        Metric("disk_read_bytes", "bytes or None", "The process read from disks."),
        Metric("disk_written_bytes", "bytes or None", "The process wrote, to be stored on disks."),
        Metric("collections", "count", "Runs of Python's garbage collector in the process."),
        Metric("collection_s", "seconds", "They took."),
        Metric(
            "lock_wait_s",
            "seconds or None",
            "A thread that wakes by a timer waited for Python's interpreter lock, over `lock_probes` wake-ups. Their "
            "quotient is how long a thread of the process waits for the lock each time.",
        ),
        Metric("lock_probes", "count", "Wake-ups that were measured."),
    ),
    "network_memory": (
        Metric("segments", "count", "Network buffers of the TaskManager."),
        Metric("segment_size", "bytes", "What each of them holds."),
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
        Metric(
            "busy_s",
            "seconds",
            "Its subtasks worked, their functions included. What the operators behind it in the chain did, and waits, "
            "are left out.",
        ),
        Metric(
            "lag_s",
            "seconds or None",
            "How long the next rows of a source have been due, in its latest subtask. None for operators, and for "
            "sources that read as fast as they can.",
        ),
        Metric("batches_in", "batches", "Batches that it has taken."),
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
        Metric("buffers_out", "buffers", "Buffers that consumers have taken, full or not."),
        Metric("queued_bytes", "bytes", "Bytes in its outputs that no consumer has taken."),
        Metric("backlog", "buffers", "Buffers with data in its outputs that no consumer has taken."),
        Metric("out_pool_usage", "ratio", "As in `tasks`, of its fullest output."),
    ),
    "channels": (
        Metric("edge", "text", "The name of its exchange, `operator -> operator`."),
        Metric("producer", "number", "The subtask that sends."),
        Metric("consumer", "number", "The subtask that receives."),
        Metric(
            "credit",
            "buffers or None",
            "What the producer may send now. None within one TaskManager, where there is no credit. This and the next "
            "eight values are the producer's; None if only the consumer reported the channel.",
        ),
        Metric("credits_granted", "buffers or None", "What the consumer has granted in all."),
        Metric("credit_wait_s", "seconds or None", "Data waited because the credit was 0."),
        Metric("backlog", "buffers or None", "Data that wait at the producer."),
        Metric("queued_bytes", "bytes or None", "The same."),
        Metric("queued_buffers", "buffers or None", "The same, events included."),
        Metric("buffers_sent", "buffers or None", "Buffers with data that were sent. Each costs one credit."),
        Metric("bytes_sent", "bytes or None", "Their content."),
        Metric(
            "queue",
            "buffers or None",
            "Buffers that the consumer has received and not read. This and the next five values are the consumer's; "
            "None if only the producer reported the channel, and within one TaskManager.",
        ),
        Metric("received_bytes", "bytes or None", "Their content."),
        Metric("free_exclusive", "buffers or None", "Its own buffers that are ready for data."),
        Metric("free_floating", "buffers or None", "Shared buffers that it holds ready for data."),
        Metric("unannounced_credit", "buffers or None", "Free buffers that the producer does not know of yet."),
        Metric(
            "without_buffer_s",
            "seconds or None",
            "The channel had no free buffer: all had data that the consumer had not read. Without credit: its "
            "connection waited for a buffer.",
        ),
    ),
    "links": (
        Metric("peer", "number", "The TaskManager that receives."),
        Metric("number", "number", "The number of the connection among those of the TaskManager."),
        Metric("bytes_sent", "bytes", "Content of buffers and events that it carried."),
        Metric("rtt_s", "seconds or None", "Its round trip now."),
        Metric("min_rtt_s", "seconds or None", "Its least round trip in the last minutes."),
        Metric("busy_s", "seconds or None", "Data were unsent, or not acknowledged."),
        Metric("rwnd_limited_s", "seconds or None", "The receiver's window was full: its process read too slowly."),
        Metric("sndbuf_limited_s", "seconds or None", "The sender's buffer in the kernel was too small."),
        Metric("retransmits", "count or None", "Packets that were sent again."),
        Metric("delivery_rate", "bytes/s or None", "The rate at which data reached the receiver lately."),
        Metric("app_limited", "yes, no or None", "Whether the sender had no more to send when that was measured."),
    ),
    "tasks": (
        Metric("name", "text", "The task's name again."),
        Metric("vertex", "number", "The number of its vertex, its chain of operators, in topological order."),
        Metric("subtask", "number", "Its number among the tasks of its vertex."),
        Metric("ended", "yes or no", "Whether it has ended."),
        Metric("idle_s", "seconds", "It waited for input."),
        Metric(
            "soft_backpressured_s",
            "seconds",
            "It waited for a free buffer before it took the next batch. Checkpoints and timers ran meanwhile.",
        ),
        Metric(
            "hard_backpressured_s",
            "seconds",
            "It waited within one batch: for a free buffer, or for the driver to take rows.",
        ),
        Metric(
            "checkpoint_wait_s",
            "seconds",
            "It waited because of a checkpoint: channels whose barrier had come waited for those of the others, or the "
            "sources were held because the job stops with a checkpoint.",
        ),
        Metric("closed_s", "seconds", "Its input had ended, and its consumers had not processed all of its output."),
        Metric("busy_s", "seconds", "It worked: all its operators, its input, its output and its snapshots."),
        Metric("input_s", "seconds", "It took buffers, deserialised them, and ran its mail and its barriers."),
        Metric("output_s", "seconds", "It partitioned and serialised rows for its consumers."),
        Metric("snapshot_s", "seconds", "It took its state for checkpoints."),
        Metric(
            "cpu_s",
            "seconds or None",
            "Processor time of its thread, from the thread's start. None where the machine does not say (macOS).",
        ),
        Metric(
            "run_delay_s",
            "seconds or None",
            "Its thread could have run, and no processor was free. None where the machine does not say.",
        ),
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
        Metric(
            "input_queue",
            "buffers",
            "Buffers that wait for the task: received ones, and those of tasks in the same TaskManager.",
        ),
        Metric("gathering_bytes", "bytes", "Of incomplete messages, in memory."),
        Metric("gathering_file_bytes", "bytes", "Of incomplete messages, in files."),
        Metric("messages_spilled", "count", "Messages that were gathered in a file."),
        Metric(
            "alignment_spilled_bytes",
            "bytes",
            "Read to disk while a barrier blocked a channel. Only without credit.",
        ),
        Metric(
            "reader_stops",
            "count",
            "How often its input had no buffer, so that a connection was not read. 0 with `credit` and `unbounded`.",
        ),
        Metric("debloated_buffer_size", "bytes", "With `debloat`: the buffer size that it asks for."),
        Metric("time_to_consume_s", "seconds", "With `debloat`: how long it needs for what is in flight to it."),
    ),
}  # fmt: skip
