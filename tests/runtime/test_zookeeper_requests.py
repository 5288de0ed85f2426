"""What StormZooKeeper asks of ZooKeeper, and when. The client is one that the tests hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pytest

from headgate.memory.memory_guard import MemoryGuard
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.throttling.transfer_queue import TransferQueue
from headgate.runtime.taskmanager.throttling.zookeeper_throttling import ZooKeeperThrottling
from headgate.throttle.mechanism import NEVER
from headgate.throttle.storm_zookeeper import StormZooKeeper

exceptions = pytest.importorskip("kazoo.exceptions")

FOLDER = "/storm/backpressure/job"
NODE = f"{FOLDER}/host"
TASK = (1, 0)


class Client:
    """The nodes of a job, and the requests for them. While it is `away`, no request is answered."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.away = False
        self.watch: Callable[[object], None] | None = None
        #: Called once, between the next list and its answer.
        self.before_answer: Callable[[], None] | None = None

    def _ask(self, request: str) -> None:
        self.requests.append(request)
        if self.away:
            raise exceptions.ConnectionLoss

    def get_children(self, path: str, watch: Callable[[object], None]) -> list[str]:
        self._ask("list")
        self.watch = watch
        names = [name.removeprefix(f"{path}/") for name in self.nodes]
        if self.before_answer is not None:
            change, self.before_answer = self.before_answer, None
            change()
        return names

    def get(self, path: str) -> tuple[bytes, None]:
        self._ask("get")
        return self._known(path), None

    def set(self, path: str, data: bytes) -> None:
        self._ask("set")
        self._known(path)
        self.nodes[path] = data

    def create(self, path: str, data: bytes, *, ephemeral: bool, makepath: bool) -> None:
        self._ask("create")
        assert ephemeral
        assert makepath
        self.nodes[path] = data
        self._fire()

    def delete(self, path: str) -> None:
        self._ask("delete")
        self._known(path)
        del self.nodes[path]
        self._fire()

    def _known(self, path: str) -> bytes:
        if path not in self.nodes:
            raise exceptions.NoNodeError
        return self.nodes[path]

    def _fire(self) -> None:
        watch, self.watch = self.watch, None
        if watch is not None:
            watch(None)


@dataclass
class Part:
    """TaskManager `host` of a job, whose only subtask has an input queue of 20 messages. A turn lasts 100 ms."""

    version: Literal["1.0", "1.2"] = "1.0"
    now: float = 5000.0
    wall: float = 1_000_000.0
    count: SignalCount = field(default_factory=SignalCount)
    client: Client = field(default_factory=Client)

    def __post_init__(self) -> None:
        mechanism = StormZooKeeper(version=self.version, receive_buffer=20)
        self.throttling = ZooKeeperThrottling(
            mechanism,
            mechanism.worker("job", "host", [TASK], self.now),
            job="job",
            clocks=Clocks(lambda: self.now, lambda: self.wall),
            transfers=TransferQueue(0, lambda subtask: 0),
            guard=MemoryGuard(1 << 20, lambda: 0.0),
            count=self.count,
        )
        self.throttling._client = self.client

    def turn(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.throttling._turn()
            self.now += 0.1
            self.wall += 0.1

    def fill(self) -> None:
        self.throttling.added(TASK, 20)

    def drain(self) -> None:
        self.throttling.taken(TASK, 0)

    @property
    def stands(self) -> bool:
        """Whether the sources here may not read."""
        return self.throttling.permit(0.0) == NEVER


# --- clocks


@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_a_wall_clock_that_is_set_back_delays_no_check_and_no_poll(version: Literal["1.0", "1.2"]) -> None:
    part = Part(version)
    part.client.away = True
    part.fill()
    part.turn()
    part.client.away = False
    part.wall -= 3600
    part.turn(11)
    assert part.stands, "the next check has made the node, and the next list has found it"
    asked = part.client.requests.count("list")
    part.wall -= 3600
    part.turn(301)
    assert part.client.requests.count("list") == asked + 1, "a poll comes every 30 s"


def test_in_version_1_2_a_wall_clock_that_is_set_back_delays_no_later_time() -> None:
    part = Part("1.2")
    part.fill()
    part.turn()
    part.wall -= 3600
    part.turn(151)
    written = int.from_bytes(part.client.nodes[NODE], "big") / 1000
    assert written == pytest.approx(part.wall, abs=0.2)


# --- requests


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        ("1.0", ["list", "set", "create", "list"]),
        ("1.2", ["list", "set", "create", "list", "get"]),
    ],
)
def test_only_version_1_2_reads_what_is_in_nodes_and_each_request_counts(
    version: Literal["1.0", "1.2"], asked: list[str]
) -> None:
    """In version 1.0 a node has no data: Storm only lists the nodes."""
    part = Part(version)
    part.turn()
    part.fill()
    part.turn(2)
    assert part.stands
    assert part.client.requests == asked
    assert part.count.signals == len(asked)


def test_a_node_of_version_1_0_goes_when_the_queue_is_short_again() -> None:
    part = Part()
    part.fill()
    part.turn(2)
    part.drain()
    part.turn(2)
    assert part.client.nodes == {}
    assert not part.stands
    assert part.client.requests[-2:] == ["delete", "list"]


# --- the watch


def test_a_change_between_a_list_and_its_answer_is_read_at_once() -> None:
    """The watch fires before the sources have the list that is out of date."""
    part = Part()
    part.client.before_answer = lambda: part.client.create(f"{FOLDER}/other", b"", ephemeral=True, makepath=True)
    part.turn(2)
    assert part.stands
