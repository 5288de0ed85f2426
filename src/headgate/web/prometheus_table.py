"""The metrics for Prometheus: their names, their meanings, and which counter of a report has their value.

Names follow Prometheus: base units, `_total` for counters, shares between 0 and 1. No metric has a label for a channel
or a key, and only a Kafka source has one for a split. `docs/reference/metrics.md` has this table.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Exported(NamedTuple):
    """A metric: its name without `headgate_`, the counter that has its value, and its meaning."""

    name: str
    counter: str
    meaning: str
    is_total: bool = False


def _total(name: str, counter: str, meaning: str) -> Exported:
    return Exported(name, counter, meaning, is_total=True)


#: The labels of the metrics of a job. `attempt` grows with each restart, because a restart sets the counters to 0. The
#: metrics of a whole job (`job_...`) do not have this label. No label is called `job`, because Prometheus sets this
#: label itself.
JOB_LABELS: Final = ("job_id", "job_name", "attempt")

TASK: Final = (
    _total("task_busy_seconds", "busy_s", "Time in which the subtask worked."),
    _total("task_idle_seconds", "idle_s", "Time in which the subtask waited for input."),
    _total("task_soft_backpressured_seconds", "soft_backpressured_s", "Wait for a buffer between two batches."),
    _total("task_hard_backpressured_seconds", "hard_backpressured_s", "Wait for a buffer within a batch."),
    _total("task_checkpoint_wait_seconds", "checkpoint_wait_s", "Wait because of a checkpoint."),
    _total("task_throttle_wait_seconds", "throttle_wait_s", "Wait for a throttle, for example a fixed rate."),
    _total("task_closed_seconds", "closed_s", "Wait at the subtask's end until its consumers had all rows."),
    _total("task_interpreter_wait_seconds", "interpreter_wait_s", "Wait for other tasks of the same process."),
    _total("task_input_seconds", "input_s", "Time to take and deserialise rows."),
    _total("task_output_seconds", "output_s", "Time to partition and serialise rows."),
    _total("task_snapshot_seconds", "snapshot_s", "Time to copy the subtask's state for checkpoints."),
    _total("task_cpu_seconds", "cpu_s", "Time in which the subtask's thread used a processor."),
    _total("task_run_delay_seconds", "run_delay_s", "Time in which the thread was ready and no processor was free."),
    _total("task_disk_wait_seconds", "disk_wait_s", "Time in which the thread waited for a disk, by samples."),
    _total("task_at_lock_seconds", "at_lock_s", "Time at the interpreter lock, by samples."),
    _total("task_running_seconds", "running_s", "Time running without the interpreter lock, by samples."),
    Exported("task_input_pool_usage_ratio", "in_pool_usage", "Share of the input buffers that is in use."),
    Exported("task_input_floating_usage_ratio", "input_floating_usage", "Share of the floating input buffers in use."),
    Exported(
        "task_input_exclusive_usage_ratio", "input_exclusive_usage", "Share of the exclusive input buffers in use."
    ),
    Exported(
        "task_output_pool_usage_ratio", "out_pool_usage", "Share of the output buffers in use; above 1 in overdraft."
    ),
    Exported("task_input_queue_buffers", "input_queue", "Received buffers that the subtask has not read."),
    Exported("task_output_buffers", "segments_in_use", "Buffers that the subtask's outputs hold."),
    Exported("task_gathering_bytes", "gathering_bytes", "Memory of parts of incomplete messages."),
    Exported("task_debloated_buffer_bytes", "debloated_buffer_size", "Buffer size that the subtask asks for."),
)
OPERATOR: Final = (
    _total("operator_busy_seconds", "busy_s", "Time in which the operator itself worked, not its chain successors."),
    _total(
        "operator_rows_in",
        "rows_in",
        "Rows that the operator took. Rows that it takes again after a restart count again.",
    ),
    _total("operator_rows_out", "rows_out", "Rows that the operator emitted."),
    _total("operator_batches_in", "batches_in", "Batches that the operator took."),
    _total("operator_late_rows", "late_rows", "Late rows that the operator dropped."),
    Exported("operator_lag_seconds", "lag_s", "Time for which the next rows of a source have been due."),
    Exported("operator_latency_seconds", "latency_s", "Age of the last latency marker when it reached the operator."),
    Exported("operator_state_bytes", "state_bytes", "Size of the operator's keyed state."),
    Exported("operator_state_keys", "state_keys", "Number of keys in the operator's state."),
)
EDGE: Final = (
    _total("edge_rows", "rows_out", "Rows that all subtasks sent through the exchange."),
    _total("edge_bytes", "bytes_out", "Bytes that all subtasks sent through the exchange."),
)
TASKMANAGER: Final = (
    _total("taskmanager_cpu_seconds", "cpu_s", "Processor time of the process."),
    _total("taskmanager_collection_seconds", "collection_s", "Time of Python's garbage collector in the process."),
    _total("taskmanager_block_delay_seconds", "block_delay_s", "Time in which the process waited for disk reads."),
    _total("machine_cpu_seconds", "machine_cpu_s", "Processor time of all programs of the machine."),
    _total("machine_steal_seconds", "steal_s", "Time for which the hypervisor gave processors to other machines."),
    _total("machine_throttled_seconds", "throttled_s", "Time in which the control group had no processor quota left."),
    _total("machine_cpu_pressure_seconds", "cpu_pressure_s", "Time in which a program waited for a processor."),
    _total("machine_memory_pressure_seconds", "memory_pressure_s", "Time in which a program waited for memory."),
    _total("machine_io_pressure_seconds", "io_pressure_s", "Time in which a program waited for a disk."),
    Exported("machine_cores", "cores", "Number of processors of the machine."),
)
NETWORK_MEMORY: Final = (
    Exported("taskmanager_network_buffers", "segments", "Network buffers of the TaskManager."),
    Exported("taskmanager_network_buffers_available", "available", "Network buffers that no pool holds."),
)
#: All tables, each with the additional labels of its metrics.
TABLES: Final = (
    (("vertex", "subtask"), TASK),
    (("operator", "subtask"), OPERATOR),
    (("edge",), EDGE),
    (("taskmanager",), TASKMANAGER),
    (("taskmanager",), NETWORK_MEMORY),
)
#: Metrics that are computed from several values: name, additional labels and meaning.
OTHER: Final = (
    ("job_state_info", ("state",), "1; the label `state` is the job's state."),
    ("job_restarts_total", (), "Restarts of the job."),
    ("job_severity", (), "0: no finding, 1: a place limits the speed, 2: lag grows, 3: no row moves."),
    ("job_left_out_subtasks", (), "Subtasks of a large job that are not exported."),
    (
        "operator_watermark_timestamp_seconds",
        ("operator", "subtask"),
        "The last watermark, since the epoch. Not exported while the source is idle.",
    ),
    ("split_unread_messages", ("operator", "split"), "Messages of a Kafka partition that the job has not read."),
    ("taskmanager_in_flight_bytes", ("taskmanager", "place"), "Bytes between tasks, by the place where they are."),
    ("checkpoint_last_duration_seconds", (), "Duration of the last complete checkpoint."),
    ("checkpoint_last_size_bytes", (), "Size of the last complete checkpoint."),
    ("checkpoint_last_id", (), "Number of the last complete checkpoint."),
)
