"""Watermark alignment as a protocol: nobody runs ahead by more than the drift, and nobody waits for ever."""

from __future__ import annotations

import random

import pytest

from headgate.exchange.watermark_alignment import AlignedSubtask, AlignmentGroup
from headgate.records.elements import MAX_TIME, MIN_TIME


def test_the_bound_is_the_least_watermark_and_the_drift() -> None:
    group = AlignmentGroup({7: 60}, 3)
    assert [group.on_report(7, 0, 100), group.on_report(7, 1, 50)] == [{}, {}]  # one subtask has not reported
    assert group.on_report(7, 2, MIN_TIME) == {7: MIN_TIME + 60}  # it has no rows yet: nobody may run ahead of it
    assert group.on_report(7, 2, None) == {7: 110}  # it is idle
    assert group.on_report(7, 2, 20) == {7: 80}  # it is active again, far behind
    assert group.on_report(7, 0, 200) == {}
    assert [group.on_report(7, 2, None), group.on_report(7, 1, None)] == [{7: 110}, {7: 260}]
    assert group.on_report(7, 0, None) == {7: MAX_TIME}  # nobody counts


def test_each_source_of_a_group_has_its_own_drift() -> None:
    group = AlignmentGroup({1: 60, 2: 10}, 3)
    assert [group.on_report(1, 0, 100), group.on_report(2, 0, 50)] == [{}, {}]
    assert group.on_report(2, 1, 70) == {1: 110, 2: 60}
    assert group.on_report(2, 0, 90) == {1: 130, 2: 80}
    assert group.on_report(2, 1, None) == {1: 150, 2: 100}  # the same subtask number as that of another source


def test_a_subtask_reports_what_its_driver_may_need() -> None:
    sent: list[int | None] = []
    subtask = AlignedSubtask(100, 0.01, sent.append)
    subtask.report(0.0, 0, waits=False)
    subtask.report(0.001, 24, waits=False)  # near
    subtask.report(0.002, 25, waits=False)  # far enough, but too soon
    subtask.report(0.012, 26, waits=False)
    assert sent == [0, 26]
    assert (subtask.has_news(26), subtask.has_news(27)) == (False, True)
    subtask.report(0.013, 27, waits=True)
    subtask.report(0.013, 27, waits=True)
    assert sent == [0, 26, 27]
    subtask.report(0.05, 28, waits=False)
    subtask.report(subtask.next_report, 28, waits=False)
    subtask.report(0.2, None, waits=False)
    subtask.report(0.2, None, waits=False)
    assert sent == [0, 26, 27, 28, None]


@pytest.mark.parametrize("seed", range(50))
def test_subtasks_of_any_speed_stay_together_and_all_end(seed: int) -> None:
    """Messages take random times, steps are of random sizes, and subtasks pause and end as they like."""
    chance = random.Random(seed)
    count, drift, now = chance.randint(2, 6), chance.randint(1, 1000), 0.0
    group = AlignmentGroup({0: drift}, count)
    to_driver: list[tuple[float, int, int | None]] = []
    to_tasks: list[tuple[float, int]] = []
    subtasks = [
        AlignedSubtask(drift, 0.001 * count, lambda watermark, n=n: to_driver.append((now, n, watermark)))  # type: ignore[misc]
        for n in range(count)
    ]
    steps = [chance.randint(1, drift) for _ in range(count)]
    ends = [chance.randint(0, 20_000) for _ in range(count)]
    watermarks = [MIN_TIME] * count
    running, worst = set(range(count)), 0
    for _ in range(200_000):
        if not running:
            break
        now += 0.001
        while to_driver and to_driver[0][0] + 0.002 <= now:
            _, number, watermark = to_driver.pop(0)
            to_tasks += [(now, bound) for bound in group.on_report(0, number, watermark).values()]
        while to_tasks and to_tasks[0][0] + 0.002 <= now:
            _, bound = to_tasks.pop(0)
            for subtask in subtasks:
                subtask.bound = bound
        for number in sorted(running):
            subtask, watermark = subtasks[number], watermarks[number]
            if watermark > subtask.bound:
                subtask.report(now, watermark, waits=True)
            elif watermark >= ends[number]:
                subtask.report(now, None, waits=True)
                running.discard(number)
            elif chance.random() < 0.7:
                watermarks[number] = max(watermark, 0) + steps[number]
                subtask.report(now, watermarks[number], waits=False)
            else:
                subtask.report(now, watermark, waits=False)
        active = [watermarks[number] for number in running]
        if len(active) > 1 and min(active) > MIN_TIME:
            worst = max(worst, max(active) - min(active))
    assert not running
    assert worst <= drift + max(steps)
