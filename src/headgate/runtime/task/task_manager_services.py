"""The objects and functions that a TaskManager gives its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from headgate.config import Config
from headgate.exchange.pending import PendingBudget
from headgate.memory.network_pool import NetworkBufferPool
from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import Part
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.mailbox import Mailbox
from headgate.runtime.task.state_memory import StateMemory
from headgate.runtime.task.task import Task, TaskMail
from headgate.runtime.task.task_state import Captured
from headgate.runtime.task.throttling import Throttling
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.transport.data_link import ConsumerEnd


@dataclass(slots=True, kw_only=True)
class TaskManagerServices:
    """The objects and functions that a TaskManager gives its tasks."""

    job: str
    index: int
    config: Config
    plan: ExecutionPlan
    pool: NetworkBufferPool
    budget: PendingBudget
    state_memory: StateMemory | None
    #: Returns the link by which this TaskManager receives an edge's data from another TaskManager (index, edge).
    consumer_end: Callable[[int, int], ConsumerEnd]
    #: Sends a batch of a sink (by node id) to the driver, with the checkpoint that the batch belongs to. The given task
    #: waits while too many bytes are on the way to the driver.
    deliver: Callable[[int, pa.RecordBatch, int, Task], None]
    #: Each task calls it when all its operators are open and restored.
    opened: Callable[[], None]
    #: Returns the `time.time()` at which the job started. It is known only when the tasks are about to run.
    started_at: Callable[[], float]
    #: Reports a task's part in a checkpoint to the driver.
    report_part: Callable[[Part], None]
    #: Reports the watermark of a subtask (node, subtask) of an aligned source to the driver. None: do not wait for the
    #: subtask.
    report_watermark: Callable[[int, int, int | None], None] = lambda node, subtask, watermark: None
    #: The number of the job's attempt, which sinks use in names of files.
    attempt: int
    #: The number of the next checkpoint, or 0 without checkpoints.
    checkpoint: int
    #: The checkpoint that the job resumes from, or None.
    restore: CheckpointMetadata | None
    clocks: Clocks = SYSTEM
    #: Creates the mailbox of a task.
    new_mailbox: Callable[[], TaskMail] = Mailbox
    #: Stores the state that a task (name, vertex, subtask) has captured. None in batch mode, which has no checkpoints.
    upload: Callable[[str, int, int, Captured], None] | None
    #: The part of the job's throttle in this TaskManager. None without such a part.
    throttling: Throttling | None = None
