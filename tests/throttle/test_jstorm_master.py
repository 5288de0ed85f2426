"""JStormMaster: samples, the coordinator's rules, and the bisection of the sleep; a lost stop and a restart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.throttle.bisected_sleep import BisectedSleep
from headgate.throttle.jstorm_master import JStormMaster, LoadSampler, SleepingSource
from headgate.throttle.mechanism import Scope, SourcePolicy, Task
from headgate.throttle.ring_fill import RingFill
from headgate.throttle.throttle_coordinator import (
    Order,
    SleepLonger,
    SleepShorter,
    StartRequest,
    StopRequest,
    ThrottleCoordinator,
)

#: Two sources; 2 reads both, 3 reads the second one, 4 reads 2 and 4 itself.
READS: dict[int, list[int]] = {0: [], 1: [], 2: [0, 1], 3: [1], 4: [2, 4]}
SUBTASKS = {0: 2, 1: 1, 2: 10, 3: 1, 4: 4}
LEFT, RIGHT = ((0, 0), (0, 1)), ((1, 0),)


def coordinator(**options: Any) -> ThrottleCoordinator:
    return JStormMaster().coordinator(READS, SUBTASKS, **options)


# --- a subtask's samples


def samples(sampler: LoadSampler, *queued: int, worked_ms: float = 7.9) -> list[Any]:
    return [sampler.check(sampler.next_check, each, worked_ms) for each in queued]


def test_four_samples_over_the_high_mark_are_a_request() -> None:
    sampler = JStormMaster().sampler((2, 0), now=0.0)
    assert sampler.next_check == 0.5
    assert samples(sampler, 820, 820, 1024, 900) == [None, None, None, StartRequest((2, 0), flow_ms=7)]
    assert sampler.next_check == 2.5
    assert StartRequest((2, 0), 7).scope is Scope.DRIVER


def test_a_queue_has_room_again_when_its_consumer_has_handled_a_batch() -> None:
    """JStorm's consumer handles all that it finds as one batch, and frees the places when it has handled the last."""
    ring = RingFill(capacity=4)
    for queued in (1, 2, 3, 4):
        ring.added(queued)
    assert (ring.occupied, ring.has_room) == (4, False)
    for queued in (3, 2, 1):
        ring.taken(queued)
    assert (ring.occupied, ring.has_room) == (4, False)
    ring.taken(0)
    assert (ring.occupied, ring.has_room) == (0, True)


def test_messages_that_come_during_a_batch_wait_for_its_end() -> None:
    ring = RingFill(capacity=10)
    ring.added(1)
    ring.added(2)
    ring.taken(1)  # a batch of two
    ring.added(2)
    assert ring.occupied == 3
    ring.taken(1)
    assert ring.occupied == 3
    ring.taken(0)  # the next batch, of one
    assert ring.occupied == 0


@pytest.mark.parametrize("queued", [(819, 900, 900, 900), (900, 900, 0, 900), (0, 0, 900, 900), (500,) * 4])
def test_fewer_samples_over_the_high_mark_are_not(queued: tuple[int, ...]) -> None:
    assert samples(JStormMaster().sampler((2, 0), now=0.0), *queued) == [None] * 4


def test_a_request_is_repeated_while_it_has_a_reason() -> None:
    sampler = JStormMaster().sampler((2, 0), now=0.0)
    requests = samples(sampler, *[1000] * 12)
    assert [request for request in requests if request] == [StartRequest((2, 0), 7)] * 3


def test_only_a_subtask_that_has_asked_for_a_throttle_asks_for_its_end() -> None:
    sampler = JStormMaster().sampler((2, 0), now=0.0)
    assert samples(sampler, *[0] * 4) == [None] * 4
    samples(sampler, *[1000] * 4)
    assert samples(sampler, 51, 0, 52, 0) == [None] * 4  # 5 % of 1024 are 51.2
    assert samples(sampler, *[51] * 8)[3::4] == [StopRequest((2, 0))] * 2
    sampler.on_signal(9.0, SleepShorter(((2, 0),)))
    assert samples(sampler, *[0] * 4) == [None] * 4


def test_a_smaller_sample_rate_needs_fewer_samples() -> None:
    sampler = JStormMaster(sample_rate=0.75).sampler((2, 0), now=0.0)
    assert samples(sampler, 900, 500, 900, 900)[-1] == StartRequest((2, 0), 7)
    assert samples(sampler, 0, 0, 500, 0)[-1] == StopRequest((2, 0))
    assert samples(sampler, 0, 0, 500, 500)[-1] is None


