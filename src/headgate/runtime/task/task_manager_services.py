"""What a TaskManager gives its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from headgate.config import Config
from headgate.errors import HeadgateError
from headgate.exchange.pending import PendingBudget
from headgate.memory.network_pool import NetworkBufferPool
from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import Part
from headgate.runtime.task.state_memory import StateMemory
from headgate.runtime.task.task import Task
from headgate.runtime.task.task_state import Captured
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.transport.data_link import ConsumerEnd


@dataclass(slots=True, kw_only=True)
class TaskManagerServices:
    """What a TaskManager gives its tasks."""

    job: str
    index: int
    config: Config
    plan: ExecutionPlan
    pool: NetworkBufferPool
    budget: PendingBudget
    state_memory: StateMemory | None
    #: The link by which this TaskManager receives an edge's data from another one.
    consumer_end: Callable[[int, int], ConsumerEnd]
    #: Sends a batch of a sink (by node id), and the checkpoint that it belongs to, to the driver; waits in the given
    #: task while the driver is behind.
    deliver: Callable[[int, pa.RecordBatch, int, Task], None]
    opened: Callable[[], None]
    done: Callable[[Task, HeadgateError | None], None]
    #: `time.time()` at which the job started; known only when the tasks are about to run.
    started_at: Callable[[], float]
    #: Tells the driver of a task's part in a checkpoint.
    tell_part: Callable[[Part], None]
    #: Of the job; sinks name what they write by it.
    attempt: int
    #: The number of the next checkpoint, 0 without.
    checkpoint: int
    #: The checkpoint that the job resumes from.
    restore: CheckpointMetadata | None
    #: Takes what a task, by its name, vertex and subtask, has captured; None in batch mode, which knows no checkpoints.
    upload: Callable[[str, int, int, Captured], None] | None
