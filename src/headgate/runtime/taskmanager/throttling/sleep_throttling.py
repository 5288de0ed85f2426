"""`SleepThrottling`: congested subtasks report to the driver, and sources then sleep after each message (JStorm
2.1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from headgate.memory.memory_guard import MemoryGuard
from headgate.records.events import CheckpointBarrier
from headgate.runtime.control_messages import FromTaskManager, OrderSleep, RequestSleep
from headgate.runtime.task.heads import Head, SourceHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttled_head import ThrottledSourceHead
from headgate.runtime.task.throttling import Throttling
from headgate.runtime.task.watched_input import WatchedInput
from headgate.runtime.taskmanager.throttling.wrapped_head import WrappedHead
from headgate.throttle.jstorm_master import JStormMaster, LoadSampler, SleepingSource
from headgate.throttle.mechanism import Task
from headgate.throttle.ring_fill import RingFill
from headgate.throttle.throttle_coordinator import SleepLonger, SleepShorter, StartRequest
from headgate.transport.network_thread import Network


class SleepThrottling(Throttling):
    """The part of `JStormMaster` in one TaskManager. It samples the load of subtasks, and lets sources sleep.

    `destinations` returns to how many subtasks each row of a vertex goes. `send` sends a message to the
    driver. `guard` limits the bytes in one input queue. The lock protects samplers and sources.
    """

    def __init__(
        self,
        mechanism: JStormMaster,
        *,
        destinations: Callable[[int], int],
        clock: Callable[[], float],
        network: Network,
        send: Callable[[FromTaskManager], None],
        guard: MemoryGuard,
    ) -> None:
        self._mechanism = mechanism
        self._destinations = destinations
        self._clock = clock
        self._network = network
        self._send = send
        self._guard = guard
        self._lock = threading.Lock()
        self._queues: dict[Task, _Queue] = {}
        self._sources: dict[Task, tuple[SleepingSource, Callable[[], None]]] = {}
        self._is_over = False

    # --- what tasks get

    def input(self, task: Task, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        queue = self._queues[task] = _Queue(self._mechanism.receive_buffer)
        return partial(WatchedInput, watch=queue, guard=self._guard, has_room=queue.has_room, wake=mail.wake)

    def reader(self, task: Task, head: Head) -> Head:
        return _TimedHead(head, self._queues[task], self._clock)

    def source(self, task: Task, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]) -> Head:
        policy = self._mechanism.sleeping_source(task, self._clock(), self._destinations(task[0]))
        self._sources[task] = policy, mail.wake
        return ThrottledSourceHead(head, _LockedPolicy(policy, self._lock), self._clock)

    # --- the samples

    def start(self) -> None:
        for task in self._queues:
            self._plan(self._mechanism.sampler(task, self._clock()), task)

    def _plan(self, sampler: LoadSampler, task: Task) -> None:
        self._queues[task].sampler = sampler
        self._network.call_later(max(0.0, sampler.next_check - self._clock()), lambda: self._sample(sampler, task))

    def _sample(self, sampler: LoadSampler, task: Task) -> None:
        queue = self._queues[task]
        with self._lock:
            if self._is_over:
                return
            request = sampler.check(self._clock(), queue.ring.occupied, queue.worked * 1000)
            if request is not None:
                flow_ms = request.flow_ms if isinstance(request, StartRequest) else None
                self._send(RequestSleep(task=task, flow_ms=flow_ms))
        self._plan(sampler, task)

    # --- the orders

    def on_order(self, order: object) -> None:
        if not isinstance(order, OrderSleep):
            return
        tasks = tuple((vertex, subtask) for vertex, subtask in order.tasks)
        signal = SleepShorter(tasks) if order.flow_ms is None else SleepLonger(tasks, order.flow_ms)
        for task in tasks:
            if task in self._sources:
                self._order_source(task, signal)
            elif task in self._queues and isinstance(signal, SleepShorter):
                self._release(task, signal)

    def _order_source(self, task: Task, signal: SleepLonger | SleepShorter) -> None:
        policy, wake = self._sources[task]
        with self._lock:
            if policy.on_signal(self._clock(), signal) is not None:
                self._send(RequestSleep(task=task, flow_ms=None))
        wake()

    def _release(self, task: Task, signal: SleepShorter) -> None:
        sampler = self._queues[task].sampler
        with self._lock:
            if sampler is not None:
                sampler.on_signal(self._clock(), signal)

    def close(self) -> None:
        with self._lock:
            self._is_over = True


class _Queue:
    """Counts the messages of one input queue, and holds the load of its subtask for the sampler."""

    def __init__(self, capacity: int) -> None:
        self.ring = RingFill(capacity)
        self.taken_messages = 0
        #: Seconds that the subtask took to process its last message.
        self.worked = 0.0
        self.sampler: LoadSampler | None = None

    def has_room(self) -> bool:
        return self.ring.has_room

    def added(self, channel: int, messages: int, size: int) -> None:
        self.ring.added(messages)

    def left(self, messages: int, size: int) -> None:
        self.ring.taken(messages)

    def taken(self) -> None:
        self.taken_messages += 1


class _TimedHead(WrappedHead):
    """A `Head` that measures how long its subtask takes to process each message."""

    def __init__(self, head: Head, queue: _Queue, clock: Callable[[], float]) -> None:
        super().__init__(head)
        self._queue = queue
        self._clock = clock

    def step(self, now: float) -> float:
        taken = self._queue.taken_messages
        began = self._clock()
        until = self._head.step(now)
        if self._queue.taken_messages > taken:
            self._queue.worked = self._clock() - began
        return until


class _LockedPolicy:
    """The policy of one source behind a lock: the driver's orders change the policy on another thread."""

    def __init__(self, policy: SleepingSource, lock: threading.Lock) -> None:
        self._policy = policy
        self._lock = lock

    def permit(self, now: float) -> float:
        with self._lock:
            return self._policy.permit(now)

    def emitted(self, now: float, rows: int) -> None:
        with self._lock:
            self._policy.emitted(now, rows)
