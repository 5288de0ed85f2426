"""Barriers in an input queue: no channel waits in the exchange, and each snapshot has exactly the rows before it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.exchange.gate import InputGate
from headgate.memory.buffer import Buffer
from headgate.memory.memory_guard import MemoryGuard
from headgate.records.events import Alignment, CancelMarker, CheckpointBarrier, Event, blocks
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.in_flight import InFlight
from headgate.runtime.task.watched_input import WatchedInput
from headgate.throttle.mechanism import Overflow
from tests.examples import examples
from tests.runtime.test_input import CODEC, END, ROW, Channel, Fed, rows
from tests.runtime.test_queued_input import Queued
from tests.runtime.test_watched_input import Watch


def barrier(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint, 0, Alignment.ALIGNED)


class BlockedChannel(Channel):
    """Delivers nothing after a barrier until it is asked to resume, as a subpartition does. Nothing while blocked."""

    def __init__(self, index: int, gate: InputGate) -> None:
        super().__init__(index)
        self._gate = gate
        self._is_blocked = False
        self.is_held = False

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        if self._is_blocked or self.is_held:
            return None, False
        polled, more = super().poll(limit)
        self._is_blocked = isinstance(polled, Event) and blocks(polled)
        return polled, more and not self._is_blocked

    def resume(self) -> None:
        assert self._is_blocked, "no barrier blocks the channel"
        self._is_blocked = False
        super().resume()
        self._gate.notify(self.index)

    def block(self) -> None:
        assert not self.is_held
        self.is_held = True

    def unblock(self) -> None:
        assert self.is_held
        self.is_held = False
        self._gate.notify(self.index)


class Aligned(Fed):
    """A watched queue over channels that block behind a barrier. `snapshots` has the rows before each snapshot."""

    def __init__(self, channels: int, capacity: int = 1 << 62, guard: int = 1 << 20) -> None:
        super().__init__(channels)
        gate = InputGate(lambda: self.input.arrived())
        gate.channels = [BlockedChannel(index, gate) for index in range(channels)]
        self.gates = [gate]
        self.barriers = TaskBarriers("task", self.gates, [], self.parts.append)
        self.barriers.capturer = self
        self.watch = Watch()
        self.input: WatchedInput = WatchedInput(
            self.gates,
            [CODEC],
            1 << 20,
            self.barriers,
            watch=self.watch,
            guard=MemoryGuard(guard, lambda: 0.0),
            has_room=lambda: self.queued < capacity,
            wake=self._wake,
        )
        self._is_awake = False
        self.done: list[int] = []
        self.snapshots: dict[int, list[int]] = {}

    def _wake(self) -> None:
        self._is_awake = True

    def next(self) -> object:
        while True:
            self._is_awake = False
            element = super().next()
            if element is not None or not self._is_awake:
                return element

    @property
    def queued(self) -> int:
        return self.watch.queued

    def capture(self, checkpoint: int) -> None:
        self.snapshots[checkpoint] = list(self.done)

    def store(self, checkpoint: int, in_flight: InFlight) -> None:
        assert not in_flight.input_bytes

    def drop(self, checkpoint: int, reason: str) -> None: ...

    def work(self, steps: int = 1 << 30) -> list[int]:
        """Process the next messages, or all."""
        before = len(self.done)
        while steps and (element := self.next()) is not None:
            steps -= 1
            if isinstance(element, tuple):
                self.done += element
        return self.done[before:]


def test_a_throttle_sees_what_comes_behind_a_barrier_that_waits_in_the_queue() -> None:
    fed = Aligned(1)
    fed.feed(0, 0, rows(1), barrier(1), rows(2), rows(3))
    assert fed.queued == 3
    assert fed.channel(0, 0).asked == ["resume"]
    assert fed.work() == [1, 2, 3]
    assert fed.snapshots == {1: [1]}
    assert fed.channel(0, 0).asked == ["resume"]


def test_the_task_sets_aside_what_is_behind_a_barrier_until_all_barriers_are_there() -> None:
    fed = Aligned(2)
    fed.feed(0, 0, rows(1), barrier(1), rows(2), barrier(2), rows(3))
    fed.feed(0, 1, rows(10), rows(11))
    assert fed.work() == [1, 10, 11]
    assert fed.queued == 0, "a queue of messages that wait for a barrier must not keep this barrier out"
    assert fed.input.is_blocked_by_barrier
    fed.feed(0, 1, barrier(1), rows(12), barrier(2))
    assert fed.work() == [2, 12, 3]
    assert fed.snapshots == {1: [1, 10, 11], 2: [1, 10, 11, 2, 12]}
    fed.feed(0, 0, *END)
    fed.feed(0, 1, *END)
    fed.work()
    assert fed.input.is_finished
    told = [kind for kind, *_ in fed.watch.told]
    assert told.count("left") == told.count("taken") == 6


@pytest.mark.parametrize("capacity", [3, 1 << 62])
def test_what_comes_after_the_turn_of_a_barrier_waits_in_its_channel(capacity: int) -> None:
    """The other channel's barrier is late. The rows of four times the guard would end the job in the queue."""
    count, guard = 80, 20 * CODEC.batch_bytes(rows(1))
    fed = Aligned(2, capacity, guard)
    fed.feed(0, 0, barrier(1), rows(0), rows(1))
    assert fed.queued == 2
    fed.feed(0, 1, rows(-1))
    assert fed.work() == [-1]
    for number in range(2, count):
        fed.feed(0, 0, rows(number))
        assert fed.work() == []
    assert len(fed.channel(0, 0).items) == count - 2
    told = len(fed.watch.told)
    fed.feed(0, 1, rows(-2), barrier(1), rows(-3))
    assert told + 2 <= len(fed.watch.told), "the queue has room for the other channel"
    done = fed.work()
    assert done[0] == -2
    assert [each for each in done if each >= 0] == list(range(count))
    assert fed.snapshots == {1: [-1, -2]}
    fed.feed(0, 0, *[rows(number) for number in range(min(capacity, 15))])
    assert fed.queued == min(capacity, 15), "the input has caught up: from now on the throttle stops the sender"


