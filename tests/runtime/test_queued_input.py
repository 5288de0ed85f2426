"""A bounded input queue: what it drops, what it never drops, and who fills it."""

from __future__ import annotations

import threading

import pytest

from headgate.errors import ExchangeError
from headgate.exchange.gate import InputGate
from headgate.memory.buffer import Buffer
from headgate.memory.segment import MemorySegment
from headgate.records.elements import MAX_TIME, WatermarkElement
from headgate.records.events import Alignment, CheckpointBarrier
from headgate.records.spanning import Element
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.queued_input import QueuedInput
from headgate.throttle.mechanism import Overflow, QueuePolicy
from tests.runtime.test_input import CODEC, END, Channel, Fed, rows


class Queued(Fed):
    """A `Fed` whose input has a queue of two messages. The thread that feeds it fills the queue."""

    def __init__(self, overflow: Overflow, channels: int = 1) -> None:
        super().__init__(channels)
        self.wakes = 0
        gate = InputGate(lambda: self.input.arrived())
        gate.channels = [Channel(index) for index in range(channels)]
        self.gates = [gate]
        self.barriers = TaskBarriers("task", self.gates, [], self.parts.append)
        self.input: QueuedInput = QueuedInput(
            self.gates, [CODEC], 1 << 20, self.barriers, joins=False, policy=QueuePolicy(2, overflow), wake=self._woken
        )

    def _woken(self) -> None:
        self.wakes += 1


@pytest.mark.parametrize(
    ("overflow", "kept"), [(Overflow.DROP_NEWEST, [(1,), (2, 3)]), (Overflow.DROP_OLDEST, [(4,), (5, 6)])]
)
def test_a_full_queue_drops_whole_messages_and_counts_their_rows(overflow: Overflow, kept: list[object]) -> None:
    fed = Queued(overflow)
    for batch in (rows(1), rows(2, 3), rows(4), rows(5, 6)):
        fed.feed(0, 0, batch)
    assert fed.out == 0, "the buffers are back before the task has its turn"
    assert fed.wakes == 4
    assert fed.all() == kept
    assert fed.input.rows_dropped == 3
    assert fed.input.rows_in == 3


def test_what_the_task_takes_makes_room() -> None:
    fed = Queued(Overflow.DROP_NEWEST)
    fed.feed(0, 0, rows(1), rows(2))
    assert fed.next() == (1,)
    fed.feed(0, 0, rows(3), rows(4))
    assert fed.all() == [(2,), (3,)]
    assert fed.input.rows_dropped == 1


def test_what_arrives_while_the_task_takes_a_message_is_queued_before_the_task_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = Queued(Overflow.DROP_NEWEST)
    fed.feed(0, 0, rows(1))
    take = fed.input._take

    def take_while_data_arrives(channel: int, element: Element) -> None:
        monkeypatch.undo()
        fed.feed(0, 0, rows(2))
        take(channel, element)

    monkeypatch.setattr(fed.input, "_take", take_while_data_arrives)
    assert fed.next() == (1,)
    assert fed.out == 0, "the buffers of the second message are back"
    assert fed.all() == [(2,)]


@pytest.mark.parametrize("overflow", Overflow)
def test_watermarks_are_not_dropped_and_do_not_pile_up(overflow: Overflow) -> None:
    fed = Queued(overflow, channels=2)
    for time in range(1, 101):
        for channel in (0, 1):
            fed.feed(0, channel, rows(time), WatermarkElement(time))
    assert len(fed.input._queue) <= 2 + 3 * 2
    done = fed.all()
    assert done[-1] == WatermarkElement(100)
    assert sum(isinstance(each, tuple) for each in done) == 2
    assert fed.input.rows_dropped == 198


@pytest.mark.parametrize("overflow", Overflow)
def test_the_end_arrives_when_the_queue_is_full(overflow: Overflow) -> None:
    fed = Queued(overflow)
    fed.feed(0, 0, rows(1), rows(2), rows(3), *END)
    assert not fed.input.is_finished
    assert fed.all()[2:] == [WatermarkElement(MAX_TIME)], "after two messages"
    assert fed.input.is_finished
    assert fed.channel(0, 0).asked == ["acknowledge"]


def test_no_row_behind_a_barrier_comes_before_the_barriers_of_other_channels() -> None:
    fed = Queued(Overflow.DROP_NEWEST, channels=2)
    barrier = CheckpointBarrier(7, 0, Alignment.ALIGNED)
    fed.feed(0, 0, rows(1), barrier)
    fed.feed(0, 0, rows(2))
    fed.feed(0, 1, rows(10))
    assert fed.all()[:1] == [(1,)]
    assert fed.parts == []
    fed.feed(0, 1, barrier)
    fed.all()
    assert [part["checkpoint"] for part in fed.parts] == [7]


def test_an_error_is_raised_on_the_thread_of_the_task_after_the_rows_before_it() -> None:
    fed = Queued(Overflow.DROP_NEWEST)
    fed.feed(0, 0, rows(1))
    fed.out += 1
    fed._put(0, 0, Buffer([MemorySegment(0, memoryview(b"\xff" * 64))], 0, 64, fed._back))
    assert fed.next() == (1,)
    with pytest.raises(ExchangeError):
        fed.next()


def test_a_closed_input_reads_no_more() -> None:
    fed = Queued(Overflow.DROP_NEWEST)
    fed.input.close()
    fed.channel(0, 0).items.append(CheckpointBarrier(7, 0, Alignment.ALIGNED))
    fed.gates[0].notify(0)
    assert len(fed.channel(0, 0).items) == 1


def test_many_threads_that_feed_lose_no_message() -> None:
    """Each message is taken or dropped, and counted once."""
    fed = Queued(Overflow.DROP_OLDEST, channels=4)
    taken = 0

    def feed(channel: int) -> None:
        for number in range(200):
            fed.feed(0, channel, rows(number))

    threads = [threading.Thread(target=feed, args=(channel,)) for channel in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += len(fed.all())
    taken += len(fed.all())
    assert taken == fed.input.rows_in
    assert taken + fed.input.rows_dropped == 800
