"""StormZooKeeper: a full queue becomes a node in ZooKeeper, and all sources of the job stop, as in Storm 1.0 to 1.2.

Facts and defaults of version 1.0 are those of STORM-886 with the repairs STORM-1696 and STORM-2039. Those of 1.2 are
those of STORM-2744 and STORM-2873. They come from the classes `DisruptorQueue` and `WorkerBackpressureThread`, and the
cluster state in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from headgate.errors import ConfigError
from headgate.throttle.level_flag import LevelFlag
from headgate.throttle.mechanism import NEVER, ComparedMechanism, Scope, Task, ThrottleSignal
from headgate.throttle.validation import Duration, duration, duration_above_zero, rising_fractions, whole_number

#: The messages of a TaskManager that wait for its connections. They are watched like the input queue of a subtask.
TRANSFER: Final[Task] = (-1, 0)
#: A TaskManager looks at its queues after this many seconds, or at once when a queue has crossed a mark.
_CHECK: Final = 0.1


@dataclass(frozen=True, slots=True)
class PutZnode(ThrottleSignal):
    """Create an ephemeral node, or replace its data."""

    scope: ClassVar[Scope] = Scope.ZOOKEEPER
    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class DeleteZnode(ThrottleSignal):
    """Delete a node."""

    scope: ClassVar[Scope] = Scope.ZOOKEEPER
    path: str


ZnodeChange: TypeAlias = PutZnode | DeleteZnode


@dataclass(frozen=True, slots=True, kw_only=True)
class StormZooKeeper(ComparedMechanism):
    """Storm 1.0 to 1.2: a queue at its `high` mark stops all sources of the job, until it is at its `low` mark.

    `hosts` are the servers of ZooKeeper as `host:port`, separated by commas. This throttle needs `pip install
    'headgate[zookeeper]'`. The marks are fractions of `receive_buffer` messages, rounded down. They hold for each input
    queue, and for the messages of a TaskManager that wait for its connections. A full queue takes further messages, as
    Storm's overflow list does: it has no limit, and senders never wait for it.

    In version 1.0 a TaskManager has a node in ZooKeeper while one of its queues is congested: from its `high` mark down
    to its `low` mark. In version 1.2 the node stays: it holds the time of the last congestion, which the TaskManager
    writes at most once every `znode_update`, and which counts for `znode_timeout`. Sources watch the list of nodes, and
    read it every `poll` as well. For `over_credit` see docs/concepts/mechanisms.md. Raises ConfigError for impossible
    values.

    >>> hg.throttle.StormZooKeeper(version="1.2").znode_timeout
    30.0
    """

    hosts: str = field(default="127.0.0.1:2181", kw_only=False)
    version: Literal["1.0", "1.2"] = "1.0"
    receive_buffer: int = 1024
    high: float = 0.9
    low: float = 0.4
    poll: Duration = 30.0
    znode_update: Duration = 15.0
    znode_timeout: Duration = 30.0
    root: str = "/storm"

    def __post_init__(self) -> None:
        if not isinstance(self.hosts, str) or not self.hosts:
            raise ConfigError(
                f"hosts={self.hosts!r} is impossible: it must be the address of ZooKeeper, like host:2181"
            )
        if self.version not in ("1.0", "1.2"):
            raise ConfigError(f'version={self.version!r} is unknown: it must be "1.0" or "1.2"')
        whole_number("receive_buffer", self.receive_buffer, least=1)
        rising_fractions(low=self.low, high=self.high)
        for name in ("poll", "znode_timeout"):
            duration_above_zero(name, getattr(self, name))
        duration("znode_update", self.znode_update)

    def folder(self, job: str) -> str:
        """Return the path of the node whose children are the TaskManagers of a job."""
        return f"{self.root}/backpressure/{job}"

    def worker(self, job: str, name: str, tasks: Iterable[Task], now: float) -> StormZooKeeperWorker:
        """Return the part of one TaskManager, which runs these subtasks. `name` is unique in the job."""
        return StormZooKeeperWorker(self, f"{self.folder(job)}/{name}", tasks, now)


class StormZooKeeperWorker:
    """The part of StormZooKeeper in one TaskManager, and the source policy of all sources there.

    All times are seconds of the monotonic clock, but for `wall`: seconds since the epoch by the clock of this machine.
    Only nodes have such times, because version 1.2 compares times of several machines. If `wall` is None, it is `now`.
    The caller lists the children of `folder` at `next_poll`, and when ZooKeeper reports that they changed; each list
    sets the watch again.
    """

    def __init__(self, mechanism: StormZooKeeper, path: str, tasks: Iterable[Task], now: float) -> None:
        #: The node of this TaskManager.
        self.path = path
        self._keeps_node = mechanism.version == "1.2"
        self._poll = duration("poll", mechanism.poll)
        self._update = duration("znode_update", mechanism.znode_update)
        self._timeout = duration("znode_timeout", mechanism.znode_timeout)
        marks = mechanism.receive_buffer, mechanism.high, mechanism.low
        self._flags = {task: LevelFlag(*marks) for task in (*tasks, TRANSFER)}
        #: When ZooKeeper last got a congestion from this TaskManager; None: ZooKeeper knows of no congestion.
        self._put_at: float | None = None
        self.throttled = False
        self.next_check = now + _CHECK
        self.next_poll = now

    # --- the watched queues

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> list[ZnodeChange]:
        """Note a message in an input queue, or in `TRANSFER`. A crossed mark makes the next check due."""
        if self._flags[task].added(queued):
            self.next_check = now
        return []

    def taken(self, now: float, task: Task, queued: int) -> list[ZnodeChange]:
        if self._flags[task].taken(queued):
            self.next_check = now
        return []

    def is_congested(self, task: Task) -> bool:
        """Return whether a queue has reached its high mark, and not its low mark since then."""
        return self._flags[task].is_up

    def check(self, now: float, wall: float | None = None) -> list[ZnodeChange]:
        """Return the change that ZooKeeper needs, if it needs one.

        The caller reports the change to `written` when ZooKeeper has made it. Otherwise the next check repeats it. The
        worker does not see that a node goes, with its session or because somebody deletes it. As in Storm, version 1.0
        then makes a node at the next congestion only; version 1.2 writes the next time, after `znode_update`.
        """
        self.next_check = now + _CHECK
        if not any(map(self.is_congested, self._flags)):
            return self._relief()
        is_old = self._put_at is None or (self._keeps_node and now - self._put_at > self._update)
        data = _encoded(now if wall is None else wall) if self._keeps_node else b""
        return [PutZnode(self.path, data)] if is_old else []

    def _relief(self) -> list[ZnodeChange]:
        if self._put_at is None:
            return []
        if self._keeps_node:
            self._put_at = None
            return []
        return [DeleteZnode(self.path)]

    def written(self, now: float, change: ZnodeChange) -> None:
        """Note that ZooKeeper has made a change that `check` returned at `now`."""
        self._put_at = now if isinstance(change, PutZnode) else None

    # --- the sources

    def on_children(self, now: float, children: Mapping[str, bytes], wall: float | None = None) -> None:
        """Note the nodes of all TaskManagers of the job, with their data. Version 1.0 does not read the data."""
        self.next_poll = now + self._poll
        if self._keeps_node:
            present = now if wall is None else wall
            self.throttled = any(present - _decoded(data) < self._timeout for data in children.values())
        else:
            self.throttled = bool(children)

    def permit(self, now: float) -> float:
        return NEVER if self.throttled else now

    def emitted(self, now: float, rows: int) -> None: ...


def _encoded(wall: float) -> bytes:
    return round(wall * 1000).to_bytes(8, "big")


def _decoded(data: bytes) -> float:
    return int.from_bytes(data, "big") / 1000
