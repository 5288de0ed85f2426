"""HeronSpout: what Heron's tests of its stream manager hold, and how its signals fail."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.throttle.heron_spout import HeronSpout, HeronWorker, StartBackPressure, StopBackPressure
from headgate.throttle.mechanism import NEVER, Scope, SourcePolicy

HIGH, LOW = 1 << 20, 500 << 10
BOLT, OTHER_BOLT = (1, 0), (1, 1)


def worker(number: int = 0) -> HeronWorker:
    return HeronSpout(HIGH, LOW).worker(number)


def fill(worker: HeronWorker, end: Any, sends: int = 4) -> list[Any]:
    return [worker.sent(end, HIGH) for _ in range(sends)]


def test_the_defaults_are_those_of_heron() -> None:
    heron = HeronSpout().worker(0)
    assert [heron.sent(BOLT, 100 << 20) for _ in range(4)][-1] == StartBackPressure(0)
    assert heron.drained(BOLT, (50 << 20) + 1) is None
    assert heron.drained(BOLT, 50 << 20) == StopBackPressure(0)


def test_the_fourth_send_in_turn_with_too_many_unsent_bytes_stops_all_sources() -> None:
    heron = worker(7)
    assert fill(heron, BOLT) == [None, None, None, StartBackPressure(7)]
    assert StartBackPressure(7).scope is StopBackPressure(7).scope is Scope.EVERYONE


def test_a_send_with_fewer_unsent_bytes_begins_the_count_again() -> None:
    heron = worker()
    fill(heron, BOLT, 3)
    assert heron.sent(BOLT, HIGH - 1) is None
    assert fill(heron, BOLT, 3) == [None] * 3
    assert heron.sent(BOLT, HIGH) == StartBackPressure(0)


def test_only_a_send_ends_the_count() -> None:
    """Heron looks at the count when a message is added, not when bytes are sent."""
    heron = worker()
    fill(heron, BOLT, 3)
    heron.drained(BOLT, 0)
    assert heron.sent(BOLT, HIGH) == StartBackPressure(0)


def test_each_connection_counts_for_itself() -> None:
    heron = worker()
    assert fill(heron, BOLT, 3) + fill(heron, OTHER_BOLT, 3) == [None] * 6


def test_sources_wait_between_the_marks() -> None:
    heron = worker()
    policy: SourcePolicy = heron
    assert policy.permit(3.0) == 3.0
    fill(heron, BOLT)
    assert policy.permit(3.0) == NEVER
    heron.drained(BOLT, LOW + 1)
    assert policy.permit(3.0) == NEVER
    heron.drained(BOLT, LOW)
    assert policy.permit(3.0) == 3.0


def test_more_full_connections_send_no_more_signals() -> None:
    heron = worker()
    fill(heron, BOLT)
    assert fill(heron, OTHER_BOLT, 10) == [None] * 10
    assert heron.drained(BOLT, 0) is None
    assert heron.drained(OTHER_BOLT, 0) == StopBackPressure(0)
    assert heron.drained(OTHER_BOLT, 0) is None


def test_a_connection_that_has_drained_is_full_again_only_after_four_sends() -> None:
    heron = worker()
    fill(heron, BOLT, 9)
    heron.drained(BOLT, 0)
    assert fill(heron, BOLT) == [None, None, None, StartBackPressure(0)]


# --- Heron's stmgr_unittest, with marks of 1 MB and 500 KB. There, the bolts die instead of going on.


def test_back_pressure_instance() -> None:
    """The bolts stand still: the peer gets START. They go on: the peer gets exactly one STOP."""
    heron, peer = worker(0), worker(1)
    signals = [*fill(heron, BOLT, 20), *fill(heron, OTHER_BOLT, 20)]
    assert [signal for signal in signals if signal] == [StartBackPressure(0)]
    peer.on_signal(0.0, StartBackPressure(0))
    assert peer.throttled
    assert [heron.drained(BOLT, 0), heron.drained(OTHER_BOLT, 0)] == [None, StopBackPressure(0)]
    peer.on_signal(0.0, StopBackPressure(0))
    assert not peer.throttled


def test_spout_death_under_back_pressure() -> None:
    """A source that starts meanwhile waits as the others do; then comes one STOP."""
    heron = worker()
    fill(heron, BOLT)
    assert heron.permit(5.0) == NEVER
    assert heron.drained(BOLT, 0) == StopBackPressure(0)
    assert heron.permit(5.0) == 5.0


# --- several TaskManagers, and what fails


def test_sources_wait_until_all_taskmanagers_have_said_stop() -> None:
    heron = worker(0)
    heron.on_signal(0.0, StartBackPressure(1))
    heron.on_signal(0.0, StartBackPressure(2))
    fill(heron, BOLT)
    heron.on_signal(0.0, StopBackPressure(1))
    assert heron.throttled
    heron.drained(BOLT, 0)
    assert heron.throttled
    heron.on_signal(0.0, StopBackPressure(2))
    assert not heron.throttled


def test_a_lost_stop_stops_the_sources_until_the_next_congestion_is_over() -> None:
    """Nothing repeats it, and no time limit ends it."""
    heron, peer = worker(0), worker(1)
    fill(heron, BOLT)
    peer.on_signal(0.0, StartBackPressure(0))
    assert heron.drained(BOLT, 0)  # lost
    assert peer.permit(1e9) == NEVER
    again, over = fill(heron, BOLT)[-1], heron.drained(BOLT, 0)
    assert over is not None
    peer.on_signal(0.0, again)
    peer.on_signal(0.0, over)
    assert peer.permit(1e9) == 1e9


def test_a_lost_start_leaves_the_sources_of_others_running() -> None:
    heron, peer = worker(0), worker(1)
    assert fill(heron, BOLT)[-1]  # lost
    assert fill(heron, BOLT, 1000) == [None] * 1000
    assert (heron.throttled, peer.throttled) == (True, False)


@pytest.mark.parametrize(
    ("high", "low", "says"),
    [
        (10, 11, "low=11 and high=10 are impossible: both must be above 0, and low at most high"),
        (10, 0, "low=0 and high=10 are impossible"),
        ("many", 10, "'many' is not a size"),
    ],
)
def test_impossible_values_are_refused(high: Any, low: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        HeronSpout(high, low)
