"""A job's history is exact while it is new, keeps peaks when it is old, and never outgrows its memory."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.observe.history import History, Point

SHORT = ((1.0, 13), (10.0, 12), (100.0, 2))


def test_values_of_one_second_are_one_bin() -> None:
    history = History()
    for at, value in ((10.0, 1.0), (10.5, 3.0), (10.9, 8.0), (11.0, 5.0)):
        history.record(at, {"busy": value})
    assert history.points("busy") == [Point(10.0, 1.0, 4.0, 8.0), Point(11.0, 5.0, 5.0, 5.0)]
    assert history.points("busy", 11.0) == [Point(11.0, 5.0, 5.0, 5.0)]
    assert history.points("busy", 10.0, 11.0) == [Point(10.0, 1.0, 4.0, 8.0)]


def test_what_is_old_is_coarse_and_keeps_its_peak() -> None:
    history = History(SHORT)
    for second in range(20, 35):
        history.record(float(second), {"queue": 90.0 if second == 23 else float(second - 20)})
    coarse, *fine = history.points("queue")
    assert (coarse.begin, coarse.least, coarse.largest) == (20.0, 0.0, 90.0)
    assert coarse.mean == pytest.approx((45 - 3 + 90) / 10)
    assert [point.begin for point in fine] == [30.0, 31.0, 32.0, 33.0, 34.0]


def test_only_the_bins_that_are_asked_for_are_read() -> None:
    """A page asks for five minutes of many series, and an hour has 3,600 bins."""
    history = History(SHORT)
    for second in range(1000, 1100):
        history.record(float(second), {"queue": 1.0})
    asked = [point.begin for point in history.points("queue") if 1060.0 <= point.begin < 1095.0]
    for each in (each for level in history._levels for each in level):
        if each.begin not in asked:
            del each.values
    assert asked[:2] == [1060.0, 1070.0]
    assert [point.begin for point in history.points("queue", 1060.0, 1095.0)] == asked


def test_a_clock_that_is_set_back_drops_what_lies_after_it() -> None:
    history = History(SHORT)
    for second in range(1000, 1100):
        history.record(float(second), {"queue": 1.0})
    for second in range(1050, 1060):
        history.record(float(second), {"queue": 2.0})
    begins = [point.begin for point in history.points("queue")]
    assert begins == sorted(set(begins))
    assert begins[-10:] == [float(second) for second in range(1050, 1060)]
    assert [point.mean for point in history.points("queue", 1050.0)] == [2.0] * 10
    assert len(history._open) == 1
    assert history.nbytes == sum(each.nbytes for level in history._levels for each in level)


def test_a_clock_that_is_set_back_a_little_goes_on_in_the_same_bin() -> None:
    history = History(SHORT)
    for at, value in ((1000.0, 1.0), (1005.0, 2.0), (1002.0, 6.0), (1006.0, 3.0)):
        history.record(at, {"queue": value})
    assert [(point.begin, point.mean) for point in history.points("queue")] == [
        (1000.0, 1.0),
        (1005.0, 4.0),
        (1006.0, 3.0),
    ]


def test_a_bin_that_is_joined_in_steps_keeps_the_mean() -> None:
    history = History(((1.0, 4), (10.0, 12), (100.0, 2)))
    for second in range(20, 31):
        history.record(float(second), {"a": float(second)})
    coarse, *fine = history.points("a")
    assert coarse.begin == 20.0
    assert coarse.mean == pytest.approx(sum(range(20, 30 - len(fine) + 1)) / (11 - len(fine)))


def test_a_series_that_begins_later_or_pauses_has_no_bins_in_between() -> None:
    history = History(SHORT)
    history.record(1.0, {"a": 1.0})
    history.record(2.0, {"a": 1.0, "b": 2.0})
    history.record(3.0, {"b": None, "a": math.nan})
    history.record(4.0, {"b": 4.0})
    assert [point.begin for point in history.points("b")] == [2.0, 4.0]
    assert [point.begin for point in history.points("a")] == [1.0, 2.0]
    assert history.points("c") == []
    assert history.names == ("a", "b")


def test_many_series_have_a_shorter_history_and_not_more_memory() -> None:
    history = History(max_bytes=1 << 20)
    values = {str(number): float(number) for number in range(1000)}
    for second in range(500):
        history.record(float(second), values)
    assert history.nbytes <= 1 << 20
    points = history.points("7")
    assert points[-1] == Point(499.0, 7.0, 7.0, 7.0)
    assert points[0].begin == 0.0
    assert {point.mean for point in points} == {7.0}


def test_the_oldest_is_forgotten() -> None:
    history = History(SHORT)
    for second in range(1000):
        history.record(float(second), {"a": float(second)})
    assert history.points("a")[0].begin >= 700.0


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 100, width=16)), min_size=1, max_size=60))
def test_least_and_largest_are_those_of_the_values(steps: list[tuple[int, float]]) -> None:
    """As long as nothing is forgotten, whatever was joined."""
    history, at, values = History(((1.0, 3), (10.0, 3), (100.0, 1000))), 0, []
    for step, value in steps:
        at += step
        history.record(float(at), {"a": value})
        values.append(value)
    points = history.points("a")
    assert min(point.least for point in points) == min(values)
    assert max(point.largest for point in points) == max(values)
    assert all(point.least <= point.mean * 1.0001 + 1e-6 for point in points)
    assert [point.begin for point in points] == sorted({point.begin for point in points})
