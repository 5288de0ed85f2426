"""What a job reports of its channels and links, and which channels it chooses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.config import FlowControl
from headgate.protocol.credit import SenderCredit
from headgate.runtime.taskmanager.channel_report import WORST, ChannelReport
from tests.runtime.jobs import NUMBERS, counted, endless, environment, eventually
from tests.runtime.test_barriers import PATIENCE, Door, end


def stalled(door: Door, processes: bool, **options: Any) -> hg.JobHandle:
    """A source in one TaskManager, whose rows go to a subtask that stands in the other one."""
    env = environment(processes, segment_size=4096, message_size=4096, **options)
    source = endless(env).set_parallelism(1).name("numbers")
    rows = source.partition_by(lambda batch, _: np.full(batch.num_rows, 1))
    rows.map_batches(door.pass_through, schema=NUMBERS).name("slow").sink_to(hg.sinks.null())
    return env.execute_async()


def channel(job: hg.JobHandle, consumer: int) -> dict[str, Any]:
    rows = job.metrics()["channels"]
    found: list[dict[str, Any]] = [
        row for row in rows if (row["edge"], row["consumer"]) == ("numbers -> slow", consumer)
    ]
    return found[0] if found else {}


def waited(job: hg.JobHandle, *counters: str) -> bool:
    return all((channel(job, 1).get(counter) or 0) > 0.2 for counter in counters)


def test_a_channel_shows_that_its_data_wait_for_credit(tmp_path: Path, processes: bool) -> None:
    door = Door(tmp_path)
    job = stalled(door, processes)
    try:
        eventually(lambda: waited(job, "credit_wait_s", "without_buffer_s"), PATIENCE)
        row = channel(job, 1)
        assert row["producer"] == 0
        assert row["credit"] == 0
        assert row["backlog"] > 0
        assert row["queued_bytes"] > 0
        assert row["credits_granted"] == row["buffers_sent"]
        assert row["bytes_sent"] > 4096
        assert row["queue"] > 0
        assert (row["free_exclusive"], row["free_floating"], row["unannounced_credit"]) == (0, 0, 0)
        edge = job.metrics()["edges"]["numbers -> slow"]
        assert edge["backlog"] >= row["backlog"]
        assert edge["queued_bytes"] >= row["queued_bytes"]
        assert 0 < edge["out_pool_usage"] <= 2
    finally:
        door.open()
    end(job)


def test_a_channel_within_a_taskmanager_shows_its_backlog_and_no_credit(tmp_path: Path, processes: bool) -> None:
    door = Door(tmp_path)
    job = stalled(door, processes, taskmanagers=1)
    try:
        eventually(lambda: channel(job, 1).get("backlog", 0) > 2, PATIENCE)
        row = channel(job, 1)
        assert row["queued_buffers"] >= row["backlog"]
        assert row["queued_bytes"] > 0
        assert row["credit"] is row["credits_granted"] is row["credit_wait_s"] is row["queue"] is None
        assert job.metrics()["tasks"]["slow -> null[1]"]["input_queue"] > 2, "what waits in the producer's output"
    finally:
        door.open()
    end(job)


def test_without_credit_a_connection_waits_for_a_buffer(tmp_path: Path, processes: bool) -> None:
    door = Door(tmp_path)
    job = stalled(door, processes, flow_control=FlowControl.TCP)
    try:
        eventually(lambda: waited(job, "without_buffer_s") and channel(job, 1)["bytes_sent"], PATIENCE)
        assert channel(job, 1)["credit_wait_s"] == 0
    finally:
        door.open()
    end(job)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is an option of Linux")
def test_a_link_shows_its_peer_and_its_round_trip(processes: bool) -> None:
    env = environment(processes)
    counted(env, 10_000).key_by("n").aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    links = env.execute().metrics["links"]
    assert [[link["peer"] for link in each] for each in links] == [[1], [0]]
    for (link,) in links:
        assert 0 < link["rtt_s"] < 10
        assert link["bytes_sent"] > 0


def test_edges_and_channels_have_the_names_of_the_exchanges_that_the_diagnosis_knows() -> None:
    def split(batch: pa.RecordBatch) -> list[pa.RecordBatch | hg.SideOutput]:
        return [batch, hg.SideOutput("all", batch)]

    env = environment(processes=False)
    rows = counted(env).map_batches(split, schema=NUMBERS, side_outputs={"all": NUMBERS})
    rows.key_by("n").aggregate(rows=hg.count()).name("main").sink_to(hg.sinks.null())
    rows.side_output("all").key_by("n").aggregate(rows=hg.count()).name("side").sink_to(hg.sinks.null())
    job = env.execute_async()
    metrics = job.wait().metrics
    known = {edge.name for edge in job._master.monitor.topology.edges}
    assert known == {"map_batches -> main", "map_batches (all) -> side"}
    assert set(metrics["edges"]) == known
    assert {row["edge"] for row in metrics["channels"]} == known
    assert len(metrics["channels"]) == 2 * 4


# ---- the choice


class Queue:
    """A subpartition of which only its numbers matter."""

    def __init__(self, clock: list[float], backlog: int = 0) -> None:
        self.credit = SenderCredit(0, lambda: clock[0])
        self.backlog = self.queue_length = self.reported_backlog = backlog
        self.queued_bytes = self.buffers_sent = self.bytes_sent = 0


def report(queues: Sequence[Queue]) -> ChannelReport:
    made = ChannelReport()
    writer = SimpleNamespace(partition=SimpleNamespace(subpartitions=queues))
    output = SimpleNamespace(name="a -> b", writer=writer, consumers=range(len(queues)))
    made.add([SimpleNamespace(subtask=3, outputs=[output], inputs=[])])  # type: ignore[list-item]
    return made


def test_the_channels_that_waited_longest_come_first_then_those_with_most_data() -> None:
    clock = [0.0]
    queues = [Queue(clock, backlog) for backlog in (1, 7, 2, 7, 3)]
    channels = report(queues)
    queues[4].credit.note_backlog(queues[4])
    clock[0] = 0.5
    queues[2].credit.note_backlog(queues[2])
    clock[0] = 1.0
    assert channels.columns(1.0)["consumer"] == [4, 2, 1, 3, 0], "equals keep their order"
    assert channels.columns(1.0)["producer"] == [3] * 5
    assert channels.columns(1.0)["credit_wait_s"][0] == 1.0


def test_only_the_waits_since_the_last_choice_count() -> None:
    clock = [0.0]
    queues = [Queue(clock, 1) for _ in range(3)]
    channels = report(queues)
    queues[2].credit.note_backlog(queues[2])
    clock[0] = 10.0
    assert channels.columns(10.0)["consumer"][0] == 2
    queues[2].credit.add(1)
    queues[2].credit.note_backlog(queues[2])
    queues[1].credit.note_backlog(queues[1])
    clock[0] = 10.5
    assert channels.columns(10.5)["consumer"][0] == 2, "the choice stands for a second"
    clock[0] = 11.0
    assert channels.columns(11.0)["consumer"][0] == 1


def test_a_report_is_bounded_however_many_channels_there_are() -> None:
    clock = [0.0]
    queues = [Queue(clock, number) for number in range(1000)]
    assert report(queues).columns(1.0)["consumer"] == list(range(999, 999 - WORST, -1))
