"""The metrics for Prometheus: their names, what they count, and which counter of a report has their value.

Names follow Prometheus: base units, `_total` for counters, shares between 0 and 1. No metric has a label for a channel,
a key or a split. `docs/reference/metrics.md` has this table.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Exported(NamedTuple):
    """A metric: its name without `headgate_`, the counter that has its value, and what it says."""

    name: str
    counter: str
    meaning: str
    is_total: bool = False


def _total(name: str, counter: str, meaning: str) -> Exported:
    return Exported(name, counter, meaning, is_total=True)


#: Labels of the metrics of a job. `attempt` is a new one after each restart, where counters begin again at 0. Metrics
#: of the job as a whole (`job_...`) are without it. Prometheus has a label `job` of its own, so it is not used here.
JOB_LABELS: Final = ("job_id", "job_name", "attempt")

TASK: Final = (
    _total("task_busy_seconds", "busy_s", "The subtask worked."),
    _total("task_idle_seconds", "idle_s", "The subtask waited for input."),
    _total("task_soft_backpressured_seconds", "soft_backpressured_s", "It waited for a buffer between two batches."),
    _total("task_hard_backpressured_seconds", "hard_backpressured_s", "It waited for a buffer within a batch."),
    _total("task_checkpoint_wait_seconds", "checkpoint_wait_s", "It waited because of a checkpoint."),
    _total("task_closed_seconds", "closed_s", "It waited at its end until its consumers had all rows."),
    _total("task_input_seconds", "input_s", "It took and deserialised rows."),
    _total("task_output_seconds", "output_s", "It partitioned and serialised rows."),
    _total("task_snapshot_seconds", "snapshot_s", "It took its state for checkpoints."),
    _total("task_cpu_seconds", "cpu_s", "Its thread used a processor."),
    _total("task_run_delay_seconds", "run_delay_s", "Its thread could have run, and no processor was free."),
    Exported("task_input_pool_usage_ratio", "in_pool_usage", "Of the buffers of its inputs: floating and exclusive."),
    Exported("task_input_floating_usage_ratio", "input_floating_usage", "Of the floating buffers of its inputs."),
    Exported("task_input_exclusive_usage_ratio", "input_exclusive_usage", "Of the exclusive buffers of its inputs."),
    Exported("task_output_pool_usage_ratio", "out_pool_usage", "Of the buffers of its outputs; above 1 in overdraft."),
    Exported("task_input_queue_buffers", "input_queue", "Buffers that wait for the subtask."),
    Exported("task_output_buffers", "segments_in_use", "Buffers that its outputs hold."),
    Exported("task_gathering_bytes", "gathering_bytes", "Parts of incomplete messages, in memory."),
    Exported("task_debloated_buffer_bytes", "debloated_buffer_size", "The buffer size that it asks for."),
)
OPERATOR: Final = (
    _total("operator_busy_seconds", "busy_s", "The operator worked, without those behind it in its chain."),
    _total("operator_rows_in", "rows_in", "Rows that it has taken; rows after a restart count again."),
    _total("operator_rows_out", "rows_out", "Rows that it has emitted."),
    _total("operator_batches_in", "batches_in", "Batches that it has taken."),
    _total("operator_late_rows", "late_rows", "Rows that it dropped as late."),
    Exported("operator_lag_seconds", "lag_s", "How long the next rows of a source with a pace have been due."),
    Exported("operator_state_bytes", "state_bytes", "Keyed state that it holds."),
    Exported("operator_state_keys", "state_keys", "Keys that it holds state of."),
)
EDGE: Final = (
    _total("edge_rows", "rows_out", "Rows that left by the exchange, from all subtasks."),
    _total("edge_bytes", "bytes_out", "Bytes that left by the exchange, for all channels."),
)
TASKMANAGER: Final = (
    _total("taskmanager_cpu_seconds", "cpu_s", "The process used processors."),
    _total("taskmanager_collection_seconds", "collection_s", "Python's garbage collector ran in the process."),
    _total("taskmanager_block_delay_seconds", "block_delay_s", "The process waited for its disk reads."),
    _total("machine_cpu_seconds", "machine_cpu_s", "All programs of the machine used its processors."),
    _total("machine_steal_seconds", "steal_s", "The hypervisor gave the processors to other machines."),
    _total("machine_throttled_seconds", "throttled_s", "The control group had used up its processor quota."),
    _total("machine_cpu_pressure_seconds", "cpu_pressure_s", "Some program of the machine waited for a processor."),
    _total("machine_memory_pressure_seconds", "memory_pressure_s", "Some program of the machine waited for memory."),
    _total("machine_io_pressure_seconds", "io_pressure_s", "Some program of the machine waited for a disk."),
    Exported("machine_cores", "cores", "Processors of the machine."),
)
NETWORK_MEMORY: Final = (
    Exported("taskmanager_network_buffers", "segments", "Network buffers of the TaskManager."),
    Exported("taskmanager_network_buffers_available", "available", "Those that no pool holds."),
)
#: The tables with the further labels of their metrics.
TABLES: Final = (
    (("vertex", "subtask"), TASK),
    (("operator", "subtask"), OPERATOR),
    (("edge",), EDGE),
    (("taskmanager",), TASKMANAGER),
    (("taskmanager",), NETWORK_MEMORY),
)
#: Made of other values: the name, the further labels and the meaning.
OTHER: Final = (
    ("job_state_info", ("state",), "1 for the state that the job is in."),
    ("job_restarts_total", (), "Restarts of the job."),
    ("job_severity", (), "0: nothing holds it up, 1: at its limit, 2: behind, 3: stuck."),
    ("job_left_out_subtasks", (), "Subtasks of a large job that are not exported."),
    ("operator_watermark_timestamp_seconds", ("operator", "subtask"), "The last watermark, since the epoch."),
    ("taskmanager_in_flight_bytes", ("taskmanager", "place"), "Bytes between tasks, by the place where they are."),
    ("checkpoint_last_duration_seconds", (), "How long the last complete checkpoint took."),
    ("checkpoint_last_size_bytes", (), "The size of the last complete checkpoint."),
    ("checkpoint_last_id", (), "The number of the last complete checkpoint."),
)
