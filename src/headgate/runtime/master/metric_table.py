"""Every counter of `JobResult.metrics`, with its unit and meaning.

`scripts/docs.py` makes `docs/reference/metrics.md` from this table. A test compares the table with a job's counters.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """A counter: its name, its unit or type, and what it counts."""

    name: str
    unit: str
    meaning: str


#: The counters by the key of `JobResult.metrics` that contains them. The key "" has the counters of the job itself.
METRICS: Final[dict[str, tuple[Metric, ...]]] = {
    "": (
        Metric("taskmanagers", "count", "The number of TaskManagers that have reported."),
        Metric(
            "clock_s",
            "list",
            "When each TaskManager read its counters, in seconds on the clock of its machine: one number for each "
            "TaskManager.",
        ),
        Metric("rows_in", "rows", "Rows that sources have read."),
        Metric(
            "rows_out",
            "rows",
            "Rows that sinks have taken. A row that goes to two sinks counts twice. Each row that a running aggregate "
            "emits counts, too.",
        ),
        Metric(
            "late_rows",
            "rows",
            "Rows that windows and joins dropped because they came too late. Rows that go to a "
            "`late_output` with a consumer do not count. When a job drops rows, the driver's log names the bounds that "
            "apply.",
        ),
        Metric("remote_bytes", "bytes", "Bytes received at the data sockets of all TaskManagers, headers included."),
        Metric(
            "bytes_sent_by_sendfile",
            "bytes",
            "Bytes that the kernel sent without a copy from the files of batch mode. The value is 0 under TLS.",
        ),
        Metric("in_flight", "list", "Bytes that are on the way between tasks: one dict for each TaskManager."),
        Metric("machine", "list", "How the machine slowed the processes down: one dict for each TaskManager."),
        Metric("network_memory", "list", "The network buffers: one dict for each TaskManager."),
        Metric(
            "rows_out_before_end",
            "rows or None",
            "Rows that windows had emitted when the last source subtask read its last row. Emissions are logged at "
            "intervals, so the true number may be larger.",
        ),
        Metric("operators", "dict", "Counters of each operator, by its name."),
        Metric(
            "edges",
            "dict",
            "Counters of each exchange, by `operator -> operator`. If an operator reads the same rows twice, the name "
            "of the second exchange ends with the number of its input, such as `(input 2)`.",
        ),
        Metric("tasks", "dict", "Counters of each task, by `chain[subtask]`."),
        Metric(
            "channels",
            "list",
            "Counters of the channels that waited longest in the last second: one dict for each channel. A "
            "TaskManager reports at most 50 channels on which it sends, and at most 50 on which it receives.",
        ),
        Metric(
            "links",
            "list",
            "The connections on which the TaskManagers send: one list of dicts for each TaskManager. All values "
            "except the first three come from Linux (TCP_INFO). On other systems these values are None.",
        ),
        Metric(
            "throttle_signals",
            "count",
            "Signals of the throttle: what TaskManagers sent for it, orders of the driver, and requests to ZooKeeper.",
        ),
        Metric(
            "throttle_batches",
            "list",
            "The last 100 batches of `hg.throttle.SparkPid`: one dict for each. The list is empty with any other "
            "throttle.",
        ),
    ),
    "throttle_batches": (
        Metric("number", "count", "The number of the batch; the first is 0."),
        Metric("rows", "rows", "Rows that all sources have read for the batch."),
        Metric("scheduling_s", "seconds", "How long the batch waited for the batches before it."),
        Metric("processing_s", "seconds", "How long the batch took from its start until all sinks had its rows."),
    ),
    "in_flight": (
        Metric("segments", "bytes", "Bytes in network buffers: written, and not yet read."),
        Metric(
            "pending",
            "bytes",
            "Bytes in writers, outside of network buffers: slices that wait for a full message, and messages that "
            "wait for buffers.",
        ),
        Metric("gathering", "bytes", "Bytes in the memory of readers: the received parts of incomplete messages."),
        Metric("sockets", "bytes", "Bytes in the kernel's socket buffers."),
    ),
    "machine": (
        Metric(
            "clock_s",
            "seconds",
            "The time of these values, on a clock of the TaskManager. They are at most a second older than the report.",
        ),
        Metric(
            "cpu_pressure_s",
            "seconds or None",
            'Time in which some task of the machine waited for a processor ("some" in /proc/pressure). This and the '
            "other values that can be None are None on a system that does not provide them.",
        ),
        Metric("memory_pressure_s", "seconds or None", "Time in which some task of the machine waited for memory."),
        Metric("io_pressure_s", "seconds or None", "Time in which some task of the machine waited for a disk."),
        Metric("throttled_s", "seconds or None", "Time in which the control group had used up its processor quota."),
        Metric("machine_cpu_s", "seconds or None", "Processor time that all programs of the machine used."),
        Metric("cores", "count", "The number of the machine's processors."),
        Metric("affinity", "list or None", "The numbers of the processors on which the process may run."),
        Metric(
            "quotas",
            "list or None",
            "For each control group of the process that has a processor quota: the group's number, and how many "
            "processors its processes may use together.",
        ),
        Metric("pid", "count", "The number of the TaskManager's process. TaskManagers in one process have the same."),
        Metric(
            "pid_namespace",
            "count or None",
            "The number of the namespace in which `pid` counts. Two containers may count their processes each from 1.",
        ),
        Metric("cpu_s", "seconds", "Processor time that the TaskManager's process used."),
        Metric("steal_s", "seconds or None", "Processor time that the hypervisor gave to other machines."),
        Metric("block_delay_s", "seconds or None", "Time in which the process waited for its disk reads."),
        Metric(
            "disk_read_bytes",
            "bytes or None",
            "Bytes that the process read from disks. Reads from the page cache do not count.",
        ),
        Metric(
            "disk_written_bytes",
            "bytes or None",
            "Bytes that the process wrote to disks, or that the kernel will write to disks later.",
        ),
        Metric("collections", "count", "How often Python's garbage collector ran in the process."),
        Metric("collection_s", "seconds", "Time that Python's garbage collector took, on all threads of the process."),
        Metric(
            "lock_wait_s",
            "seconds or None",
            "Time in which a thread that wakes by a timer waited for Python's interpreter lock. Divide the time by "
            "`lock_probes` to get the mean wait of a thread for the lock.",
        ),
        Metric("lock_probes", "count", "The number of waits that `lock_wait_s` adds up."),
    ),
    "network_memory": (
        Metric("segments", "count", "The number of network buffers of the TaskManager."),
        Metric("segment_size", "bytes", "The size of one network buffer."),
        Metric("available", "count", "The number of network buffers that no pool holds."),
        Metric(
            "requested_usage",
            "ratio",
            "The buffers that all outputs and inputs together could use, divided by the buffers that exist. Above 1, "
            "outputs and inputs compete for buffers.",
        ),
    ),
    "operators": (
        Metric("kind", "text", "The kind of the operator: `source`, `operator` or `sink`."),
        Metric("subtasks", "count", "The number of the operator's subtasks: its parallelism."),
        Metric(
            "busy_s",
            "seconds",
            "Time in which the operator's subtasks worked, their functions and their access to keyed state included. "
            "Waits do not count, and neither does the work of operators that follow in the same chain.",
        ),
        Metric(
            "lag_s",
            "seconds or None",
            "How long the next rows of a source have been due, in the subtask with the longest lag. None for "
            "operators, and for sources that read as fast as they can.",
        ),
        Metric(
            "unread",
            "dict or None",
            "How many messages of each Kafka partition the job has not read yet, by `topic[partition]`: the offset of "
            "the partition's end minus the job's position. It is asked for every 2 s. None for operators, and for "
            "other sources.",
        ),
        Metric("batches_in", "batches", "Batches that the operator has taken."),
        Metric("rows_in", "rows", "Rows that the operator has taken."),
        Metric("rows_out", "rows", "Rows that the operator has emitted."),
        Metric("late_rows", "rows", "Rows that the operator dropped because they were late."),
        Metric(
            "lookup_wait_s",
            "seconds",
            "Time in which the operator waited for a function of `lookup`. This time is a part of `busy_s`.",
        ),
        Metric("state_bytes", "bytes", "The size of the keyed state that the operator holds now."),
        Metric("state_keys", "keys", "The number of keys in this state."),
        Metric(
            "watermark",
            "microseconds or None",
            "The lowest of the last watermarks of the operator's subtasks, in microseconds since the epoch. None "
            "while a subtask has sent no watermark, and for sinks. 2^63 - 1 when the input has ended.",
        ),
        Metric(
            "latency",
            "dict",
            "With the option `latency_interval`: the ages of latency markers, by source. `count` is the number of "
            "markers that reached the operator. `p50_s`, `p99_s` and `max_s` are their ages in seconds.",
        ),
    ),
    "edges": (
        Metric(
            "rows_out",
            "rows",
            "Rows that were sent over the exchange, without those that a combiner left out. A row counts once, even if "
            "several channels get it.",
        ),
        Metric("bytes_out", "bytes", "Bytes that were written into network buffers, added up over all channels."),
        Metric("buffers_out", "buffers", "Buffers that consumers have taken. They may be full or not."),
        Metric("queued_bytes", "bytes", "Bytes in the outputs that no consumer has taken yet."),
        Metric("backlog", "buffers", "Buffers with data in the outputs that no consumer has taken yet."),
        Metric("out_pool_usage", "ratio", "`out_pool_usage` as in `tasks`, for the fullest output of the exchange."),
    ),
    "channels": (
        Metric("edge", "text", "The name of the channel's exchange, `operator -> operator`."),
        Metric("producer", "number", "The number of the subtask that sends."),
        Metric("consumer", "number", "The number of the subtask that receives."),
        Metric(
            "credit",
            "buffers or None",
            "The number of buffers that the producer may send now. None for a channel within one TaskManager, which "
            "needs no credit. This value and the next seven come from the producer. They are None if only the "
            "consumer reported the channel.",
        ),
        Metric("credits_granted", "buffers or None", "The total credit that the consumer has granted."),
        Metric("credit_wait_s", "seconds or None", "Time in which data waited because the credit was 0."),
        Metric("backlog", "buffers or None", "Buffers with data that wait at the producer."),
        Metric("queued_bytes", "bytes or None", "Bytes that wait at the producer."),
        Metric("queued_buffers", "buffers or None", "Buffers and events that wait at the producer."),
        Metric("buffers_sent", "buffers or None", "Buffers with data that were sent. Each of them costs one credit."),
        Metric("bytes_sent", "bytes or None", "Bytes of data in the buffers that were sent."),
        Metric(
            "queue",
            "buffers or None",
            "Buffers that the consumer has received and not yet read. This value and the next five come from the "
            "consumer. They are None if only the producer reported the channel, and for a channel within one "
            "TaskManager.",
        ),
        Metric("received_bytes", "bytes or None", "Bytes of data in the buffers of `queue`."),
        Metric("free_exclusive", "buffers or None", "Exclusive buffers of the channel that are ready for data."),
        Metric(
            "free_floating",
            "buffers or None",
            "Floating buffers that the channel holds and that are ready for data.",
        ),
        Metric(
            "unannounced_credit",
            "buffers or None",
            "Free buffers that the consumer has not announced to the producer yet.",
        ),
        Metric(
            "without_buffer_s",
            "seconds or None",
            "Time in which the channel had no free buffer, because all its buffers had data that the consumer had not "
            "read. Without credit: time in which the connection waited for a buffer.",
        ),
    ),
    "links": (
        Metric("peer", "number", "The number of the TaskManager that receives."),
        Metric("number", "number", "The number of the connection among the connections of the sending TaskManager."),
        Metric("bytes_sent", "bytes", "Bytes of buffers and events that the connection carried, without headers."),
        Metric("rtt_s", "seconds or None", "The round-trip time now."),
        Metric("min_rtt_s", "seconds or None", "The shortest round-trip time in the last minutes."),
        Metric("busy_s", "seconds or None", "Time in which data were unsent or not acknowledged."),
        Metric(
            "rwnd_limited_s",
            "seconds or None",
            "Time in which the receiver's window was full, because the receiving process read too slowly.",
        ),
        Metric("sndbuf_limited_s", "seconds or None", "Time in which the sender's buffer in the kernel was too small."),
        Metric("retransmits", "count or None", "The number of packets that were sent again."),
        Metric("delivery_rate", "bytes/s or None", "The latest rate at which data reached the receiver."),
        Metric(
            "app_limited",
            "yes, no or None",
            "Whether the sender had too little to send when the kernel measured `delivery_rate`.",
        ),
    ),
    "tasks": (
        Metric("name", "text", "The name of the task, `chain[subtask]`."),
        Metric(
            "vertex",
            "number",
            "The number of the task's vertex, its chain of operators. Vertices are numbered in topological order.",
        ),
        Metric("subtask", "number", "The number of the task among the tasks of its vertex."),
        Metric("ended", "yes or no", "Whether the task has ended."),
        Metric("idle_s", "seconds", "Time in which the task waited for input."),
        Metric(
            "soft_backpressured_s",
            "seconds",
            "Time in which the task waited for a free buffer before it took the next batch. Checkpoints continue "
            "during this time, but timers wait.",
        ),
        Metric(
            "hard_backpressured_s",
            "seconds",
            "Time in which the task waited in the middle of a batch: for a free buffer, or for the driver to take "
            "rows.",
        ),
        Metric(
            "checkpoint_wait_s",
            "seconds",
            "Time in which the task waited because of a checkpoint. Channels whose barrier had arrived waited for the "
            "barriers of other channels, or the sources were held because the job stops with a checkpoint.",
        ),
        Metric(
            "throttle_wait_s",
            "seconds",
            "Time in which the task waited for its throttle (`hg.throttle`), for example for a fixed rate.",
        ),
        Metric(
            "closed_s",
            "seconds",
            "Time in which the task waited after the end of its input, because its consumers had not processed all of "
            "its output.",
        ),
        Metric(
            "busy_s",
            "seconds",
            "Time in which the task worked: its operators, its input, its output and its snapshots. A wait for the "
            "thread of a bounded source's iterator counts too, and so does `interpreter_wait_s`.",
        ),
        Metric(
            "interpreter_wait_s",
            "seconds",
            "Time in which the task could work, but waited for other tasks of its process. They share one interpreter "
            "lock, so Headgate lets them compute one after the other.",
        ),
        Metric(
            "input_s",
            "seconds",
            "Time in which the task took and deserialised buffers, ran its mail and handled barriers.",
        ),
        Metric("output_s", "seconds", "Time in which the task partitioned and serialised rows for its consumers."),
        Metric("snapshot_s", "seconds", "Time in which the task took its state for checkpoints."),
        Metric(
            "collection_s",
            "seconds",
            "Time in which Python's garbage collector ran on the task's thread. The collector runs on the thread that "
            "makes objects, so this is a part of the task's work. The other tasks of the process wait meanwhile.",
        ),
        Metric(
            "cpu_s",
            "seconds or None",
            "Processor time of the task's thread since the thread started. None on a system that does not provide this "
            "value (macOS).",
        ),
        Metric(
            "run_delay_s",
            "seconds or None",
            "Time in which the task's thread was ready to run but no processor was free. None on a system that does "
            "not provide this value.",
        ),
        Metric(
            "disk_wait_s",
            "seconds or None",
            "Time in which the task's thread waited for a disk or a network file system, by samples. None on a system "
            "that does not provide this value.",
        ),
        Metric(
            "at_lock_s",
            "seconds or None",
            "Time in which the task's thread waited for Python's interpreter lock or held it, by samples. It held the "
            "lock for `cpu_s` + `run_delay_s` - `running_s`: subtract this to get the wait. None on a system that does "
            "not provide this value.",
        ),
        Metric(
            "running_s",
            "seconds or None",
            "Time in which the task's thread used a processor, or was ready to, without the interpreter lock, by "
            "samples. None on a system that does not provide this value.",
        ),
        Metric("segments_in_use", "count", "Network buffers that the task's outputs use."),
        Metric(
            "out_pool_usage",
            "ratio",
            "`segments_in_use`, divided by the number of buffers that the task's outputs may use now. The ratio is "
            "above 1 while the task uses overdraft buffers.",
        ),
        Metric(
            "in_pool_usage",
            "ratio",
            "Buffers that are received and not yet read, divided by the number of buffers that the task's inputs may "
            "use. Exclusive and floating buffers count.",
        ),
        Metric("input_exclusive_usage", "ratio", "The same ratio for exclusive buffers only."),
        Metric(
            "input_floating_usage",
            "ratio",
            "The same ratio for floating buffers only. Without credit all buffers count as floating.",
        ),
        Metric(
            "input_queue",
            "buffers",
            "Buffers that wait for the task. Received buffers count, and so do the buffers in the outputs of "
            "producers in the same TaskManager.",
        ),
        Metric("gathering_bytes", "bytes", "Bytes of incomplete messages, in memory."),
        Metric("gathering_file_bytes", "bytes", "Bytes of incomplete messages, in files."),
        Metric("messages_spilled", "count", "Messages that were collected in a file."),
        Metric(
            "alignment_spilled_bytes",
            "bytes",
            "Bytes that were written to disk while a barrier blocked their channel. Only without credit.",
        ),
        Metric(
            "debloated_buffer_size",
            "bytes",
            "With the option `debloat`: the buffer size that the task asks its producers for.",
        ),
        Metric(
            "time_to_consume_s",
            "seconds",
            "With the option `debloat`: how long the task needs to process the data that are on the way to it.",
        ),
        Metric("rows_dropped", "rows", "Rows that a full input queue dropped. Only with `hg.throttle.Shed`."),
        Metric(
            "reader_stops",
            "count",
            "How often the task's input had no buffer, so that a connection was not read. 0 with `credit` and "
            "`unbounded`.",
        ),
    ),
}  # fmt: skip
