"""StormStatus: TaskManagers tell their senders which subtasks are full, hop by hop, as Storm 2 does.

A task whose destination is full holds back its messages to it, and takes no new batch. So its own input queue fills,
and so on up to the sources. What the task has already made for other destinations still goes. In Storm it waits too: a
task has one list of pending messages, and sends them in order.

Facts and defaults are those of Storm 2.0 to 2.8 (STORM-2306, STORM-2310, STORM-3510): classes `BackPressureTracker`,
`JCQueue` and `WorkerState`. Storm drops messages if `topology.executor.overflow.limit` is set and an overflow has
reached it. By default it is not set, and this module leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.throttle.mechanism import ComparedMechanism, Task
from headgate.throttle.spilling_queue import SpillingQueue
from headgate.throttle.stage_signals import BackPressureStatus
from headgate.throttle.validation import Duration, duration, duration_above_zero, whole_number

#: Storm sends a status again when the overflow of a full task has grown by more messages than this.
_RESEND_GROWTH: Final = 10_000


@dataclass(frozen=True, slots=True)
class StormStatus(ComparedMechanism):
    """Storm 2: an input queue of `receive_buffer` messages stops its senders when it is full.

    Messages that were on the way go to an overflow without limit. The senders stop until it is empty. Each TaskManager
    checks every `check_interval` whether an overflow is empty. While `transfer_buffer` messages of a TaskManager wait
    for a connection, its subtasks send nothing to other TaskManagers.

    The default suits messages below 2 KiB: with larger ones, the default `network_memory` of 64 MiB is full before a
    queue of 32,768 messages is, and the job fails. Then lower `receive_buffer`, or raise `network_memory` above the
    bytes of a full queue. For `over_credit` see docs/concepts/mechanisms.md. Raises ConfigError for impossible values.

    >>> hg.throttle.StormStatus().receive_buffer
    32768
    """

    receive_buffer: int = 32768
    check_interval: Duration = 0.05
    transfer_buffer: int = 1000

    def __post_init__(self) -> None:
        whole_number("receive_buffer", self.receive_buffer, least=1)
        whole_number("transfer_buffer", self.transfer_buffer, least=1)
        duration_above_zero("check_interval", self.check_interval)

    def stages(self, taskmanager: int, tasks: Iterable[Task], now: float) -> StormWorker:
        return StormWorker(self, taskmanager, tasks, now)


class StormWorker:
    """The part of StormStatus in one TaskManager: it watches its own input queues, and knows which others are full."""

    def __init__(self, mechanism: StormStatus, taskmanager: int, tasks: Iterable[Task], now: float) -> None:
        self._taskmanager = taskmanager
        self._interval = duration("check_interval", mechanism.check_interval)
        self._transfer_buffer = mechanism.transfer_buffer
        self._queues = {task: SpillingQueue(mechanism.receive_buffer) for task in tasks}
        #: The overflow of each full subtask, when the TaskManager last sent a status because of this subtask.
        self._full: dict[Task, int] = {}
        self._full_elsewhere: set[Task] = set()
        self._number = 0
        self.next_check = now + self._interval

    # --- the watched queues

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> list[BackPressureStatus]:
        queue = self._queues[task]
        if sender is None:
            queue.add_local()
            return []
        before = queue.overflow
        return self._spilled(task, before) if queue.add_remote() else []

    def _spilled(self, task: Task, overflow: int) -> list[BackPressureStatus]:
        if task in self._full and overflow - self._full[task] <= _RESEND_GROWTH:
            return []
        self._full[task] = overflow
        return [self.status()]

    def taken(self, now: float, task: Task, queued: int) -> list[BackPressureStatus]:
        self._queues[task].take()
        return []

    def check(self, now: float) -> list[BackPressureStatus]:
        """Look for subtasks that are no longer full."""
        self.next_check = now + self._interval
        emptied = [task for task in self._full if not self._queues[task].overflow]
        for task in emptied:
            del self._full[task]
        return [self.status()] if emptied else []

    def connected(self) -> list[BackPressureStatus]:
        return [self.status()]

    def status(self) -> BackPressureStatus:
        """Return a signal with the status of all subtasks here."""
        self._number += 1
        free = tuple(task for task in self._queues if task not in self._full)
        return BackPressureStatus(self._taskmanager, self._number, tuple(self._full), free)

    # --- the destinations

    def on_signal(self, now: float, status: BackPressureStatus) -> None:
        """Apply the status of another TaskManager."""
        self._full_elsewhere.update(status.full)
        self._full_elsewhere.difference_update(status.free)

    def may_send(self, task: Task, transferring: int = 0) -> bool:
        if (queue := self._queues.get(task)) is not None:
            return queue.has_room
        return task not in self._full_elsewhere and transferring < self._transfer_buffer

    def may_hold(self, task: Task, size: int) -> bool:
        return False