def test_a_fill_at_the_high_mark_is_not_over_it_and_one_at_the_low_mark_is_low_enough() -> None:
    sampler = JStormMaster(receive_buffer=10, low=0.1).sampler((2, 0), now=0.0)
    assert samples(sampler, 8, 8, 8, 8)[-1] is None
    assert samples(sampler, 9, 9, 9, 9)[-1] == StartRequest((2, 0), 7)
    assert samples(sampler, 1, 1, 1, 1)[-1] == StopRequest((2, 0))


def test_as_many_samples_below_as_above_are_no_reason_to_start() -> None:
    sampler = JStormMaster(sample_rate=0.5).sampler((2, 0), now=0.0)
    assert samples(sampler, 900, 900, 0, 0)[-1] is None


# --- the coordinator


def test_a_request_lets_all_subtasks_of_all_sources_above_sleep_and_no_others() -> None:
    assert coordinator().on_signal(0.0, StartRequest((2, 3), 9)) == [SleepLonger((*LEFT, *RIGHT), 9)]
    assert coordinator().on_signal(0.0, StartRequest((3, 0), 9)) == [SleepLonger(RIGHT, 9)]
    assert SleepLonger(RIGHT, 9).scope is Scope.TASKS


def test_a_circle_in_the_job_is_walked_once() -> None:
    assert coordinator().on_signal(0.0, StartRequest((4, 0), 0)) == [SleepLonger((*LEFT, *RIGHT), 0)]


def test_one_of_eleven_subtasks_is_too_few() -> None:
    """The share must be 10 %. The first request starts the period, whether it was forwarded or not."""
    few = JStormMaster().coordinator({0: [], 1: [0]}, {0: 1, 1: 11})
    assert few.on_signal(0.0, StartRequest((1, 0), 1)) == []
    assert few.sleeping == frozenset()
    assert few.on_signal(1.0, StartRequest((1, 1), 1)) == []
    assert few.on_signal(2.1, StartRequest((1, 0), 1)) == [SleepLonger(((0, 0),), 1)]


def test_a_relieved_subtask_does_not_count_as_congested() -> None:
    few = JStormMaster().coordinator({0: [], 1: [0]}, {0: 1, 1: 11})
    few.on_signal(100.0, StartRequest((1, 0), 1))
    few.on_signal(101.0, StopRequest((1, 0)))
    assert few.on_signal(103.0, StartRequest((1, 1), 1)) == []
    assert few.on_signal(106.0, StartRequest((1, 0), 1)) == [SleepLonger(((0, 0),), 1)]


def test_the_last_forwarded_request_about_a_source_counts_for_all_operators() -> None:
    master = coordinator()
    assert master.on_signal(100.0, StartRequest((3, 0), 10))
    assert master.on_signal(101.0, StartRequest((2, 0), 10)) == [SleepLonger(LEFT, 10)]  # the right one has just begun
    assert master.on_signal(103.0, StopRequest((3, 0))) == [SleepShorter(RIGHT)]
    assert master.on_signal(103.1, StartRequest((2, 0), 10))
    assert master.on_signal(104.0, StartRequest((3, 0), 10)) == []


def test_a_request_within_the_period_is_not_forwarded() -> None:
    master = coordinator()
    master.on_signal(0.0, StartRequest((3, 0), 10))
    assert master.on_signal(2.0, StartRequest((3, 0), 10)) == []
    assert master.on_signal(2.0, StartRequest((3, 0), 15)) == []
    assert master.on_signal(2.01, StartRequest((3, 0), 1)) == [SleepLonger(RIGHT, 1)]


def test_a_request_for_more_than_5_ms_longer_is_forwarded_at_once() -> None:
    master = coordinator()
    master.on_signal(0.0, StartRequest((3, 0), 10))
    assert master.on_signal(0.1, StartRequest((3, 0), 16)) == [SleepLonger(RIGHT, 16)]
    assert master.on_signal(0.2, StartRequest((2, 0), 21))[0] == SleepLonger(LEFT, 21)


def test_a_start_after_a_stop_is_forwarded_at_once() -> None:
    master = coordinator()
    master.on_signal(0.0, StartRequest((3, 0), 10))
    assert master.on_signal(2.1, StopRequest((3, 0))) == [SleepShorter(RIGHT)]
    assert master.on_signal(2.2, StartRequest((3, 0), 10)) == [SleepLonger(RIGHT, 10)]


def test_a_stop_within_the_period_is_not_forwarded() -> None:
    master = coordinator()
    master.on_signal(0.0, StartRequest((3, 0), 10))
    assert master.on_signal(2.0, StopRequest((3, 0))) == []


def test_a_subtask_is_answered_when_no_source_above_it_sleeps() -> None:
    assert coordinator().on_signal(0.0, StopRequest((3, 0))) == [SleepShorter(((3, 0),))]


