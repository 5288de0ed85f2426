"""StormZooKeeper with a real ZooKeeper: what is in its nodes, and what happens when ZooKeeper or a node is gone."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import headgate as hg
from headgate.lab.faults.lost_signals import MortalZooKeeper
from headgate.lab.zookeeper_server import serves, zookeeper_server
from headgate.memory.memory_guard import MemoryGuard
from headgate.runtime.task.clocks import SYSTEM
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.throttling.transfer_queue import TransferQueue
from headgate.runtime.taskmanager.throttling.zookeeper_throttling import ZooKeeperThrottling
from headgate.throttle.mechanism import NEVER
from tests.runtime.jobs import NUMBERS, environment, eventually, numbers

#: The source makes rows for four seconds, so that a ZooKeeper that answers late still stops it.
ROWS, BATCH, RATE = 25_600, 64, 6400
EACH: dict[str, Any] = {"flow_control": "unbounded", "buffer_timeout": 0}
#: Rows per second of each source subtask of a second stream.
APART_RATE = 50
KazooClient = pytest.importorskip("kazoo.client").KazooClient
pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture(scope="module")
def hosts() -> Iterator[str]:
    with zookeeper_server() as server:
        yield server.address


@pytest.fixture
def client(hosts: str) -> Iterator[Any]:
    client = KazooClient(hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[MortalZooKeeper]:
    server = MortalZooKeeper(str(tmp_path))
    server.start()
    yield server
    server.stop()


def stalled(throttle: hg.throttle.StormZooKeeper) -> tuple[hg.JobHandle, threading.Event]:
    """Start a job whose sink holds all its batches until the event is set."""
    env = environment(throttle=throttle, **EACH)
    goes_on = threading.Event()

    def write(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        assert goes_on.wait(60)

    source = hg.sources.generate(numbers, rows=ROWS, batch_rows=BATCH, rate=RATE)
    env.from_source(source).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(write))
    return env.execute_async("stalled"), goes_on


def throttled_s(job: hg.JobHandle) -> float:
    tasks = job.metrics()["tasks"]
    return float(max((task["throttle_wait_s"] for name, task in tasks.items() if "numbers" in name), default=0.0))


def nodes(client: Any) -> dict[str, bytes]:
    """Return the nodes of all jobs that run, with their data."""
    jobs = client.get_children("/storm/backpressure") if client.exists("/storm/backpressure") else []
    folders = [f"/storm/backpressure/{job}" for job in jobs]
    return {f"{each}/{name}": client.get(f"{each}/{name}")[0] for each in folders for name in client.get_children(each)}


def test_a_full_queue_is_an_ephemeral_node_while_it_is_full_and_sources_stop(hosts: str, client: Any) -> None:
    job, goes_on = stalled(hg.throttle.StormZooKeeper(hosts, receive_buffer=20))
    eventually(lambda: throttled_s(job) > 0.3)
    found = nodes(client)
    assert found
    assert set(found.values()) == {b""}
    assert all(client.exists(path).ephemeralOwner for path in found)
    goes_on.set()
    result = job.wait(60)
    assert result.rows_in == result.rows_out == ROWS
    assert result.metrics["throttle_signals"] >= 4  # the node is put and deleted, and nodes are listed after both
    eventually(lambda: not client.get_children("/storm/backpressure"))  # the job's folder is gone, too


def test_a_folder_that_is_gone_has_no_nodes(hosts: str, client: Any) -> None:
    job, goes_on = stalled(hg.throttle.StormZooKeeper(hosts, receive_buffer=20, poll=0.5))
    eventually(lambda: throttled_s(job) > 0.3)
    path = min(nodes(client))
    client.delete(path.rpartition("/")[0], recursive=True)
    eventually(lambda: job.metrics()["rows_in"] == ROWS)
    goes_on.set()
    assert job.wait(60).rows_out == ROWS


def test_in_version_1_2_the_node_stays_with_the_time_of_the_congestion(hosts: str, client: Any) -> None:
    throttle = hg.throttle.StormZooKeeper(
        hosts, version="1.2", receive_buffer=20, poll=0.1, znode_update=0.1, znode_timeout=0.3
    )
    job, goes_on = stalled(throttle)
    eventually(lambda: throttled_s(job) > 0.3)
    stamps = set(nodes(client).values())
    assert stamps
    assert all(len(stamp) == 8 for stamp in stamps)
    eventually(lambda: set(nodes(client).values()) != stamps)  # it is written again while the queue is full
    goes_on.set()
    result = job.wait(60)
    assert result.rows_in == result.rows_out == ROWS


def test_a_stale_node_of_somebody_else_stops_the_sources_for_ever(hosts: str, client: Any) -> None:
    """STORM-1949: no task is congested, but a node is left over. Only its removal by hand helps."""
    env = environment(throttle=hg.throttle.StormZooKeeper(hosts), **EACH)
    source = hg.sources.generate(numbers, rows=ROWS, batch_rows=BATCH, rate=RATE)
    env.from_source(source).name("numbers").rebalance().sink_to(hg.sinks.null())
    job = env.execute_async("stale")
    eventually(lambda: job.metrics()["rows_in"])
    (folder,) = client.get_children("/storm/backpressure")
    client.create(f"/storm/backpressure/{folder}/left-over")
    eventually(lambda: throttled_s(job) > 0.5)
    assert job.metrics()["rows_in"] < ROWS
    client.delete(f"/storm/backpressure/{folder}/left-over")
    assert job.wait(60).rows_out == ROWS


def test_a_full_queue_does_not_stop_another_job_of_the_same_name(hosts: str) -> None:
    throttle = hg.throttle.StormZooKeeper(hosts, receive_buffer=20)
    full, goes_on = stalled(throttle)
    eventually(lambda: throttled_s(full) > 0.3)
    other, other_goes_on = stalled(throttle)
    other_goes_on.set()
    assert other.wait(50).rows_out == ROWS
    assert full.metrics()["rows_in"] < ROWS
    goes_on.set()
    assert full.wait(60).rows_out == ROWS


# --- ZooKeeper dies


def collecting(
    rows: list[int], wait: Callable[[], object] = lambda: None
) -> Callable[[pa.RecordBatch, hg.BatchInfo], None]:
    """Return the function of a sink that waits before each batch, and then adds its numbers to `rows`."""

    def write(batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        wait()
        rows.extend(batch["n"].to_pylist())

    return write


@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_when_zookeeper_dies_in_a_stall_the_sources_stand_until_it_is_back(
    mortal: MortalZooKeeper, version: Literal["1.0", "1.2"]
) -> None:
    """The stall ends while ZooKeeper is away. A source with a throttle of its own asks no ZooKeeper, and goes on. Its
    subtask 0 has the even numbers, and subtask 1 the odd ones."""
    throttle = hg.throttle.StormZooKeeper(
        mortal.address, version=version, receive_buffer=20, poll=0.2, znode_update=0.2, znode_timeout=1
    )
    goes_on, is_over = threading.Event(), threading.Event()
    written: list[int] = []
    apart: list[int] = []

    def until_over(subtask: int, subtasks: int) -> Iterator[list[dict[str, Any]]]:
        for n in itertools.count(subtask, subtasks):
            if is_over.is_set():
                return
            yield [{"n": n}]

    env = environment(throttle=throttle, **EACH)
    source = hg.sources.generate(numbers, rows=ROWS, batch_rows=BATCH, rate=RATE)
    sink = hg.sinks.for_each_batch(collecting(written, lambda: goes_on.wait(60)))
    env.from_source(source).name("numbers").rebalance().sink_to(sink)
    other = hg.sources.iterable(until_over, schema=NUMBERS)
    stream = env.from_source(other, throttle=hg.throttle.FixedRate(APART_RATE)).name("apart")
    stream.rebalance().sink_to(hg.sinks.for_each_batch(collecting(apart)))
    job = env.execute_async("mortal")
    try:
        eventually(lambda: throttled_s(job) > 0.3)
        mortal.stop()
        waited, before = throttled_s(job), len(apart)
        eventually(lambda: throttled_s(job) > waited + 0.3 and len(apart) > before + APART_RATE)
        goes_on.set()
        waited = throttled_s(job)
        eventually(lambda: throttled_s(job) > waited + 0.5)
        assert len(written) < ROWS, "the queue is empty, but nobody tells the source"
        mortal.start()
        eventually(lambda: len(written) >= ROWS)
    finally:
        goes_on.set()
        is_over.set()
    result = job.wait(60)
    assert sorted(written) == list(range(ROWS))
    for subtask in range(2):
        mine = sorted(n for n in apart if n % 2 == subtask)
        assert mine == list(range(subtask, subtask + 2 * len(mine), 2))
    assert result.rows_in == result.rows_out == ROWS + len(apart)
    assert result.restarts == 0


@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_nobody_notices_that_zookeeper_dies_while_no_queue_is_full(
    mortal: MortalZooKeeper, version: Literal["1.0", "1.2"]
) -> None:
    """The job also ends without it."""
    written: list[int] = []
    env = environment(throttle=hg.throttle.StormZooKeeper(mortal.address, version=version), **EACH)
    source = hg.sources.generate(numbers, rows=ROWS // 2, batch_rows=BATCH, rate=RATE)
    env.from_source(source).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(collecting(written)))
    job = env.execute_async("mortal")
    eventually(lambda: job.metrics()["rows_in"])
    mortal.stop()
    result = job.wait(60)
    assert sorted(written) == list(range(ROWS // 2))
    assert result.rows_in == result.rows_out == ROWS // 2
    assert result.restarts == 0
    assert {task["throttle_wait_s"] for task in result.metrics["tasks"].values()} == {0.0}


# --- one TaskManager


@pytest.fixture
def throttling(hosts: str) -> Iterator[ZooKeeperThrottling]:
    """The part of a job in TaskManager 0, whose only subtask has an input queue of 20 messages."""
    mechanism = hg.throttle.StormZooKeeper(hosts, receive_buffer=20)
    part = ZooKeeperThrottling(
        mechanism,
        mechanism.worker("alone", "taskmanager-0", [(1, 0)], time.monotonic()),
        job="alone",
        clocks=SYSTEM,
        transfers=TransferQueue(0, lambda subtask: 0),
        guard=MemoryGuard(1 << 20, lambda: 0.0),
        count=SignalCount(),
    )
    yield part
    part.close()


def test_a_node_that_is_gone_comes_back_with_the_next_congestion(throttling: ZooKeeperThrottling, client: Any) -> None:
    """It goes with its session, or by hand. ZooKeeper then refuses to delete it, and the TaskManager goes on."""
    throttling.start()
    throttling.added((1, 0), 20)
    path = eventually(lambda: min(nodes(client), default=None))
    eventually(lambda: throttling.permit(0.0) == NEVER)
    client.delete(path)
    eventually(lambda: throttling.permit(0.0) == 0.0)
    assert nodes(client) == {}
    asked = throttling._count.signals
    throttling.taken((1, 0), 0)
    eventually(lambda: throttling._count.signals > asked)
    throttling.added((1, 0), 20)
    assert eventually(lambda: nodes(client)) == {path: b""}


def test_a_session_lasts_as_long_as_in_storm(throttling: ZooKeeperThrottling, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less, a job that cannot reach ZooKeeper for a while would lose its nodes sooner."""
    from kazoo.protocol.connection import ConnectionHandler

    connect = ConnectionHandler._connect
    granted_ms: list[float] = []

    def note(handler: Any, *address: Any) -> Any:
        timeouts = connect(handler, *address)
        granted_ms.append(timeouts[1])  # there is one server: the time to connect to it is that of the session
        return timeouts

    monkeypatch.setattr(ConnectionHandler, "_connect", note)
    throttling.start()
    assert set(granted_ms) == {20_000}


# --- a server that is not there


@pytest.mark.parametrize("answer", [b"", b"This ZooKeeper instance is not currently serving requests"])
def test_a_server_that_only_listens_has_not_started(answer: bytes) -> None:
    """A client that connects now would be disconnected, and try again later and later."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answers = threading.Thread(target=_answer_once, args=(listening, answer))
        answers.start()
        assert not serves(listening.getsockname()[1])
        answers.join()


def _answer_once(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(4)
        connection.sendall(answer)


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        ("127.0.0.1:1", "ZooKeeper does not answer at hosts='127.0.0.1:1'"),
        ("zk:port", "hosts='zk:port' is impossible: it must be like host:2181"),
    ],
)
def test_without_zookeeper_the_job_does_not_start(hosts: str, says: str) -> None:
    env = environment(throttle=hg.throttle.StormZooKeeper(hosts), **EACH)
    env.from_source(hg.sources.generate(numbers, rows=64)).rebalance().sink_to(hg.sinks.null())
    with pytest.raises(hg.ConfigError, match=says):
        env.execute()
