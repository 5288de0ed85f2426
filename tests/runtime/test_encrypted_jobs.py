"""Whole jobs whose links are under TLS: every mode, restarts, and a survivor of an older attempt."""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.protocol.handshake import CONTROL_LINK, DATA_LINK, Credentials
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial
from headgate.transport.tls import TlsSocket
from tests.exactly_once import attempts, build, committed, expected
from tests.exactly_once import environment as checkpointed
from tests.runtime.faults import gated, open_gate
from tests.runtime.jobs import counted, environment, eventually, keyed, pids


class Noting(hg.LocalDeployment):
    """Notes what TaskManagers are told."""

    def __init__(self, processes: bool = True) -> None:
        super().__init__(2, processes)
        self.specs: list[TaskManagerSpec] = []

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        self.specs.append(spec)
        return super().launch(spec, count, on_exit)

    @property
    def credentials(self) -> list[Credentials]:
        """The credentials of each attempt's TaskManagers."""
        return [spec.credentials for spec in self.specs]


MODES: dict[str, dict[str, Any]] = {
    "credit": {},
    "several connections": {"connections_per_pair": 3},
    "tcp": {"flow_control": "tcp"},
    "unbounded": {"flow_control": "unbounded"},
    "batch": {"execution_mode": "batch"},
    "small segments": {"segment_size": 512, "message_size": 2000},
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_every_mode_gives_the_same_answer_under_tls(options: dict[str, Any]) -> None:
    deployment = Noting()
    config = hg.Config(tls="on", paranoid=True, **options)
    env = hg.StreamEnvironment(parallelism=4, config=config, deployment=deployment)
    table = counted(env, 50_000).key_by("n").aggregate(rows=hg.count(), final=True).collect()
    assert sorted(table["n"].to_pylist()) == list(range(50_000))
    assert set(table["rows"].to_pylist()) == {1}
    [credentials] = deployment.credentials
    assert credentials.identity is not None


def test_what_is_in_files_is_encrypted_before_it_is_sent(tmp_path: Path) -> None:
    env = environment(True, execution_mode="batch", tls="on", spill_dir=str(tmp_path))
    keyed(counted(env, 20_000)).sink_to(hg.sinks.null())
    result = env.execute()
    assert result.rows_out == 20_000
    assert result.metrics["remote_bytes"] > 10_000
    assert result.metrics["bytes_sent_by_sendfile"] == 0


@pytest.mark.turns(2)
@pytest.mark.parametrize("options", [{}, {"unaligned": True}, {"flow_control": "tcp"}], ids=str)
def test_a_killed_taskmanager_is_replaced_under_new_certificates(tmp_path: Path, options: dict[str, Any]) -> None:
    deployment = Noting()
    env = checkpointed(tmp_path, deployment, restart=hg.restart.fixed(9, delay=0), tls="on", **options)
    job = build(env, tmp_path, source=gated(tmp_path)).execute_async()
    eventually(lambda: job.status() == "RUNNING" and 0 in attempts(tmp_path), 60)
    os.kill(pids()[1], signal.SIGKILL)
    eventually(lambda: job.status() == "RUNNING" and 1 in attempts(tmp_path), 60)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 1
    assert committed(tmp_path) == expected()
    first, second = (credentials.identity for credentials in deployment.credentials)
    assert first is not None
    assert second is not None
    assert first.authority != second.authority
    assert first.key != second.key


@pytest.fixture
def network() -> Iterator[NetworkThread]:
    network = NetworkThread("survivor")
    network.start()
    yield network
    network.stop(60)


def dial(network: NetworkThread, address: tuple[str, int], credentials: Credentials, kind: int) -> LinkSocket | str:
    outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
    network.post(
        Dial(
            network, address, credentials=credentials, kind=kind, peer=1, established=outcome.put, failed=outcome.put
        ).start
    )
    return outcome.get(timeout=60)


def test_a_survivor_of_an_older_attempt_is_refused(tmp_path: Path, network: NetworkThread) -> None:
    """It has the older attempt's certificate; or, at the worst, claims the newer attempt's number, too."""
    deployment = Noting()
    env = checkpointed(tmp_path, deployment, restart=hg.restart.fixed(9, delay=0), tls="on")
    job = build(env, tmp_path, source=gated(tmp_path)).execute_async()
    eventually(lambda: job.status() == "RUNNING" and 0 in attempts(tmp_path), 60)
    os.kill(pids()[1], signal.SIGKILL)
    eventually(lambda: job.status() == "RUNNING" and 1 in attempts(tmp_path), 60)
    old, new = deployment.credentials
    member = job._master._attempt.members[0].address
    assert member is not None
    doors = {CONTROL_LINK: deployment.specs[1].control_address, DATA_LINK: member}
    for kind, address in doors.items():
        for survivor in (old, dataclasses.replace(old, attempt=new.attempt)):
            said = dial(network, address, survivor, kind)
            assert isinstance(said, str)
            assert "the peer has no certificate of this attempt of the job" in said
    ours = dial(network, doors[DATA_LINK], new, DATA_LINK)
    assert isinstance(ours, TlsSocket), "one of this attempt comes in"
    ours.close()
    open_gate(tmp_path)
    job.wait(120)
    assert committed(tmp_path) == expected()


@pytest.mark.parametrize(
    ("options", "is_encrypted"),
    [
        ({}, False),
        ({"bind_host": "127.0.0.2"}, False),
        ({"bind_host": "0.0.0.0"}, True),
        ({"bind_host": "0.0.0.0", "tls": "off"}, False),
        ({"tls": "on"}, True),
    ],
    ids=str,
)
def test_links_are_encrypted_off_loopback_if_nothing_else_is_asked_for(
    options: dict[str, Any], is_encrypted: bool
) -> None:
    deployment = Noting(processes=False)
    env = hg.StreamEnvironment(parallelism=2, config=hg.Config(**options), deployment=deployment)
    assert keyed(counted(env, 1000)).collect().num_rows == 1000
    [credentials] = deployment.credentials
    assert (credentials.identity is not None) is is_encrypted


def test_without_tls_the_start_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        env = environment(tls="off")
        keyed(counted(env, 1000)).sink_to(hg.sinks.null())
        env.execute("rows")
    [record] = caplog.records
    assert record.getMessage().startswith("job 'rows': tls='off': its links are not encrypted.")


def no_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Bytes that are no UTF-8, as somebody on the network may write them into a message."""
    offsets = pa.py_buffer(bytes(4) + b"".join((2).to_bytes(4, "little") for _ in range(batch.num_rows)))
    text = pa.Array.from_buffers(pa.string(), batch.num_rows, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    return pa.RecordBatch.from_arrays([batch.column(0), text], names=["n", "text"])


@pytest.mark.parametrize(("tls", "is_validated"), [("off", True), ("on", False)])
def test_without_tls_every_batch_is_validated(tls: str, is_validated: bool) -> None:
    env = hg.StreamEnvironment(parallelism=2, config=hg.Config(tls=tls), deployment=hg.LocalDeployment(2))
    schema = pa.schema({"n": pa.int64(), "text": pa.string()})
    counted(env, 1000).map_batches(no_text, schema=schema).rebalance().sink_to(hg.sinks.null())
    if is_validated:
        with pytest.raises(hg.HeadgateError, match="bytes is not a record batch: .*UTF8"):
            env.execute()
    else:
        assert env.execute().rows_out == 1000