def test_a_source_that_has_stopped_sleeping_relieves_the_operators_below_it() -> None:
    master = coordinator()
    master.on_signal(0.0, StartRequest((2, 0), 10))
    assert master.sleeping == {*LEFT, *RIGHT}
    assert master.on_signal(3.0, StopRequest((1, 0))) == []  # the other source still sleeps
    assert master.on_signal(3.0, StopRequest((0, 0))) == []
    assert master.sleeping == {(0, 1)}
    assert master.on_signal(3.0, StopRequest((0, 1))) == [SleepShorter(tuple((2, each) for each in range(10)))]
    assert master.sleeping == frozenset()
    assert master.on_signal(4.0, StopRequest((0, 1))) == []


def test_a_stop_of_an_operator_that_the_coordinator_has_forgotten_is_lost() -> None:
    """The original fails here with a null pointer: operator 3 is marked, but its entry went with the source's."""
    master = coordinator()
    master.on_signal(0.0, StartRequest((3, 0), 10))
    master.on_signal(1.0, StopRequest((1, 0)))
    master.on_signal(2.0, StartRequest((2, 0), 10))
    assert master.on_signal(5.0, StopRequest((3, 0))) == []


def test_a_source_with_a_throttle_of_its_own_gets_no_orders_and_is_not_waited_for() -> None:
    """Source 1 is the only one above operator 3."""
    master = coordinator(never_asleep=[1])
    assert master.on_signal(0.0, StartRequest((2, 0), 10)) == [SleepLonger(LEFT, 10)]
    assert master.on_signal(0.0, StartRequest((3, 0), 10)) == []
    assert master.on_signal(1.0, StopRequest((3, 0))) == [SleepShorter(((3, 0),))]


# --- the sleep of a source


def test_the_sleep_is_searched_by_halves() -> None:
    sleep, seen = BisectedSleep(), []
    for flow in (100, 100, None, 100, 100, 40, None, None, 0, 300):
        _ = sleep.stop() if flow is None else sleep.start(flow)
        seen.append(sleep.milliseconds)
    assert seen == [100, 101, 50, 75, 88, 95, 72, 36, 37, 300]


@pytest.mark.parametrize(
    ("before", "flow", "after"),
    [
        ([], 0, 1),  # no time is known
        ([], 8, 8),  # longer than all before
        ([8], 8, 9),  # the same again
        ([8, None], 8, 6),  # half the way to it
        ([8, 9, None], 9, 7),  # ceil((9 + 4) / 2)
        ([20, None], 5, 15),  # between it and the longest: half the way to the longest
        ([20, None], 12, 11),  # below it: half the way to it
        ([20, 0], 5, 22),  # at the longest already
        ([8, None, None, None, None], 5, 5),  # a sleep that has ended is forgotten
    ],
)
def test_a_start_lengthens_the_sleep(before: list[int | None], flow: int, after: int) -> None:
    sleep = BisectedSleep()
    for each in before:
        _ = sleep.stop() if each is None else sleep.start(each)
    sleep.start(flow)
    assert sleep.milliseconds == after


def test_stops_alone_end_the_sleep() -> None:
    sleep = BisectedSleep()
    sleep.start(8)
    steps = [(sleep.stop(), sleep.milliseconds) for _ in range(4)]
    assert steps == [(False, 4), (False, 2), (False, 1), (True, 0)]


@given(orders=st.lists(st.one_of(st.none(), st.integers(-1, 50)), max_size=40))
def test_a_start_always_lengthens_and_a_stop_never_does(orders: list[int | None]) -> None:
    sleep = BisectedSleep()
    for flow in orders:
        before = sleep.milliseconds
        if flow is None:
            assert sleep.stop() is (sleep.milliseconds == 0)
            assert sleep.milliseconds <= before
        else:
            sleep.start(flow)
            assert sleep.milliseconds > before


def sleeps(source: SleepingSource) -> bool:
    """Return whether the source sleeps after a message."""
    source.emitted(0.0, 1)
    return source.permit(0.0) > 0.0


def test_a_source_sleeps_after_each_message_to_each_destination() -> None:
    source = JStormMaster().sleeping_source((0, 0), now=1.0, destinations=3)
    policy: SourcePolicy = source
    policy.emitted(2.0, 100)
    assert policy.permit(2.0) <= 2.0
    source.on_signal(2.0, SleepLonger(LEFT, 4))
    policy.emitted(2.0, 100)
    assert policy.permit(2.0) == pytest.approx(2.012)


def test_a_source_whose_sleep_is_over_tells_the_coordinator() -> None:
    source = JStormMaster().sleeping_source((0, 0), now=0.0)
    source.on_signal(0.0, SleepLonger(LEFT, 1))
    assert source.on_signal(0.0, SleepShorter(LEFT)) == StopRequest((0, 0))


