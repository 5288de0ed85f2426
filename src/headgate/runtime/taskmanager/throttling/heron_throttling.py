"""`HeronThrottling`: if too many bytes wait for one subtask, all sources of the job stop (Heron)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from headgate.memory.memory_guard import MemoryGuard
from headgate.records.events import CheckpointBarrier
from headgate.runtime.control_messages import AnnounceBackPressure, FromTaskManager, RelayBackPressure
from headgate.runtime.task.heads import Head, SourceHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttled_head import ThrottledSourceHead
from headgate.runtime.task.throttling import Throttling
from headgate.runtime.task.watched_input import WatchedInput
from headgate.throttle.heron_spout import HeronWorker, StartBackPressure, StopBackPressure
from headgate.throttle.mechanism import Task


class HeronThrottling(Throttling):
    """The part of `HeronSpout` in one TaskManager. It reports queue sizes to the policy `worker`, and asks it whether
    sources may read.

    The input queue of a subtask plays the role of Heron's connection. `send` sends a message to the driver, which
    relays it to all other TaskManagers. `guard` limits the bytes in one input queue: if more wait, the job fails with
    NetworkMemoryFull. Any thread may call the methods; the lock protects the policy.
    """

    def __init__(
        self,
        worker: HeronWorker,
        *,
        clock: Callable[[], float],
        send: Callable[[FromTaskManager], None],
        guard: MemoryGuard,
    ) -> None:
        self._clock = clock
        self._send = send
        self._guard = guard
        self._lock = threading.Lock()
        self._worker = worker
        self._wakes: list[Callable[[], None]] = []

    def input(self, task: Task, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        return partial(WatchedInput, watch=_Connection(self, task), guard=self._guard, wake=mail.wake)

    def source(self, task: Task, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]) -> Head:
        self._wakes.append(mail.wake)
        return ThrottledSourceHead(head, self, self._clock)

    # --- the connections

    def sent(self, task: Task, unsent: int) -> None:
        with self._lock:
            self._announce(self._worker.sent(task, unsent))

    def drained(self, task: Task, unsent: int) -> None:
        with self._lock:
            signal = self._worker.drained(task, unsent)
            self._announce(signal)
        if signal is not None:
            self._wake()

    def _announce(self, signal: StartBackPressure | StopBackPressure | None) -> None:
        """Send the signal, if any, to the driver. The caller holds the lock, which keeps the order of the signals."""
        if signal is not None:
            self._send(AnnounceBackPressure(starts=isinstance(signal, StartBackPressure)))

    def on_order(self, order: object) -> None:
        if not isinstance(order, RelayBackPressure):
            return
        signal = StartBackPressure if order.starts else StopBackPressure
        with self._lock:
            self._worker.on_signal(self._clock(), signal(order.taskmanager))
        self._wake()

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()

    # --- the policy of all sources here

    def permit(self, now: float) -> float:
        with self._lock:
            return self._worker.permit(now)

    def emitted(self, now: float, rows: int) -> None: ...


class _Connection:
    """Counts the bytes in one input queue for `HeronThrottling`. The queue's lock protects the count."""

    def __init__(self, heron: HeronThrottling, task: Task) -> None:
        self._heron = heron
        self._task = task
        self._unsent = 0

    def added(self, channel: int, messages: int, size: int) -> None:
        self._unsent += size
        self._heron.sent(self._task, self._unsent)

    def left(self, messages: int, size: int) -> None:
        self._unsent -= size
        self._heron.drained(self._task, self._unsent)

    def taken(self) -> None: ...
