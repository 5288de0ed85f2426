"""`ZooKeeperThrottling`: each worker with a full queue has a ZooKeeper node; sources stop while nodes exist (Storm
1)."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.exchange.gated_output import GatedOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.memory.memory_guard import MemoryGuard
from headgate.records.events import CheckpointBarrier
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.task.heads import Head, SourceHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.throttled_head import ThrottledSourceHead
from headgate.runtime.task.throttling import Gated, Throttling
from headgate.runtime.task.watched_input import WatchedInput
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.throttling.transfer_queue import TransferChannel, TransferQueue
from headgate.throttle.mechanism import Task
from headgate.throttle.storm_zookeeper import (
    TRANSFER,
    DeleteZnode,
    PutZnode,
    StormZooKeeper,
    StormZooKeeperWorker,
    ZnodeChange,
)

#: Seconds in which ZooKeeper must answer the first connection, and for which `close` waits for the thread.
_ANSWER: Final = 10.0
#: Storm's `storm.zookeeper.session.timeout`, in seconds.
_SESSION: Final = 20.0
#: The client tries without end to connect again, at least every 1.4 s. Storm's client tries at least every second.
_CONNECTS_AGAIN: Final = {"max_tries": -1, "max_delay": 1.0}
#: While too many messages wait for connections, the thread counts them again after this many seconds.
_LOOK_AGAIN: Final = 1e-3


class ZooKeeperThrottling(Throttling):
    """The part of `StormZooKeeper` in one TaskManager. It reports queue sizes to the policy, and asks it whether
    sources may read.

    A thread works like Storm's back-pressure thread. It checks the queues when one has crossed a mark, and at least
    every 100 ms. Then it writes changes to ZooKeeper. The messages that wait for connections (`transfers`) play the
    role of Storm's transfer queue. `guard` limits the bytes in one input queue. `count` counts the requests to
    ZooKeeper. The wall clock only gives the times in nodes: it may be set back. The lock protects the policy and
    `transfers`.
    """

    def __init__(
        self,
        mechanism: StormZooKeeper,
        worker: StormZooKeeperWorker,
        *,
        job: str,
        clocks: Clocks,
        transfers: TransferQueue,
        guard: MemoryGuard,
        count: SignalCount,
    ) -> None:
        self._mechanism = mechanism
        self._folder = mechanism.folder(job)
        #: Nodes of version 1.0 have no data.
        self._reads_times = mechanism.version == "1.2"
        self._clock, self._wall = clocks.monotonic, clocks.wall
        self._guard = guard
        self._count = count
        self._lock = threading.Lock()
        self._worker = worker
        self._transfers = transfers
        #: From this number on, the number of messages that wait for connections must be exact.
        self._exact_from = int(mechanism.receive_buffer * mechanism.low)
        self._wakes: list[Callable[[], None]] = []
        self._due = threading.Event()
        self._is_over = threading.Event()
        #: Whether the watch has fired since the thread last asked for the list of nodes.
        self._is_outdated = False
        self._client: Any = None
        self._thread = threading.Thread(target=self._run, name=f"headgate-zookeeper-{job}", daemon=True)

    # --- what tasks get

    def output(self, task: Task, consumers: Sequence[Task], mail: TaskMail) -> Gated:
        return partial(self._output, consumers, mail)

    def _output(
        self, consumers: Sequence[Task], mail: TaskMail, partition: ResultPartition, count: PendingCount
    ) -> GatedOutput:
        pairs = zip(consumers, partition.subpartitions, strict=True)
        gates = [_OpenGate(self, self._transfers.channel(task, subpartition)) for task, subpartition in pairs]
        return GatedOutput(partition, count, gates, mail.put)

    def input(self, task: Task, senders: Sequence[int | None], mail: TaskMail) -> Callable[..., TaskInput]:
        return partial(WatchedInput, watch=_Queue(self, task), guard=self._guard, wake=mail.wake)

    def source(self, task: Task, head: SourceHead, mail: TaskMail, inject: Callable[[CheckpointBarrier], None]) -> Head:
        self._wakes.append(mail.wake)
        return ThrottledSourceHead(head, self, self._clock)

    # --- the queues

    def added(self, task: Task, messages: int) -> None:
        with self._lock:
            now = self._clock()
            self._worker.added(now, task, messages, None)
            self._wake_thread(now)

    def taken(self, task: Task, messages: int) -> None:
        with self._lock:
            now = self._clock()
            self._worker.taken(now, task, messages)
            self._wake_thread(now)

    def sent(self, channel: TransferChannel, size: int) -> None:
        """Note that a message of `size` bytes now waits for its connection."""
        with self._lock:
            now = self._clock()
            self._look(now, channel)
            if self._transfers.waiting >= self._exact_from:
                self._look(now)
            self._transfers.put(channel, size)
            self._worker.added(now, TRANSFER, self._transfers.waiting, None)
            self._wake_thread(now)

    def _look(self, now: float, channel: TransferChannel | None = None) -> None:
        """Report the messages of a channel, or of all channels, that have left for their connections."""
        left = self._transfers.look(channel)
        for behind in reversed(range(left)):
            self._worker.taken(now, TRANSFER, self._transfers.waiting + behind)

    def _wake_thread(self, now: float) -> None:
        """Wake the thread if it has to check the queues now. The caller holds the lock."""
        if self._worker.next_check <= now:
            self._due.set()

    # --- the policy of all sources here

    def permit(self, now: float) -> float:
        with self._lock:
            return self._worker.permit(now)

    def emitted(self, now: float, rows: int) -> None: ...

    # --- ZooKeeper

    def start(self) -> None:
        """Connect to ZooKeeper. Raises ConfigError if it does not answer, for addresses that are none, and if its
        client is not installed."""
        try:
            from kazoo.client import KazooClient
        except ImportError:
            raise ConfigError("StormZooKeeper needs kazoo: pip install 'headgate[zookeeper]'") from None
        hosts = self._mechanism.hosts
        try:
            self._client = KazooClient(hosts, timeout=_SESSION, connection_retry=_CONNECTS_AGAIN)
        except ValueError as error:
            raise ConfigError(
                f"hosts={hosts!r} is impossible: it must be like host:2181, or several of these with commas: {error}"
            ) from error
        try:
            self._client.start(timeout=_ANSWER)
            self._client.ensure_path(self._folder)
        except Exception as error:
            self._client.stop()
            raise ConfigError(f"ZooKeeper does not answer at hosts={hosts!r}: {error}") from error
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._turn()
            self._due.wait(self._pause())
            self._due.clear()

    def _turn(self) -> None:
        """Check the queues and read the nodes, if it is time for it."""
        now = self._clock()
        with self._lock:
            self._look(now)
            changes = self._worker.check(now, self._wall()) if self._worker.next_check <= now else ()
            polls = self._worker.next_poll <= now
        for change in changes:
            self._write(now, change)
        if polls:
            self._list()

    def _pause(self) -> float:
        """Return for how many seconds the thread has nothing to do."""
        with self._lock:
            pause = min(self._worker.next_check, self._worker.next_poll) - self._clock()
            return max(0.0, min(pause, _LOOK_AGAIN) if self._worker.is_congested(TRANSFER) else pause)

    def _write(self, now: float, change: ZnodeChange) -> None:
        """Write a change to ZooKeeper. If this fails, a later check tries again."""
        try:
            if isinstance(change, PutZnode):
                self._put(change)
            else:
                self._delete(change)
        except self._errors:
            return
        with self._lock:
            self._worker.written(now, change)

    def _put(self, change: PutZnode) -> None:
        from kazoo.exceptions import NoNodeError

        self._count.note()
        try:
            self._client.set(change.path, change.data)
        except NoNodeError:
            self._count.note()
            self._client.create(change.path, change.data, ephemeral=True, makepath=True)

    def _delete(self, change: DeleteZnode) -> None:
        """Delete a node. If it has gone with its session, or somebody has deleted it, nothing is left to do."""
        from kazoo.exceptions import NoNodeError

        self._count.note()
        with contextlib.suppress(NoNodeError):
            self._client.delete(change.path)

    def _list(self) -> None:
        """List the nodes of the job, and watch the list for changes. Version 1.2 reads the time in each node, too.

        If ZooKeeper does not answer, keep the last known nodes. If the job's folder is gone, make it again: only a
        folder that exists can be watched.
        """
        from kazoo.exceptions import NoNodeError

        try:
            try:
                names = self._names()
            except NoNodeError:  # another TaskManager has left, and found the folder empty
                self._count.note()
                self._client.ensure_path(self._folder)
                names = self._names()
            found = {name: self._data(name) if self._reads_times else b"" for name in names}
        except self._errors:
            with self._lock:
                self._worker.next_poll = self._clock() + 1.0
            return
        with self._lock:
            before = self._worker.throttled
            nodes = {name: data for name, data in found.items() if data is not None}
            self._worker.on_children(self._clock(), nodes, self._wall())
            has_changed = self._worker.throttled != before
            if self._is_outdated:
                self._worker.next_poll = -math.inf
        if has_changed:
            for wake in self._wakes:
                wake()

    def _names(self) -> list[str]:
        self._is_outdated = False
        self._count.note()
        names: list[str] = self._client.get_children(self._folder, watch=self._on_change)
        return names

    def _data(self, name: str) -> bytes | None:
        from kazoo.exceptions import NoNodeError

        self._count.note()
        try:
            data: bytes = self._client.get(f"{self._folder}/{name}")[0]
        except NoNodeError:
            return None  # it was deleted meanwhile
        return data or bytes(8)

    def _on_change(self, _event: object) -> None:
        """Read the nodes again. Kazoo keeps each watch in a set until it has called it: all lists have this one."""
        with self._lock:
            self._is_outdated = True
            self._worker.next_poll = -math.inf
        self._due.set()

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        return KazooException, KazooTimeoutError

    def close(self) -> None:
        """Remove what this TaskManager has in ZooKeeper, and close the session. If ZooKeeper does not answer, it
        removes the ephemeral node itself, and the job's folder stays."""
        self._is_over.set()
        self._due.set()
        if self._client is not None:
            if self._client.connected:
                self._join()
                self._leave()
            self._client.stop()
            self._client.close()
        self._join()

    def _join(self) -> None:
        if self._thread.is_alive():
            self._thread.join(_ANSWER)

    def _leave(self) -> None:
        """Delete the node of this TaskManager, and the job's folder if it is empty then."""
        for path in (self._worker.path, self._folder):
            with contextlib.suppress(*self._errors):
                self._client.delete(path)


class _Queue:
    """Reports the messages of one input queue to `ZooKeeperThrottling`."""

    def __init__(self, throttling: ZooKeeperThrottling, task: Task) -> None:
        self._throttling = throttling
        self._task = task

    def added(self, channel: int, messages: int, size: int) -> None:
        self._throttling.added(self._task, messages)

    def left(self, messages: int, size: int) -> None:
        self._throttling.taken(self._task, messages)

    def taken(self) -> None: ...


class _OpenGate:
    """The gate of one channel. It lets all messages go, and reports those to another TaskManager."""

    def __init__(self, throttling: ZooKeeperThrottling, channel: TransferChannel | None) -> None:
        self._throttling = throttling
        self._channel = channel
        self.opened: Callable[[], None] = lambda: None

    def may_send(self) -> bool:
        return True

    def may_hold(self, size: int) -> bool:
        return True

    def sent(self, size: int) -> None:
        if self._channel is not None:
            self._throttling.sent(self._channel, size)