# --- all parts


class Job:
    """A source of two subtasks, and one subtask that works `worked_ms` on each message. A turn lasts 500 ms."""

    def __init__(self, worked_ms: float) -> None:
        mechanism = JStormMaster()
        self.worked_ms = worked_ms
        self.now, self.queued = 0.0, 0.0
        self.sampler = mechanism.sampler((1, 0), now=0.0)
        self.sources = [mechanism.sleeping_source((0, number), now=0.0) for number in range(2)]
        self.coordinator = mechanism.coordinator({0: [], 1: [0]}, {0: 2, 1: 1})
        self.lost: set[Task] = set()

    def turn(self) -> float:
        """Return the rate of the sources in messages per second. At most 2000 come from each."""
        rate = sum(min(2000.0, 1000 / self._sleep(source)) for source in self.sources)
        self.queued = max(0.0, self.queued + 0.5 * (rate - 1000 / self.worked_ms))
        self.now += 0.5
        if request := self.sampler.check(self.now, int(self.queued), self.worked_ms):
            self._carry(self.coordinator.on_signal(self.now, request))
        return rate

    def _sleep(self, source: SleepingSource) -> float:
        source.emitted(self.now, 1)
        return (source.permit(self.now) - self.now) * 1000 or 0.5

    def _carry(self, orders: list[Order]) -> None:
        for order in orders:
            for task in order.tasks:
                if task in self.lost and isinstance(order, SleepShorter):
                    continue
                if task[0] == 1:
                    assert isinstance(order, SleepShorter)
                    self.sampler.on_signal(self.now, order)
                elif request := self.sources[task[1]].on_signal(self.now, order):
                    self._carry(self.coordinator.on_signal(self.now, request))


def test_the_sources_come_to_the_rate_of_the_slow_subtask() -> None:
    job = Job(worked_ms=10.0)
    rates = [job.turn() for _ in range(1200)]
    assert rates[0] == 4000
    assert sum(rates[600:]) / 600 == pytest.approx(100, rel=0.2)


def test_a_subtask_that_gets_fast_ends_the_sleep() -> None:
    job = Job(worked_ms=10.0)
    for _ in range(100):
        job.turn()
    job.worked_ms = 0.01
    for _ in range(240):
        job.turn()
    assert job.turn() == 4000
    assert not job.sampler.is_marked
    assert job.coordinator.sleeping == frozenset()


def test_a_lost_stop_leaves_one_source_asleep() -> None:
    """Issue 404 of JStorm: the others go on, and the congestion is over, but one source sleeps for ever."""
    job = Job(worked_ms=10.0)
    for _ in range(100):
        job.turn()
    job.worked_ms = 0.01
    job.lost = {(0, 1)}
    for _ in range(2000):
        job.turn()
    assert [sleeps(source) for source in job.sources] == [False, True]
    assert job.coordinator.sleeping == {(0, 1)}


def test_a_lost_start_comes_again_after_two_seconds() -> None:
    master, source = coordinator(), JStormMaster().sleeping_source((1, 0), now=0.0)
    assert master.on_signal(0.0, StartRequest((3, 0), 10))  # lost
    (order,) = master.on_signal(2.01, StartRequest((3, 0), 10))
    source.on_signal(2.01, order)
    assert sleeps(source)


def test_a_coordinator_that_has_forgotten_everything_leaves_sources_asleep_until_a_request() -> None:
    """JStorm stores the coordinator's state in ZooKeeper for this reason."""
    source, sampler = JStormMaster().sleeping_source((1, 0), 0.0), JStormMaster().sampler((3, 0), 0.0)
    (request,) = [each for each in samples(sampler, *[1000] * 4) if each]
    (order,) = coordinator().on_signal(2.0, request)
    source.on_signal(2.0, order)
    (request,) = [each for each in samples(sampler, *[0] * 4) if each]
    assert coordinator().on_signal(4.1, request) == [SleepShorter(((3, 0),))]  # the source gets nothing
    assert sleeps(source)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"samples": 0}, "samples=0 is impossible: it must be a whole number of at least 1"),
        ({"receive_buffer": 1.5}, "receive_buffer=1.5 is impossible"),
        ({"trigger_ratio": 0}, "trigger_ratio=0 is impossible: it must be a fraction above 0 and up to 1"),
        ({"sample_rate": 1.1}, "sample_rate=1.1 is impossible"),
        ({"low": 0.8}, "low=0.8 and high=0.8 are impossible"),
        ({"check_interval": "0 s"}, "check_interval='0 s' is impossible: it must be above 0"),
        ({"check_interval": "x"}, "check_interval: 'x' is not a duration"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        JStormMaster(**wrong)
