"""Several data connections from one TaskManager to another: channels are distributed to them, results are the same."""

from __future__ import annotations

import psutil
import pytest

import headgate as hg
from headgate.config import FlowControl
from headgate.transport.sockets import Dial
from tests.runtime.jobs import (
    counted,
    endless,
    environment,
    error_of,
    eventually,
    keyed,
    port_of,
    ports,
    wait_until_running,
)
from tests.runtime.test_faults import cut

TASKMANAGERS, PAIRS = 2, 2


def accepted(at: set[int]) -> int:
    """Connections that were accepted there."""
    connections = psutil.Process().net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port in at for each in connections)


@pytest.mark.parametrize("connections", [1, 3])
def test_channels_share_so_many_connections(connections: int) -> None:
    """Four subtasks each on two TaskManagers of this process, and a control link of each."""
    before = ports()
    env = environment(parallelism=4, slots_per_task=2, connections_per_pair=connections)
    keyed(endless(env, rate=1000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    eventually(lambda: accepted(ports() - before) == TASKMANAGERS + PAIRS * connections)
    job.cancel()


@pytest.mark.parametrize("flow_control", [FlowControl.CREDIT, FlowControl.TCP])
def test_the_results_are_the_same(flow_control: FlowControl) -> None:
    env = environment(parallelism=4, slots_per_task=2, connections_per_pair=4, flow_control=flow_control)
    sink = hg.sinks.collect()
    counted(env, 5000).key_by("n").aggregate(rows=hg.count(), final=True).sink_to(sink)
    env.execute()
    assert sorted(sink.to_table()["n"].to_pylist()) == list(range(5000))


@pytest.mark.parametrize("tls", ["auto", "on"])
def test_a_first_connection_that_is_refused_fails_no_attempt(monkeypatch: pytest.MonkeyPatch, tls: str) -> None:
    """Each dial between the TaskManagers, and to the driver, finds nobody at first."""
    refused: list[str] = []
    connect, connect_again = Dial._connect, Dial._connect_again

    def to_nobody_at_first(dial: Dial) -> None:
        address = dial._address
        dial._address = address if dial._tries else (address[0], 1)
        connect(dial)
        dial._address = address

    def note(dial: Dial, reason: str) -> None:
        refused.append(reason)
        connect_again(dial, reason)

    monkeypatch.setattr(Dial, "_connect", to_nobody_at_first)
    monkeypatch.setattr(Dial, "_connect_again", note)
    table = keyed(counted(environment(tls=tls), 1000)).collect()
    assert sorted(table["n"].to_pylist()) == list(range(1000))
    assert refused == ["[Errno 111] Connection refused"] * (TASKMANAGERS + PAIRS)


def test_at_least_one() -> None:
    with pytest.raises(hg.ConfigError, match="connections_per_pair=0 is impossible: it must be at least 1"):
        hg.Config(connections_per_pair=0)


def test_a_link_to_the_driver_that_is_cut_is_named(processes: bool) -> None:
    """The TaskManager's end says no more than that it ended; where and why is said all the same."""
    before = ports()
    env = environment(processes)
    keyed(endless(env, rate=1000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    [driver] = ports() - before - {port_of(job, index) for index in range(2)}
    cut(driver)
    error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert f"its link to the driver at 127.0.0.1:{driver} was cut" in error.message
    assert "find out what ends connections" in error.message
    assert "exit code" not in error.message
