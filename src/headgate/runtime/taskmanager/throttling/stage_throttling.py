"""`StageThrottling`: a full input queue stops its senders by signals on the data links (Storm 2, JStorm 2.2)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from headgate.exchange.gated_output import GatedOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.memory.memory_guard import MemoryGuard
from headgate.protocol.throttle_message import StageSignal
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttling import Gated, Throttling
from headgate.runtime.task.watched_input import WatchedInput
from headgate.runtime.taskmanager.throttling.transfer_queue import TransferChannel, TransferQueue
from headgate.throttle.mechanism import StagePolicy, Task
from headgate.throttle.stage_signals import BackPressureStatus, JStormStop
from headgate.transport.network_thread import Network

#: An output that waits for connections checks them again after this many seconds, like Storm's.
_LOOK_AGAIN: Final = 1e-3


class StageThrottling(Throttling):
    """The part of a stage-by-stage throttle in one TaskManager. It reports queue sizes to the policy, and holds
    messages back.

    `send(signal, peer)` sends a signal to one TaskManager. If `peer` is None, it sends to all TaskManagers from which
    this one receives. `guard` limits the bytes in one input queue.

    Any thread may call the methods. `_lock` protects `_policy` and all fields after it. A thread that needs the lock of
    an input queue, too, takes that one before `_lock`.
    """

    def __init__(
        self,
        policy: StagePolicy,
        *,
        transfers: TransferQueue,
        clock: Callable[[], float],
        network: Network,
        send: Callable[[StageSignal, int | None], None],
        guard: MemoryGuard,
    ) -> None:
        self._clock = clock
        self._network = network
        self._send = send
        self._guard = guard
        self._lock = threading.Lock()
        self._policy = policy
        self._transfers = transfers
        #: The gates that hold messages back, by the consumer subtask of the messages.
        self._closed: dict[Task, dict[_Gate, None]] = {}
        #: The subtasks for which a call of `_look` is scheduled.
        self._looks: set[Task] = set()
        self._is_over = False

    # --- what tasks get

    def output(self, task: Task, consumers: Sequence[Task], mail: TaskMail) -> Gated:
        return partial(self._output, consumers, mail)

    def _output(
        self, consumers: Sequence[Task], mail: TaskMail, partition: ResultPartition, count: PendingCount
    ) -> GatedOutput:
        pairs = zip(consumers, partition.subpartitions, strict=True)
        gates = [_Gate(self, task, self._transfers.channel(task, subpartition)) for task, subpartition in pairs]
        return GatedOutput(partition, count, gates, mail.put)

    def input(self, task: Task, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        return partial(WatchedInput, watch=_Watch(self, task, senders), guard=self._guard, wake=mail.wake)

    # --- the input queues

    def added(self, task: Task, messages: int, sender: int | None) -> None:
        """Note that a message was added to a subtask's queue, which now has `messages`. `sender` is its producer's
        TaskManager."""
        with self._lock:
            self._send_all(self._policy.added(self._clock(), task, messages, sender))

    def taken(self, task: Task, messages: int) -> None:
        """Note that a subtask has taken a message, and open the gates of this TaskManager that may now send to the
        subtask."""
        with self._lock:
            self._send_all(self._policy.taken(self._clock(), task, messages))
            opened = self._opened(task)
        _open(opened)

    # --- the outputs

    def may_send(self, gate: _Gate) -> bool:
        """Return whether a gate may send its next message. If not, this object opens the gate later."""
        with self._lock:
            if self._policy.may_send(gate.task, self._transferring(gate)):
                return True
            self._closed.setdefault(gate.task, {})[gate] = None
            self._plan_look(gate.task)
            return False

    def may_hold(self, task: Task, size: int) -> bool:
        with self._lock:
            return self._policy.may_hold(task, size)

    def sent(self, channel: TransferChannel, size: int) -> None:
        """Note that a gate has passed one more message to its connection, where the message waits."""
        with self._lock:
            self._transfers.put(channel, size)

    def _transferring(self, gate: _Gate) -> int:
        """Return how many messages wait for connections. Below the policy's limit, it may be a little too large."""
        if gate.channel is None:
            return 0
        self._transfers.look(gate.channel)
        if not self._policy.may_send(gate.task, self._transfers.waiting):
            self._transfers.look()
        return self._transfers.waiting

    def _opened(self, task: Task) -> Iterable[_Gate]:
        """Remove and return the closed gates to a subtask that may open now. The caller holds the lock."""
        gates = self._closed.get(task)
        if not gates:
            return ()
        if not self._policy.may_send(task, self._transferring(next(iter(gates)))):
            self._plan_look(task)
            return ()
        return self._closed.pop(task)

    def _plan_look(self, task: Task) -> None:
        """Schedule `_look` for a subtask whose senders wait only for connections. The caller holds the lock."""
        if task not in self._looks and self._policy.may_send(task, 0) and self._transfers.is_remote(task):
            self._looks.add(task)
            self._network.call_later(_LOOK_AGAIN, lambda: self._look(task))

    def _look(self, task: Task) -> None:
        with self._lock:
            self._looks.discard(task)
            opened = () if self._is_over else self._opened(task)
        _open(opened)

    # --- signals

    def start(self) -> None:
        with self._lock:
            self._send_all(self._policy.connected())
        self._plan_check()

    def on_signal(self, signal: StageSignal) -> None:
        """Carry out the signal of a TaskManager to which this one sends. Runs on the network thread."""
        with self._lock:
            self._policy.on_signal(self._clock(), signal)
            opened = [gate for task in list(self._closed) for gate in self._opened(task)]
        _open(opened)

    def _send_all(self, signals: Sequence[Any]) -> None:
        """Send signals. The caller holds the lock, which keeps their order."""
        for signal in signals:
            assert isinstance(signal, BackPressureStatus | JStormStop)
            self._send(signal, signal.sender if isinstance(signal, JStormStop) else None)

    def _plan_check(self) -> None:
        with self._lock:
            at = math.inf if self._is_over else self._policy.next_check
        if at != math.inf:
            self._network.call_later(max(0.0, at - self._clock()), self._check)

    def _check(self) -> None:
        with self._lock:
            if not self._is_over:
                self._send_all(self._policy.check(self._clock()))
        self._plan_check()

    def close(self) -> None:
        with self._lock:
            self._is_over = True


class _Watch:
    """Reports the messages of one input queue to `StageThrottling`."""

    def __init__(self, stages: StageThrottling, task: Task, senders: Sequence[int | None]) -> None:
        self._stages = stages
        self._task = task
        self._senders = senders

    def added(self, channel: int, messages: int, size: int) -> None:
        self._stages.added(self._task, messages, self._senders[channel])

    def left(self, messages: int, size: int) -> None:
        self._stages.taken(self._task, messages)

    def taken(self) -> None: ...


class _Gate:
    """The gate of one channel, which may hold messages back. `channel` is None for a channel within one
    TaskManager."""

    def __init__(self, stages: StageThrottling, task: Task, channel: TransferChannel | None) -> None:
        self._stages = stages
        self.task = task
        self.channel = channel
        self.opened: Callable[[], None] = lambda: None

    def may_send(self) -> bool:
        return self._stages.may_send(self)

    def may_hold(self, size: int) -> bool:
        return self._stages.may_hold(self.task, size)

    def sent(self, size: int) -> None:
        if self.channel is not None:
            self._stages.sent(self.channel, size)


def _open(gates: Iterable[_Gate]) -> None:
    for gate in gates:
        gate.opened()
