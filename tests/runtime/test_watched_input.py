"""A watched input queue: what its watch is told, and the guard."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

from headgate.errors import NetworkMemoryFull
from headgate.exchange.gate import InputGate
from headgate.memory.memory_guard import MemoryGuard
from headgate.records.elements import WatermarkElement
from headgate.records.spanning import Element
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.watched_input import WatchedInput
from tests.runtime.test_input import CODEC, Channel, Fed, rows


class Watch:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def added(self, channel: int, messages: int, size: int) -> None:
        self.told.append(("added", channel, messages, size))

    def left(self, messages: int, size: int) -> None:
        self.told.append(("left", messages, size))

    def taken(self) -> None:
        self.told.append(("taken",))

    @property
    def queued(self) -> int:
        return sum({"added": 1, "left": -1, "taken": 0}[str(kind)] for kind, *_ in self.told)


class Watched(Fed):
    """A `Fed` with a watched queue. The thread that feeds it fills the queue."""

    def __init__(self, channels: int = 1, guard: int = 1 << 20, has_room: Callable[[], bool] = lambda: True) -> None:
        super().__init__(channels)
        gate = InputGate(lambda: self.input.arrived())
        gate.channels = [Channel(index) for index in range(channels)]
        self.gates = [gate]
        self.barriers = TaskBarriers("task", self.gates, [], self.parts.append)
        self.watch = Watch()
        self.input: WatchedInput = WatchedInput(
            self.gates,
            [CODEC],
            1 << 20,
            self.barriers,
            watch=self.watch,
            guard=MemoryGuard(guard, lambda: 12.34),
            wake=lambda: None,
            has_room=has_room,
        )


def test_the_watch_is_told_of_each_message_when_it_comes_and_when_the_task_takes_it() -> None:
    fed = Watched(2)
    fed.feed(0, 0, rows(1, 2))
    fed.feed(0, 1, WatermarkElement(7), rows(3))
    size = CODEC.batch_bytes(rows(3))
    assert fed.watch.told == [("added", 0, 1, 2 * size), ("added", 1, 2, size)]
    fed.watch.told.clear()
    assert fed.next() == (1, 2), "messages are not joined"
    assert fed.watch.told == [("left", 1, 2 * size), ("taken",)]
    assert fed.all() == [(3,)]
    assert fed.watch.told[2:] == [("left", 0, size), ("taken",)]


def test_nothing_is_dropped() -> None:
    fed = Watched()
    fed.feed(0, 0, *[rows(number) for number in range(5000)])
    assert fed.all() == [(number,) for number in range(5000)]
    assert fed.input.rows_dropped == 0


def test_more_bytes_than_the_guard_allows_end_the_job_with_an_error_that_says_when() -> None:
    size = CODEC.batch_bytes(rows(1))
    fed = Watched(guard=3 * size)
    fed.feed(0, 0, *[rows(number) for number in range(4)])
    wanted = f"out of memory at 12.3 s: 4 messages of {4 * size} bytes wait in an input queue"
    with pytest.raises(NetworkMemoryFull, match=wanted):
        fed.all()


def test_a_queue_without_room_leaves_messages_in_the_channels() -> None:
    fed = Watched(2, has_room=lambda: fed.watch.queued < 3)
    for number in range(5):
        fed.feed(0, number % 2, rows(number))
    assert fed.watch.queued == 3
    fed.feed(0, 1, rows(5))
    assert fed.watch.queued == 3
    taken = [fed.next() for _ in range(2)]
    assert fed.watch.queued <= 3
    left = fed.all()
    got = [each for each in [*taken, *left] if isinstance(each, tuple)]
    assert sorted(got) == [(number,) for number in range(6)]
    assert [each for each in got if each[0] % 2 == 0] == [(0,), (2,), (4,)]
    assert [each for each in got if each[0] % 2] == [(1,), (3,), (5,)]


def test_a_kept_error_holds_no_view_into_network_memory() -> None:
    """Neither in the frames of the queue nor in those of its callers."""
    fed = Watched(guard=CODEC.batch_bytes(rows(1)))
    held: list[weakref.ref[memoryview]] = []
    feed = fed.input._put

    def view() -> memoryview:
        made = memoryview(bytearray(8))
        held.append(weakref.ref(made))
        return made

    def put(channel: int, element: Element) -> None:
        place = view()
        feed(channel, element)
        assert place

    def arrive() -> None:
        place = view()
        fed.feed(0, 0, rows(1), rows(2))
        assert place

    fed.input._put = put  # type: ignore[method-assign]
    arrive()
    assert isinstance(fed.input._error, NetworkMemoryFull)
    assert [each() for each in held] == [None] * 3
