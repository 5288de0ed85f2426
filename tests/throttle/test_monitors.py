"""What all monitors have in common: one TaskManager can call them without knowing which one it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.throttle.jstorm_stages import JStormStages
from headgate.throttle.mechanism import Monitor, Scope, ThrottleSignal
from headgate.throttle.storm_status import StormStatus
from headgate.throttle.storm_zookeeper import StormZooKeeper

A, B = (1, 0), (1, 1)
MONITORS: dict[str, Callable[[], Monitor]] = {
    "StormStatus": lambda: StormStatus(receive_buffer=100).stages(0, [A, B], 0.0),
    "StormZooKeeper": lambda: StormZooKeeper(receive_buffer=100).worker("job", "host", [A, B], 0.0),
    "JStormStages": lambda: JStormStages(receive_buffer=100).stages(0, [A, B]),
}


def play(monitor: Monitor, start: float, *fills: int) -> list[ThrottleSignal]:
    """Let the queue of A have these numbers of messages, one after the other, each 100 ms. Return the signals."""
    signals: list[ThrottleSignal] = []
    before, now = fills[0], start
    for queued in fills[1:]:
        now += 0.1
        signals += monitor.added(now, A, queued, 1) if queued > before else monitor.taken(now, A, queued)
        if monitor.next_check <= now:
            signals += monitor.check(now)
        before = queued
    return signals


@pytest.mark.parametrize("name", MONITORS)
def test_a_full_queue_leads_to_a_signal_and_other_fills_do_not(name: str) -> None:
    monitor = MONITORS[name]()
    assert play(monitor, 0.0, *range(41), *range(39, -1, -1)) == []
    signals = play(monitor, 10.0, *range(102))
    assert signals
    assert {signal.scope for signal in signals} <= set(Scope)
