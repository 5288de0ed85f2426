"""Event time over several channels: the minimum over those that count, and never back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.exchange.watermark_valve import WatermarkValve
from headgate.records.elements import MAX_TIME, MIN_TIME
from tests.examples import examples


def test_the_slowest_channel_holds_the_others() -> None:
    valve = WatermarkValve(3)
    assert [valve.on_watermark(0, 5), valve.on_watermark(1, 7), valve.on_watermark(2, 3)] == [None, None, 3]
    assert [valve.on_watermark(2, 6), valve.on_watermark(0, 6), valve.on_watermark(2, 9)] == [5, 6, None]
    assert valve.output == 6


def test_a_channel_does_not_go_back() -> None:
    valve = WatermarkValve(1)
    assert [valve.on_watermark(0, 5), valve.on_watermark(0, 5), valve.on_watermark(0, 4), valve.output] == [
        5,
        None,
        None,
        5,
    ]


def test_an_idle_channel_holds_nothing_back() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    assert valve.on_status(1, False) == (5, None)
    assert valve.on_watermark(0, 8) == 8


def test_with_all_idle_the_task_is_idle_and_takes_the_latest_time() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    assert valve.on_status(0, False) == (None, None)
    assert valve.on_status(1, False) == (5, False)
    assert valve.on_status(1, False) == (None, None)
    assert valve.on_status(0, True) == (None, True)
    assert valve.on_watermark(0, 6) == 6


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_in_which_channels_become_idle_does_not_matter(order: tuple[int, ...]) -> None:
    """One subtask has read the only file, and all of them wait for more."""
    valve = WatermarkValve(4)
    valve.on_watermark(0, 5)
    for channel in order:
        valve.on_status(channel, False)
    assert valve.output == 5


def test_who_comes_back_behind_counts_again_when_it_has_caught_up() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(1, 2)
    valve.on_status(1, False)
    assert valve.on_watermark(0, 10) == 10
    assert valve.on_status(1, True) == (None, None)
    assert valve.on_watermark(1, 4) is None, "behind, and does not hold the other"
    assert valve.on_watermark(0, 12) == 12
    assert valve.on_watermark(1, 12) is None
    assert valve.on_watermark(0, 20) is None, "it has caught up, and holds again"
    assert valve.on_watermark(1, 15) == 15


def test_an_ended_channel_holds_nothing_back() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    assert valve.end(1) == (5, None)
    assert valve.end(0) == (MAX_TIME, None)


def test_the_end_is_reported_once_even_after_a_last_watermark() -> None:
    valve = WatermarkValve(1)
    assert valve.on_watermark(0, MAX_TIME) == MAX_TIME
    assert valve.end(0) == (None, None)
    assert valve.output == MAX_TIME


@pytest.mark.parametrize("last_watermark", [True, False])
def test_the_end_of_idle_channels_is_the_end(last_watermark: bool) -> None:
    """A source that is idle when it ends sends its last watermark first, which alone does not count."""
    valve = WatermarkValve(2)
    assert [valve.on_status(0, False), valve.on_status(1, False)] == [(None, None), (None, False)]
    output = []
    for channel in range(2):
        if last_watermark:
            output.append(valve.on_watermark(channel, MAX_TIME))
        output.append(valve.end(channel)[0])
    assert [time for time in output if time is not None] == [MAX_TIME]


def test_a_channel_that_has_ended_does_not_take_an_idle_one_to_the_end_of_time() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    valve.on_watermark(1, 5)
    valve.on_watermark(0, MAX_TIME)
    valve.end(0)
    assert valve.on_status(1, False) == (None, False), "those that are left are idle, and so is the task"
    assert valve.output == 5
    assert valve.on_status(1, True) == (None, True)
    assert valve.on_watermark(1, 6) == 6
    assert valve.end(1) == (MAX_TIME, None)


def test_when_the_last_active_channel_ends_the_task_is_idle() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    valve.on_status(1, False)
    assert valve.end(0) == (None, False)
    assert valve.output == 5


STEP = st.tuples(
    st.integers(0, 2),
    st.integers(0, 20).map(lambda time: ("watermark", time))
    | st.booleans().map(lambda active: ("status", active))
    | st.just(("end", MAX_TIME)),
)


@settings(max_examples=examples(300))
@given(st.lists(STEP, max_size=40))
def test_output_rises_only_and_lies_between_what_it_must_and_what_it_may(
    steps: list[tuple[int, tuple[str, int]]],
) -> None:
    valve = WatermarkValve(3)
    times, active, never_idle, task_active = [MIN_TIME] * 3, [True] * 3, [True] * 3, True
    for channel, (kind, value) in steps:
        if times[channel] == MAX_TIME:
            continue  # nothing follows an end
        before, status = valve.output, None
        if kind == "watermark":
            output = valve.on_watermark(channel, value)
            times[channel] = max(times[channel], value)
        elif kind == "end":
            output, status = valve.end(channel)
            times[channel] = MAX_TIME
        else:
            output, status = valve.on_status(channel, bool(value))
            active[channel] = bool(value)
            never_idle[channel] &= bool(value)
        left = [index for index in range(3) if times[index] < MAX_TIME]
        now_active = any(active[index] for index in left) if left else task_active
        assert status == (now_active if now_active != task_active else None)
        task_active = now_active
        assert valve.output >= before
        assert output == (valve.output if valve.output > before else None)
        assert now_active or valve.output >= max([times[index] for index in left], default=0), "idle, and held back"
        counting = [times[index] for index in left if active[index]]
        assert not counting or valve.output >= min(counting), "a channel that does not count holds the task back"
        assert all(valve.output <= times[index] for index in range(3) if never_idle[index])
        assert (valve.output == MAX_TIME) == (not left), "the end of time is when all have ended"
    told_at_the_end = [valve.end(channel)[0] for channel in range(3) if times[channel] < MAX_TIME]
    assert valve.output == MAX_TIME
    assert told_at_the_end[-1:] in ([], [MAX_TIME])


class LooksAtAll(WatermarkValve):
    """Trusts no count of those that hold it back."""

    def on_watermark(self, channel: int, time: int) -> int | None:
        self._holding = 0
        return super().on_watermark(channel, time)


@settings(max_examples=examples(300))
@given(st.lists(STEP, max_size=40))
def test_a_valve_that_looks_at_all_channels_says_the_same(steps: list[tuple[int, tuple[str, int]]]) -> None:
    valve, other = WatermarkValve(3), LooksAtAll(3)
    for channel, (kind, value) in steps:
        if kind == "watermark":
            assert valve.on_watermark(channel, value) == other.on_watermark(channel, value)
        elif kind == "end":
            assert valve.end(channel) == other.end(channel)
        else:
            assert valve.on_status(channel, bool(value)) == other.on_status(channel, bool(value))
