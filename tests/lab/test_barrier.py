"""`barrier`, small: the order of barriers and rows, and the verdict."""

from __future__ import annotations

import pytest

from headgate.lab import barrier
from headgate.lab.barrier import BarrierRounds
from headgate.lab.places import MODES, processes


@pytest.mark.turns(2)
@pytest.mark.alone
@pytest.mark.parametrize("mode", MODES)
def test_a_siblings_barrier_beside_a_stall(mode: str) -> None:
    rounds = BarrierRounds()
    barrier.beside_a_stall(processes, mode, 3.0, rounds)
    ((took,), (rest,)) = rounds.sibling, rounds.rest_of_stall
    if mode == "credit":
        assert 0 < took < max(rest, 1.0), "B.3's barriers waited for the end of B.4's stall"
    else:
        assert took > rest / 2, "B.3's barriers came beside a stall"


@pytest.mark.turns(2)
@pytest.mark.alone
@pytest.mark.parametrize("mode", MODES)
def test_barriers_on_a_slow_channel(mode: str) -> None:
    rounds = BarrierRounds()
    barrier.on_a_slow_channel(processes, mode, rounds)
    assert rounds.slow[0] > 0
    assert rounds.queued[0] > 0
    assert len(rounds.overtaking) == (mode == "credit")


@pytest.mark.parametrize(
    ("sibling", "overtaking", "tcp", "met"),
    [(0.099, 0.099, 3.0, True), (0.1, 0.01, 3.1, False), (0.01, 0.1, 3.1, False), (0.01, 0.01, 2.99, False)],
)
def test_verdict_needs_all_three(sibling: float, overtaking: float, tcp: float, met: bool) -> None:
    credit = BarrierRounds([sibling], [3.0], [0.4], [0.4], [overtaking])
    result = barrier.report({"credit": credit, "tcp": BarrierRounds([tcp], [3.0], [2.0], [2.0])})
    assert result.met is met
    assert len(result.plots[0].series) == 4
