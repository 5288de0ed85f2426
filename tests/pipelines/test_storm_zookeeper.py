"""StormZooKeeper in whole jobs, with a real ZooKeeper: what is in its nodes, and what happens without it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.lab.zookeeper_server import serves, zookeeper_server
from tests.runtime.jobs import environment, eventually, numbers

#: The source makes rows for four seconds, so that a ZooKeeper that answers late still stops it.
ROWS, BATCH, RATE = 25_600, 64, 6400
EACH: dict[str, Any] = {"flow_control": "unbounded", "buffer_timeout": 0}
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
