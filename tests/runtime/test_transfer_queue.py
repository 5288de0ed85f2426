"""The messages that wait for connections: how they are counted, and what StormZooKeeper makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

from headgate.exchange.pending import PendingCount
from headgate.memory.memory_guard import MemoryGuard
from headgate.runtime.task.clocks import SYSTEM
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.throttling.transfer_queue import TransferQueue
from headgate.runtime.taskmanager.throttling.zookeeper_throttling import ZooKeeperThrottling
from headgate.throttle.storm_zookeeper import TRANSFER, DeleteZnode, PutZnode, StormZooKeeper

#: A subtask of TaskManager 0, and one of TaskManager 1.
HERE, THERE = (1, 0), (1, 1)


@dataclass
class Sent:
    """A subpartition whose connection has taken so many bytes."""

    bytes_sent: int = 0
    is_released: bool = False


def queue() -> TransferQueue:
    """Return the queue of TaskManager 0. Each subtask runs in the TaskManager of its own number."""
    return TransferQueue(0, lambda subtask: subtask)


def test_a_message_waits_until_its_connection_has_taken_its_last_byte() -> None:
    transfers, subpartition = queue(), Sent()
    channel = transfers.channel(THERE, subpartition)  # type: ignore[arg-type]
    assert channel is not None
    for size in (10, 20, 30):
        transfers.put(channel, size)
    assert transfers.waiting == 3
    subpartition.bytes_sent = 29
    assert (transfers.look(), transfers.waiting) == (1, 2)
    subpartition.bytes_sent = 60
    assert (transfers.look(channel), transfers.waiting) == (2, 0)


def test_a_look_at_one_channel_leaves_the_others_counted() -> None:
    transfers, first, second = queue(), Sent(), Sent()
    channels = [transfers.channel(THERE, each) for each in (first, second)]  # type: ignore[arg-type]
    for channel in channels:
        assert channel is not None
        transfers.put(channel, 10)
    first.bytes_sent = second.bytes_sent = 10
    assert (transfers.look(channels[0]), transfers.waiting) == (1, 1)
    assert (transfers.look(), transfers.waiting) == (1, 0)


def test_nothing_waits_for_a_consumer_that_has_left() -> None:
    transfers, subpartition = queue(), Sent()
    channel = transfers.channel(THERE, subpartition)  # type: ignore[arg-type]
    assert channel is not None
    transfers.put(channel, 10)
    subpartition.is_released = True
    assert (transfers.look(), transfers.waiting) == (1, 0)


def test_messages_within_the_taskmanager_need_no_connection() -> None:
    assert queue().channel(HERE, Sent()) is None  # type: ignore[arg-type]


def test_messages_that_wait_for_connections_congest_a_taskmanager_as_in_storm() -> None:
    """Of 10 messages, the high mark is 9 and the low one is 4. Those within the TaskManager do not count."""
    mechanism = StormZooKeeper(receive_buffer=10)
    worker = mechanism.worker("job", "host", [], 0.0)
    throttling = ZooKeeperThrottling(
        mechanism,
        worker,
        job="job",
        clocks=SYSTEM,
        transfers=queue(),
        guard=MemoryGuard(1 << 20, lambda: 0.0),
        count=SignalCount(),
    )
    here, there = Sent(), Sent()
    output: Any = throttling.output((0, 0), [HERE, THERE], Mock())(Mock(subpartitions=[here, there]), PendingCount())

    def send(channel: int, messages: int) -> None:
        for _ in range(messages):
            assert output._gates[channel].may_send()
            output._gates[channel].sent(100)

    send(0, 100)
    send(1, 8)
    there.bytes_sent = 800
    send(1, 8)
    assert not worker.is_congested(TRANSFER), "the first eight are on their way"
    send(1, 1)
    (change,) = worker.check(1.0)
    assert change == PutZnode("/storm/backpressure/job/host")
    worker.written(1.0, change)
    there.bytes_sent = 1200
    throttling._look(2.0)
    assert worker.check(2.0) == [], "five wait"
    there.bytes_sent = 1300
    throttling._look(3.0)
    assert worker.check(3.0) == [DeleteZnode(change.path)]
