"""`isolation`, small: that it measures what it says, on processes and on Spark; not how steady this machine is."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.lab import isolation
from headgate.lab.isolation import BURNING, QUICK, Rounds
from headgate.lab.places import B3, B4, MODES, Place, processes, spark
from headgate.lab.probe import Seen, Stall
from tests.spark_session import SharedSpark


@pytest.mark.parametrize("mode", MODES)
def test_b4_stalls_and_b3_is_watched(mode: str) -> None:
    _stall_b4(processes, mode)


def test_a_stall_may_burn_python() -> None:
    _stall_b4(processes, "credit", burns=True)


@pytest.mark.timeout(300)
def test_it_runs_on_spark_too(shared_spark: SharedSpark) -> None:
    shared_spark.stop()
    with spark() as place:
        _stall_b4(place, "credit")


def _stall_b4(place: Place, mode: str, *, burns: bool = False) -> None:
    rate = 20_000.0
    seen = isolation.observe(place, mode, rate, 1.5, {B4: Stall(0.3, 1.0, burns)})
    assert sorted(seen) == [B3, B4]
    assert seen[B3].came.sum() == seen[B4].came.sum() == seen[B3].late.sum() == 1.5 * rate
    assert seen[B3].stalled is None
    stalled = seen[B4].stalled
    assert stalled is not None and stalled[0] >= 0.3 and stalled[1] - stalled[0] >= 1.0
    assert seen[B4].latency(99.9, 0, 1.5) >= 500  # rows that were due early in the stall waited for its end


def rounds_of_b3(kept: float, grown: float) -> Rounds:
    came, late = np.zeros(200, dtype=np.int64), np.zeros((200, 864), dtype=np.int64)
    before, during = int(QUICK.stall_at * 10), int(QUICK.counts_from * 10)
    came[:before], came[during:] = 1000, round(1000 * kept)
    late[:before, 320], late[during:, 320 + round(32 * np.log2(grown))] = 1, 1
    rounds = Rounds()
    rounds.add("B.3", Seen(0.0, came, late, None, {}), QUICK)
    return rounds


@pytest.mark.parametrize(("kept", "grown", "met"), [(0.95, 2.0, True), (0.949, 1.0, False), (1.0, 2.05, False)])
def test_verdict_needs_both_rate_and_latency(kept: float, grown: float, met: bool) -> None:
    result = isolation.report(
        {("processes", "credit"): rounds_of_b3(kept, grown)}, rounds_of_b3(0.5, 9.0), {}, QUICK, ()
    )
    figures = {figure.name: figure.median for figure in result.figures}
    assert figures["credit, processes: share of its rate kept"] == pytest.approx(kept)
    assert figures["credit, processes: growth of p99"] == pytest.approx(grown, rel=0.02)
    assert figures[f"{BURNING}: share of its rate kept"] == pytest.approx(0.5)
    assert result.met is met and len(result.plots[0].series) == 2


@pytest.mark.parametrize(("kept", "met"), [(0.099, True), (0.1, False)])
def test_over_plain_tcp_it_must_stand_still(kept: float, met: bool) -> None:
    assert (
        isolation.report({("processes", "tcp"): rounds_of_b3(kept, 1.0)}, rounds_of_b3(1.0, 1.0), {}, QUICK, ()).met
        is met
    )
