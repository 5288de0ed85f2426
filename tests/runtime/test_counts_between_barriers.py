"""While a job runs under back-pressure, the two ends of a channel differ by the rows on the way, and by no more.

A consumer's count is read first, then its producer's count, and then the consumer's again. The first has no row that
the producer has not counted. The last has all rows of the producer, except those that buffers, writers and readers can
hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pytest

import headgate as hg
from headgate.exchange.unpartitioned import partition_threshold
from headgate.operators.operator import Operator
from headgate.plan.network_memory import floating_pool, output_pool
from headgate.runtime.taskmanager import taskmanager
from headgate.runtime.taskmanager.built_tasks import BuiltTasks
from tests.runtime.counted_channels import (
    BATCH_ROWS,
    CONSUMERS,
    PRODUCERS,
    TAKEN,
    Channel,
    options,
    send_in_turns,
    sent,
)
from tests.runtime.jobs import environment, eventually, wait_until_running

#: The seconds that a sink takes for a batch. After a batch that takes so long, a task joins no messages for the next.
SECONDS: Final = 0.25
#: How often the objects of threads are read, and how many reports of each process.
READINGS: Final = 300
REPORTS: Final = 16
ROW_BYTES: Final = 8
CONFIG: Final = hg.Config(segment_size=options()["segment_size"], message_size=options()["message_size"])
SEGMENT: Final = CONFIG.segment_size
#: A channel cuts its rows into messages of one to two times this size.
MESSAGE: Final = CONFIG.message_size
#: The least bytes of rows that are on the way at some time if the consumers hold their producers back.
HELD_BACK: Final = 4 * SEGMENT


class Count(NamedTuple):
    """The rows that tasks had counted, by channel. They were read between the times `began` and `ended`."""

    began: float
    ended: float
    rows: dict[Channel, int]


def start(processes: bool) -> hg.JobHandle:
    env = environment(processes, **options())
    send_in_turns(env, lambda: hg.sinks.for_each_batch(dawdle))
    return env.execute_async()


def dawdle(*_: object) -> None:
    time.sleep(SECONDS)


def most_bytes(channels: Collection[Channel]) -> int:
    """Return the most bytes of rows that can be on the way in these channels.

    They are in the buffers of both pools, and beside them:

    - In the writer, which uses a part of the pending budget. A task takes no batch while a message waits for buffers,
      so the writer has rows that it has not yet split, less than a message for each channel, and one batch more.
    - In the reader: an incomplete message of each channel, the batch that the task works on, which ends with the
      message that fills it, and the other messages of the last buffer.
    """
    output = output_pool(CONSUMERS, CONFIG).maximum + CONFIG.max_overdraft_buffers_per_gate
    pending = partition_threshold(CONSUMERS) + CONSUMERS * MESSAGE + BATCH_ROWS * ROW_BYTES
    gate = PRODUCERS * CONFIG.buffers_per_channel + floating_pool(CONFIG).maximum
    taken = PRODUCERS * 2 * MESSAGE + (MESSAGE + 2 * MESSAGE) + SEGMENT
    producers, consumers = {producer for producer, _ in channels}, {consumer for _, consumer in channels}
    return len(producers) * (output * SEGMENT + pending) + len(consumers) * (gate * SEGMENT + taken)


def check(producers: Sequence[Count], consumers: Sequence[Count]) -> tuple[int, int]:
    """Compare each count of producers with the counts of their consumers just before it and just after it.

    The counts are in the order of time. Returns how many channels were compared, and the most bytes on the way.
    """
    compared = most = 0
    for count in producers:
        before: dict[Channel, int] = {}
        after: dict[Channel, int] = {}
        for other in consumers:
            if other.ended <= count.began:
                before |= other.rows
            elif other.began >= count.ended:
                after = other.rows | after
        if not count.rows.keys() <= before.keys() & after.keys():
            continue  # a first or a last count
        assert all(before[channel] <= rows for channel, rows in count.rows.items()), (before, count)
        on_the_way = {channel: (rows - after[channel]) * ROW_BYTES for channel, rows in count.rows.items()}
        assert all(size <= most_bytes([channel]) for channel, size in on_the_way.items()), on_the_way
        assert sum(on_the_way.values()) <= most_bytes(on_the_way), on_the_way
        compared += len(on_the_way)
        most = max(most, sum(on_the_way.values()))
    return compared, most


def test_the_counters_of_threads_differ_by_the_rows_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[BuiltTasks] = []

    def noted() -> BuiltTasks:
        places.append(BuiltTasks())
        return places[-1]

    monkeypatch.setattr(taskmanager, "BuiltTasks", noted)
    producers: list[Count] = []
    consumers: list[Count] = []

    def read() -> bool:
        consumers.append(timed(lambda: taken_in(places)))
        producers.append(timed(lambda: sent_from(places)))
        consumers.append(timed(lambda: taken_in(places)))
        return len(producers) >= READINGS

    job = start(processes=False)
    try:
        wait_until_running(job)
        eventually(read)
    finally:
        job.cancel()
    compared, most = check(producers, consumers)
    assert compared == READINGS * PRODUCERS * CONSUMERS
    assert most >= HELD_BACK


def timed(read: Callable[[], dict[Channel, int]]) -> Count:
    began = time.monotonic()
    rows = read()
    return Count(began, time.monotonic(), rows)


def sent_from(places: Sequence[BuiltTasks]) -> dict[Channel, int]:
    tasks = [built for place in places for built in place.all]
    return sent({built.subtask: output.writer.rows_out for built in tasks for output in built.outputs})


def taken_in(places: Sequence[BuiltTasks]) -> dict[Channel, int]:
    return {
        (TAKEN.index(node.name), built.subtask): operator.rows_out
        for place in places
        for built in place.all
        for node in built.vertex.nodes
        if isinstance(operator := built.nodes[node.id], Operator) and node.name in TAKEN
    }


Report = dict[str, Any]


def test_the_reports_of_processes_differ_by_the_rows_on_the_way() -> None:
    job = start(processes=True)
    try:
        wait_until_running(job)
        reports = collected(job)
    finally:
        job.cancel()
    # A process reads a report after its `clock_s`, and before it begins the next one.
    pairs = sorted((pair for each in reports for pair in pairwise(each)), key=lambda pair: float(pair[0]["clock_s"]))
    producers = [Count(old["clock_s"], new["clock_s"], reported_as_sent(old)) for old, new in pairs]
    consumers = [Count(old["clock_s"], new["clock_s"], reported_as_taken(old)) for old, new in pairs]
    compared, most = check(producers, consumers)
    assert compared >= REPORTS * CONSUMERS
    assert most >= HELD_BACK


def collected(job: hg.JobHandle) -> list[list[Report]]:
    """Return the reports of each TaskManager as they come, the oldest first."""
    members = job._master._attempt.members
    reports: list[list[Report]] = [[] for _ in members]

    def has_enough() -> bool:
        for seen, member in zip(reports, members, strict=True):
            latest = member.metrics
            if latest is not None and (not seen or latest["clock_s"] > seen[-1]["clock_s"]):
                seen.append(latest)
        return all(len(seen) >= REPORTS for seen in reports)

    eventually(has_enough)
    return reports


def reported_as_sent(report: Report) -> dict[Channel, int]:
    return sent({edge["producer"]: edge["rows_out"] for edge in report["edges"]})


def reported_as_taken(report: Report) -> dict[Channel, int]:
    return {
        (TAKEN.index(each["name"]), each["subtask"]): each["rows_out"]
        for each in report["operators"]
        if each["name"] in TAKEN
    }
