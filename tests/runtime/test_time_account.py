"""Where a task's time goes."""

from __future__ import annotations

from headgate.runtime.task.time_account import TimeAccount, Wait


def test_each_reason_has_its_own_seconds_and_an_open_wait_counts() -> None:
    now = 10.0
    times = TimeAccount(lambda: now)
    times.begin(Wait.SOFT)
    now = 12.0
    assert [times.seconds(why) for why in Wait] == [0.0, 2.0, 0.0]
    times.end()
    now = 20.0
    times.begin(Wait.HARD)
    now = 21.0
    times.end()
    times.begin(Wait.IDLE)
    now = 24.0
    assert [times.seconds(why) for why in Wait] == [3.0, 2.0, 1.0]
    times.reset()
    assert [times.seconds(why) for why in Wait] == [0.0, 0.0, 0.0]
