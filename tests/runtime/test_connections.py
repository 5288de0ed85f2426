"""Several data connections from one TaskManager to another: channels are dealt to them, results are the same."""

from __future__ import annotations

import psutil
import pytest

import headgate as hg
from headgate.config import FlowControl
from tests.runtime.jobs import counted, endless, environment, eventually, keyed, wait_until_running

ENDS, TASKMANAGERS = 2, 2


def established() -> int:
    connections = psutil.Process().net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED for each in connections)


@pytest.mark.parametrize("connections", [1, 3])
def test_channels_are_dealt_to_so_many_connections(connections: int) -> None:
    """Four subtasks each on two TaskManagers, both ends of every connection in this process."""
    before = established()
    env = environment(parallelism=4, slots_per_task=2, connections_per_pair=connections)
    keyed(endless(env, rate=1000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    pairs = 2
    eventually(lambda: established() - before == ENDS * (TASKMANAGERS + pairs * connections))
    job.cancel()


@pytest.mark.parametrize("flow_control", [FlowControl.CREDIT, FlowControl.TCP])
def test_the_results_are_the_same(flow_control: FlowControl) -> None:
    env = environment(parallelism=4, slots_per_task=2, connections_per_pair=4, flow_control=flow_control)
    sink = hg.sinks.collect()
    counted(env, 5000).key_by("n").aggregate(rows=hg.count(), final=True).sink_to(sink)
    env.execute()
    assert sorted(sink.to_table()["n"].to_pylist()) == list(range(5000))


def test_at_least_one() -> None:
    with pytest.raises(hg.ConfigError, match="connections_per_pair=0 is impossible: it must be at least 1"):
        hg.Config(connections_per_pair=0)
