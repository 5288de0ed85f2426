"""Virtual time: the order of events, the time that they take, and the hash of what happened."""

from __future__ import annotations

import math

import pytest

from headgate.simulation.virtual_thread import VirtualThread
from headgate.simulation.world import EPOCH, EventLog, World


def test_events_run_in_the_order_of_their_times_and_equal_times_in_the_order_of_scheduling() -> None:
    world, ran = World(), list[tuple[str, float]]()
    for name, time in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
        world.at(time, lambda name=name: ran.append((name, world.clock())))  # type: ignore[misc]
    world.run()
    assert ran == [("first", 1.0), ("second", 1.0), ("late", 2.0)]


def test_the_time_that_an_event_spends_shows_on_its_clocks_only() -> None:
    world, seen = World(), list[float]()

    def event() -> None:
        world.spend(0.5)
        seen.append(world.clock())
        seen.append(world.wall())

    world.at(1.0, event)
    world.at(1.25, lambda: seen.append(world.clock()))
    world.run()
    assert seen == [1.5, EPOCH + 1.5, 1.25]


def test_a_run_ends_at_its_limit_and_the_next_one_goes_on() -> None:
    world, ran = World(), list[float]()
    for time in (1.0, 2.0, 3.0):
        world.at(time, lambda: ran.append(world.now))
    world.run(2.0)
    assert (ran, world.now, world.is_idle) == ([1.0, 2.0], 2.0, False)
    world.at(0.5, lambda: ran.append(world.now))  # in the past: now
    world.run()
    assert (ran, world.is_idle) == ([1.0, 2.0, 2.0, 3.0], True)


def test_a_stopped_run_leaves_the_other_events() -> None:
    world, ran = World(), list[float]()
    world.at(1.0, world.stop)
    world.at(2.0, lambda: ran.append(world.now))
    world.run(5.0)
    assert (ran, world.now) == ([], 1.0)


class Turns(VirtualThread):
    """A thread that notes the times of its turns. Each turn takes a second."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.times: list[float] = []

    def turn(self) -> float:
        self.times.append(self.world.now)
        self.world.spend(1.0)
        return math.inf


def test_wake_ups_during_a_turn_make_one_turn_after_it() -> None:
    world = World()
    thread = Turns(world)
    thread.wake()
    for time in (0.25, 0.5, 0.75):
        world.at(time, thread.wake)
    world.run()
    assert thread.times == [0.0, 1.0]


def test_an_earlier_wake_up_replaces_a_later_one() -> None:
    world = World()
    thread = Turns(world)
    thread.wake_at(5.0)
    world.at(1.0, thread.wake)
    world.run()
    assert thread.times == [1.0]


def test_a_thread_that_wakes_itself_during_its_turn_has_another_turn() -> None:
    world = World()

    class Again(Turns):
        def turn(self) -> float:
            if len(self.times) < 2:
                self.wake()
            return super().turn()

    thread = Again(world)
    thread.wake()
    world.run()
    assert thread.times == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("other", [(0.25, 1, 7.0), (0.5, 2, 7.0), (0.5, 1, 8.0)])
def test_each_part_of_an_event_is_in_the_hash(other: tuple[float, int, float]) -> None:
    one, two = EventLog(), EventLog()
    one.add(0.5, 1, 7.0)
    two.add(*other)
    assert one.sha256 != two.sha256


def test_the_hash_does_not_depend_on_when_it_is_read() -> None:
    one, two = EventLog(), EventLog()
    for number in range(10_000):
        one.add(number / 8, number, 1.0)
        two.add(number / 8, number, 1.0)
        if number % 1000 == 0:
            assert len(two.sha256) == 64
    assert one.sha256 == two.sha256
    assert one.events == 10_000
