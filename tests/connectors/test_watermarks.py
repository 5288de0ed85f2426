"""Watermarks: the largest time minus the bound, never back; units, nulls, and an idle clock that can stop."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.connectors.watermarks import IdleTimer, WatermarkGenerator
from headgate.operators.operator import MAX_TIME, MIN_TIME

MICROSECONDS = pa.timestamp("us")


def batch(*times: int | None, type_: pa.DataType = MICROSECONDS) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array([0] * len(times), pa.int64()), "t": pa.array(times, pa.int64()).cast(type_)})


def test_the_watermark_is_the_largest_time_minus_the_bound_and_never_goes_back() -> None:
    generator = WatermarkGenerator("t", batch().schema, out_of_orderness=10)
    assert generator.watermark == MIN_TIME
    assert [generator.observe(batch(*times), 0) for times in [(100, 50), (90,), (120, 130)]] == [90, 90, 120]
    assert [generator.observe(batch(*times), 3) for times in [(7,), (139,), (141,)]] == [120, 129, 131]


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(-1000, 1000), min_size=1, max_size=4)), max_size=12),
       st.integers(0, 50))  # fmt: skip
def test_only_rows_beyond_the_bound_are_late(steps: list[tuple[int, list[int]]], bound: int) -> None:
    generator, last, largest = WatermarkGenerator("t", batch().schema, out_of_orderness=bound), MIN_TIME, MIN_TIME
    for split, times in sorted(steps, key=lambda step: step[0]):
        now = generator.observe(batch(*times), split)
        largest = max(largest, *times)
        assert last <= now == largest - bound
        last = now


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    ("unit", "value", "us"), [("s", -3, -3_000_000), ("ms", 7, 7000), ("us", 7, 7), ("ns", -1, -1)]
)
def test_times_of_every_unit_become_microseconds(unit: str, value: int, us: int, zone: str | None) -> None:
    rows = batch(value, type_=pa.timestamp(unit, zone))
    assert WatermarkGenerator("t", rows.schema).observe(rows, 0) == us


def test_times_at_the_ends_of_the_range_stay_within_it() -> None:
    rows = batch(MAX_TIME, type_=pa.timestamp("s"))
    assert WatermarkGenerator("t", rows.schema).observe(rows, 0) == MAX_TIME - 1
    rows = batch(MIN_TIME, type_=pa.timestamp("s"))
    assert WatermarkGenerator("t", rows.schema, out_of_orderness=5).observe(rows, 0) == MIN_TIME


def test_a_reader_that_knows_more_than_its_rows_says_so() -> None:
    generator = WatermarkGenerator("t", batch().schema, out_of_orderness=10)
    assert [generator.reach(time) for time in (MIN_TIME, 50, 40)] == [MIN_TIME, 50, 50]
    assert generator.observe(batch(55), 0) == 50
    assert generator.observe(batch(70), 0) == 60
    assert generator.reach(50) == generator.position() == 60
    assert generator.reach(MAX_TIME) == MAX_TIME - 1


def test_a_null_time_is_an_error_unless_it_is_late() -> None:
    rows = batch(5, None, None)
    with pytest.raises(hg.DataError, match=r"column 't' is null in 2 of 3 rows, so they have no event time"):
        WatermarkGenerator("t", rows.schema).observe(rows, 0)
    late = WatermarkGenerator("t", rows.schema, on_null_time="late")
    assert [late.observe(batch(None), 0), late.observe(rows, 0), late.observe(batch(None), 0)] == [MIN_TIME, 5, 5]


def test_a_missing_column_and_one_without_times_are_refused() -> None:
    with pytest.raises(hg.PlanError, match=r"there is no column 'u'; the source has: x int64, t timestamp\[us\]"):
        WatermarkGenerator("u", batch().schema)
    with pytest.raises(hg.PlanError, match="column 'x' is int64, not a timestamp"):
        WatermarkGenerator("x", batch().schema)


def test_a_subtask_is_idle_after_the_timeout_without_a_batch() -> None:
    now = 100.0
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5.0, clock=lambda: now)
    assert [generator.is_idle(time) for time in (100.0, 104.9, 105.0)] == [False, False, True]
    now = 106.0
    generator.observe(batch(1), 0)
    assert [generator.is_idle(time) for time in (106.0, 110.9, 111.0)] == [False, False, True]
    assert not WatermarkGenerator("t", batch().schema, clock=lambda: now).is_idle(np.inf)


def test_the_idle_clock_stops_while_the_reader_is_held_back() -> None:
    timer = IdleTimer(5.0, 0.0)
    timer.pause(3.0)
    timer.pause(4.0)
    assert not timer.is_over(1000.0)
    timer.resume(1000.0)
    timer.resume(1001.0)
    assert [timer.is_over(time) for time in (1001.9, 1002.0)] == [False, True]
    timer.pause(1002.0)
    timer.restart(1003.0)  # a batch comes that was read before the pause
    timer.resume(1010.0)
    assert [timer.is_over(time) for time in (1014.9, 1015.0)] == [False, True]


def test_after_a_restart_the_watermark_resumes_where_it_was() -> None:
    def restored(subtask: int, parallelism: int) -> WatermarkGenerator:
        generator = WatermarkGenerator("t", batch().schema, out_of_orderness=10)
        generator.restore(json.loads(json.dumps(positions)), subtask, parallelism)
        return generator

    old = [WatermarkGenerator("t", batch().schema, out_of_orderness=10) for _ in range(2)]
    old[0].observe(batch(100), 0)
    old[1].observe(batch(70), 1)
    positions = [generator.position() for generator in old]
    assert positions == [90, 60]
    assert [restored(subtask, 2).watermark for subtask in range(2)] == [90, 60]
    assert [restored(subtask, 3).watermark for subtask in range(3)] == [60, 60, 60]
    assert [restored(0, 2).observe(batch(time), 0) for time in (95, 101)] == [90, 91]
    positions = [WatermarkGenerator("t", batch().schema).position()]
    assert restored(0, 1).watermark == MIN_TIME


def test_of_splits_that_are_read_at_once_the_slowest_counts() -> None:
    generator = WatermarkGenerator("t", batch().schema, out_of_orderness=10)
    observe = generator.observe_splits
    assert observe(batch(100, 90), [(0, 2)], [0, 1]) == MIN_TIME, "split 1 has given no row"
    assert observe(batch(50, 120), [(1, 1), (0, 1)], [0, 1]) == 40
    assert observe(batch(80, 60, 200), [(1, 2), (0, 1)], [0, 1]) == 70
    assert observe(batch(), [], [0]) == 190, "split 1 has ended"
    assert observe(batch(1), [(2, 1)], [0, 2]) == 190, "a new split with older rows does not move it back"
    assert observe(batch(300), [(2, 1)], [0, 2]) == 190
    assert observe(batch(250), [(0, 1)], [0, 2]) == 240


def test_splits_that_become_idle_at_once_let_the_watermark_reach_the_least_of_their_times() -> None:
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5, clock=lambda: 0.0)
    assert generator.observe_splits(batch(100, 70), [(0, 1), (1, 1)], [0, 1, 2]) == MIN_TIME
    assert generator.leave_idle_splits(5.0) == 70


def test_a_split_without_rows_holds_back_the_others_only_for_the_idle_timeout() -> None:
    now = 0.0
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5, clock=lambda: now)
    assert generator.observe_splits(batch(100), [(0, 1)], [0, 1]) == MIN_TIME
    assert generator.leave_idle_splits(4.9) == MIN_TIME
    now = 3.0
    assert generator.observe_splits(batch(110), [(0, 1)], [0, 1]) == MIN_TIME
    generator.pause(4.0)
    generator.resume(104.0)
    assert generator.leave_idle_splits(104.9) == MIN_TIME, "the pause does not count"
    assert generator.leave_idle_splits(105.1) == 110
    assert not generator.is_idle(105.1)
    assert generator.is_idle(108.1)
    now = 109.0
    assert generator.observe_splits(batch(90), [(1, 1)], [0, 1]) == 110, "it never goes back"
    now = 110.0
    assert generator.observe_splits(batch(130, 120), [(1, 1), (0, 1)], [0, 1]) == 120


def test_the_splits_that_hold_the_watermark_are_those_with_the_least_time() -> None:
    now = 0.0
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5, clock=lambda: now)
    assert generator.holding_splits(now) == {}
    assert generator.silence(now) is None
    generator.observe_splits(batch(100), [(0, 1)], [0, 1, 2])
    assert generator.holding_splits(now) == {1: MIN_TIME, 2: MIN_TIME}, "they have had no rows"
    now = 3.0
    generator.observe_splits(batch(70, 90), [(1, 1), (2, 1)], [0, 1, 2])
    assert generator.holding_splits(now) == {1: 70}
    assert (generator.silence(now), generator.silence(5.0)) == (0.0, 2.0)
    assert generator.holding_splits(6.0) == {1: 70}, "split 0 is idle"
    now = 7.0
    generator.observe_splits(batch(120), [(0, 1)], [0, 1, 2])
    assert generator.holding_splits(9.0) == {0: 120}, "the others are idle"
    generator.pause(8.0)
    assert generator.silence(9.0) == 2.0, "a pause counts"
    generator.resume(8.0)
    assert generator.holding_splits(20.0) == {}, "all are idle"
    generator.observe_splits(batch(), [], [2])
    assert generator.holding_splits(7.0) == {2: 90}, "the others have ended"


def test_a_split_that_is_read_without_rows_becomes_idle() -> None:
    now = 0.0
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5, clock=lambda: now)
    assert generator.observe_splits(batch(100, 70), [(0, 1), (1, 1)], [0, 1]) == 70
    now = 4.0
    assert generator.observe_splits(batch(110), [(0, 1), (1, 0)], [0, 1]) == 70
    now = 5.0
    assert generator.observe_splits(batch(120), [(0, 1), (1, 0)], [0, 1]) == 120


def test_of_splits_with_the_same_time_that_without_rows_for_longest_counts() -> None:
    now = 0.0
    generator = WatermarkGenerator("t", batch().schema, clock=lambda: now)
    generator.observe_splits(batch(70, 70, 90), [(0, 1), (1, 1), (2, 1)], [0, 1, 2])
    now = 8.0
    generator.observe_splits(batch(70), [(1, 1)], [0, 1, 2])
    assert generator.silence(9.0) == 9.0
    generator.observe_splits(batch(70), [(0, 1)], [0, 1, 2])
    assert generator.silence(9.0) == 1.0, "split 2 is further"


def test_splits_that_are_read_at_once_keep_their_times_over_a_restart() -> None:
    """A split that has no more rows after the restart holds back nothing."""
    before = WatermarkGenerator("t", batch().schema)
    assert before.observe_splits(batch(100, 50), [(0, 1), (1, 1)], [0, 1, 2]) == MIN_TIME
    assert before.split_times() == {0: 100, 1: 50}
    after = WatermarkGenerator("t", batch().schema)
    after.restore([before.position()], 0, 1)
    after.restore_splits([0, 1], before.split_times())
    assert after.leave_idle_splits(0.0) == 50
    assert after.observe_splits(batch(110), [(1, 1)], [0, 1]) == 100
    assert after.observe_splits(batch(120), [(0, 1)], [0, 1, 5]) == 100, "a new split holds it back"


def test_splits_far_ahead_of_the_slowest_wait_for_it() -> None:
    now = 0.0
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5, max_drift=10, clock=lambda: now)
    generator.observe_splits(batch(20, 30, 31), [(0, 1), (1, 1), (2, 1)], [0, 1, 2])
    assert generator.splits_ahead(now) == {2}
    generator.observe_splits(batch(21), [(0, 1)], [0, 1, 2])
    assert generator.splits_ahead(now) == frozenset()
    generator.observe_splits(batch(), [], [0, 1, 2, 3])  # no row of split 3 yet: nobody may be far ahead of it
    assert generator.splits_ahead(now) == {0, 1, 2}
    generator.observe_splits(batch(), [], [0, 2])
    assert generator.splits_ahead(now) == frozenset()
    alone = WatermarkGenerator("t", batch().schema)
    alone.observe_splits(batch(20, 90), [(0, 1), (1, 1)], [0, 1])
    assert alone.splits_ahead(now) == frozenset()


def test_a_split_that_waits_does_not_become_idle_but_the_slowest_may() -> None:
    now = 0.0
    generator = WatermarkGenerator("t", batch().schema, idle_timeout=5, max_drift=10, clock=lambda: now)
    generator.observe_splits(batch(20, 90), [(0, 1), (1, 1)], [0, 1])
    assert generator.splits_ahead(now) == {1}
    now = 4.0
    assert generator.splits_ahead(now) == {1}
    now = 5.0  # split 0 is idle, so split 1 is the slowest
    assert generator.leave_idle_splits(now) == 90
    assert generator.splits_ahead(now) == frozenset()
    assert not generator.is_idle(now)  # split 1 could not read
    now = 9.9
    assert not generator.is_idle(8.9)
    assert generator.is_idle(9.0)