def test_the_input_catches_up_although_much_is_set_aside() -> None:
    """The barrier for which the messages wait comes while the input catches up with its channel."""
    guard = 20 * CODEC.batch_bytes(rows(1))
    fed = Aligned(2, guard=guard)
    fed.feed(0, 0, barrier(1))
    fed.feed(0, 1, rows(-1))
    assert fed.work() == [-1]
    fed.feed(0, 0, *[rows(number) for number in range(40)], barrier(2))
    fed.feed(0, 1, barrier(1), barrier(2), *[rows(-10 - number) for number in range(12)])
    assert sorted(fed.work()) == sorted([*range(40), *(-10 - number for number in range(12))])
    assert fed.snapshots == {1: [-1], 2: [-1, *range(40)]}


def test_a_full_queue_lets_the_barrier_in_for_which_its_messages_wait() -> None:
    fed = Aligned(2, capacity=2)
    fed.feed(0, 0, barrier(1), *[rows(number) for number in range(5)])
    fed.feed(0, 1, rows(10), barrier(1))
    assert fed.work() == [10, 0, 1, 2, 3, 4]
    assert fed.snapshots == {1: [10]}


def test_the_end_and_a_cancelled_checkpoint_wait_behind_the_barrier_of_their_channel() -> None:
    fed = Aligned(3)
    fed.feed(0, 0, barrier(1), rows(1), CancelMarker(2), rows(2), *END)
    fed.feed(0, 1, barrier(1), rows(10), barrier(2), rows(11), *END)
    assert fed.work() == []
    fed.feed(0, 2, rows(20), *END)
    assert fed.work() == [20, 1, 2, 10, 11]
    assert fed.snapshots == {1: [20]}
    assert [(part["checkpoint"], part["aborted"]) for part in fed.parts] == [(1, False)]
    assert fed.input.is_finished


def test_messages_that_are_set_aside_are_dropped_beyond_the_size_of_the_queue() -> None:
    """`Shed` drops rows to bound memory; a savepoint must not change this."""
    fed = Queued(Overflow.DROP_OLDEST, channels=2)
    fed.feed(0, 0, barrier(1))
    for number in range(5):
        fed.feed(0, 0, rows(number))
        fed.all()
    fed.feed(0, 1, barrier(1))
    assert fed.all() == [(0,), (1,)]
    assert fed.input.rows_dropped == 3


#: What one channel delivers: rows, and each checkpoint's barrier, or its cancel marker.
_CHANNEL = st.lists(st.sampled_from(["row", "row", "barrier", "barrier", "cancel"]), max_size=12)


@settings(max_examples=examples(150))
@given(
    scripts=st.lists(_CHANNEL, min_size=1, max_size=3),
    turns=st.lists(st.integers(0, 3), max_size=40),
    capacity=st.integers(1, 4),
    guard=st.sampled_from([24, 1 << 20]),
)
def test_each_snapshot_has_the_rows_before_its_barriers(
    scripts: Sequence[list[str]], turns: list[int], capacity: int, guard: int
) -> None:
    """`turns` says which channel is fed next, or that the task takes a message."""
    fed = Aligned(len(scripts), capacity, guard * ROW)
    before: list[dict[int, list[int]]] = [{} for _ in scripts]
    sent: list[list[int]] = [[] for _ in scripts]
    cancelled: set[int] = set()
    left = [[*script, "end"] for script in scripts]
    marks = [0] * len(scripts)

    def feed(channel: int) -> None:
        what = left[channel].pop(0)
        if what == "row":
            sent[channel].append(1000 * channel + len(sent[channel]))
            fed.feed(0, channel, rows(sent[channel][-1]))
        elif what == "end":
            fed.feed(0, channel, *END)
        else:
            marks[channel] += 1
            checkpoint = marks[channel]
            before[channel][checkpoint] = list(sent[channel])
            if what == "cancel":
                cancelled.add(checkpoint)
            fed.feed(0, channel, barrier(checkpoint) if what == "barrier" else CancelMarker(checkpoint))

    for turn in turns:
        if turn < len(scripts) and left[turn]:
            feed(turn)
        else:
            fed.work(steps=1)
    for channel, script in enumerate(left):
        while script:
            feed(channel)
    fed.work()
    assert fed.input.is_finished
    assert fed.out == 0
    for channel, numbers in enumerate(sent):
        assert [each for each in fed.done if each // 1000 == channel] == numbers
        for checkpoint, done in fed.snapshots.items():
            there = [each for each in done if each // 1000 == channel]
            assert there == before[channel].get(checkpoint, numbers)
    assert not cancelled & fed.snapshots.keys()
    assert fed.queued == 0
    told = [kind for kind, *_ in fed.watch.told]
    assert told.count("added") == told.count("left") == told.count("taken") == sum(map(len, sent))
