"""JStormStages: an input queue over its high mark stops its senders, stage by stage, as in JStorm 2.2 and later.

Facts and defaults are those of JStorm 2.4: classes `NettyServerFlowCtrlHandler`, `NettyClientAsync` and
`TaskTransfer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.quantities import size
from headgate.throttle.mechanism import NEVER, ComparedMechanism, Task
from headgate.throttle.stage_signals import JStormStop
from headgate.throttle.validation import rising_fractions, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class JStormStages(ComparedMechanism):
    """JStorm 2.2 and later: an input queue over `high` stops its senders until it is below `low`.

    The marks are fractions of `receive_buffer` messages. A stopped sender still takes messages of `sender_cache` bytes
    for each pair of subtasks; then the sending subtask waits, and takes no new batch. For `over_credit` see
    docs/concepts/mechanisms.md. Raises ConfigError for impossible values.

    >>> hg.throttle.JStormStages().receive_buffer
    256
    """

    receive_buffer: int = 256
    high: float = 0.8
    low: float = 0.2
    sender_cache: int | str = 64 << 10

    def __post_init__(self) -> None:
        whole_number("receive_buffer", self.receive_buffer, least=1)
        rising_fractions(low=self.low, high=self.high)
        whole_number("sender_cache", size(self.sender_cache), least=1)

    def stages(self, taskmanager: int, tasks: Iterable[Task], now: float = 0.0) -> JStormWorker:
        return JStormWorker(self, taskmanager, tasks)


class _InputQueue:
    """The counts of one input queue, and who was told to stop."""

    def __init__(self) -> None:
        self.queued = 0
        self.cached = 0  # beside the queue, without limit; the consumer takes it first
        self.stopped: list[int] = []
        self.is_full_here = False  # for the producers of the same TaskManager


class JStormWorker:
    """The part of JStormStages in one TaskManager: it watches its input queues, and knows who stopped it."""

    def __init__(self, mechanism: JStormStages, taskmanager: int, tasks: Iterable[Task]) -> None:
        self._taskmanager = taskmanager
        self._high = mechanism.high * mechanism.receive_buffer
        self._low = mechanism.low * mechanism.receive_buffer
        self._cache = size(mechanism.sender_cache)
        self._queues = {task: _InputQueue() for task in tasks}
        self.next_check = NEVER
        #: The subtasks elsewhere that stop this TaskManager.
        self._stops: set[Task] = set()

    # --- the watched queues

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> list[JStormStop]:
        queue = self._queues[task]
        if sender is None:
            queue.queued += 1
            queue.is_full_here |= queue.queued > self._high
            return []
        if queue.stopped:
            queue.cached += 1
            return [] if sender in queue.stopped else self._stop(queue, task, sender)
        queue.queued += 1
        return self._stop(queue, task, sender) if queue.queued > self._high else []

    def _stop(self, queue: _InputQueue, task: Task, sender: int) -> list[JStormStop]:
        queue.stopped.append(sender)
        return [JStormStop(sender, self._taskmanager, task, stops=True)]

    def connected(self) -> list[JStormStop]:
        """Return no signals: JStorm does not repeat its stops on a new connection."""
        return []

    def check(self, now: float) -> list[JStormStop]:
        """Do nothing: this mechanism looks at its queues only when they change."""
        return []

    def taken(self, now: float, task: Task, queued: int) -> list[JStormStop]:
        """Note a taken message. Return the signals for those who may go on."""
        queue = self._queues[task]
        if queue.cached:
            queue.cached -= 1
        else:
            queue.queued -= 1
        if queue.queued <= self._low:
            queue.is_full_here = False
        if queue.cached or queue.queued >= self._low:
            return []
        released, queue.stopped = queue.stopped, []
        return [JStormStop(sender, self._taskmanager, task, stops=False) for sender in released]

    # --- the destinations

    def on_signal(self, now: float, signal: JStormStop) -> None:
        """Follow a subtask of another TaskManager."""
        if signal.stops:
            self._stops.add(signal.task)
        else:
            self._stops.discard(signal.task)

    def may_send(self, task: Task, transferring: int = 0) -> bool:
        if (queue := self._queues.get(task)) is not None:
            return not queue.is_full_here
        return task not in self._stops

    def may_hold(self, task: Task, size: int) -> bool:
        return task not in self._queues and size < self._cache
