"""The data links of a TaskManager: what it keeps of connections that it accepted."""

from __future__ import annotations

import queue
import socket

import headgate as hg
from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import build_job_graph
from headgate.protocol import handshake
from headgate.protocol.handshake import DATA_LINK, Credentials
from headgate.runtime.deployment import Plan, TaskManagerSpec
from headgate.runtime.taskmanager.data_links import DataLinks
from headgate.transport.network_thread import NetworkThread
from tests.runtime.jobs import counted, environment
from tests.transport.conftest import PATIENCE, on

CREDENTIALS = Credentials(b"j" * 16, 1, b"secret")


def spec() -> TaskManagerSpec:
    env = environment()
    counted(env).sink_to(hg.sinks.null())
    plan = ExecutionPlan(build_job_graph(env._jobs.graph.graph(env._jobs.pending)), 1)
    return TaskManagerSpec(
        job="job", plan=Plan(plan), config=hg.Config(), credentials=CREDENTIALS, control_address=("127.0.0.1", 0)
    )


def connect(port: int) -> socket.socket:
    """As another TaskManager does."""
    sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
    dialler = handshake.Dialler(CREDENTIALS, DATA_LINK, 1, bytes(handshake.NONCE_BYTES))
    sock.sendall(dialler.hello)
    sock.sendall(dialler.prove(sock.recv(handshake.ANSWER_BYTES, socket.MSG_WAITALL)))
    return sock


def test_who_connects_again_and_again_leaves_nothing_behind(network: NetworkThread) -> None:
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    links = DataLinks(
        network,
        spec(),
        index=0,
        bind_host="127.0.0.1",
        find=lambda edge, producer: None,
        lost=lambda peer, why: lost.put(why),
    )
    links.serve()
    for _ in range(3):
        connect(links.port).close()
        assert lost.get(timeout=PATIENCE) == "the connection was closed"
        [end] = links._producer_ends
        end.bytes_sent_by_sendfile = 100
    assert not end.is_open
    assert links.bytes_sent_by_sendfile == 300
    on(network, links.close)
