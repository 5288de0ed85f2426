"""`isolation`, small: B.3 flows with credit and stops over plain TCP, in local processes and on Spark.

The tests do not depend on how steady the machine is.
"""

from __future__ import annotations

import numpy as np
import pytest

from headgate.lab import isolation
from headgate.lab.isolation import BURNING, QUICK, Rounds
from headgate.lab.places import B3, B4, MODES, Place, processes, spark
from headgate.lab.probe import WINDOW, Seen, Stall
from tests.spark_session import SharedSpark


@pytest.mark.turns(2)
@pytest.mark.alone
@pytest.mark.parametrize("mode", MODES)
def test_b3_flows_with_credit_and_stops_over_tcp_while_b4_stalls(mode: str) -> None:
    _stall_b4(processes, mode)


@pytest.mark.alone
def test_a_stall_may_burn_python() -> None:
    _stall_b4(processes, "credit", burns=True)


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_isolation_runs_on_spark(shared_spark: SharedSpark) -> None:
    shared_spark.stop()
    with spark() as place:
        _stall_b4(place, "credit")


def _stall_b4(place: Place, mode: str, *, burns: bool = False) -> None:
    rate, seconds = 20_000.0, 2.0
    seen = isolation.observe(place, mode, rate, seconds, {B4: Stall(0.3, 1.5, burns)})
    assert sorted(seen) == [B3, B4]
    assert seen[B3].arrived.sum() == seen[B4].arrived.sum() == seen[B3].late.sum() == seconds * rate
    assert seen[B3].stalled is None
    stalled = seen[B4].stalled
    assert stalled is not None
    assert stalled[0] >= 0.3
    assert stalled[1] - stalled[0] >= 1.5
    assert seen[B4].latency(99.9, 0, seconds) >= 500  # rows that were due early in the stall waited for its end
    if not burns:  # nothing is promised about B.3 during such a stall
        assert_isolated(mode, seen, rate, seconds)


def assert_isolated(mode: str, seen: dict[int, Seen], rate: float, seconds: float) -> None:
    """Check that with credit, at the end of the stall, B.3 has the rows that were due by its middle.

    Over plain TCP it has fewer: it stops once B.4's input is full, which takes 3,072 rows, 0.15 s of these.
    """
    assert seen[B4].stalled is not None
    begin, end = (seen[B4].start - seen[B3].start + moment for moment in seen[B4].stalled)  # on B.3's clock
    arrived, due = seen[B3].arrived[: int(end / WINDOW)].sum(), rate * (begin + end) / 2
    if mode == "credit":
        assert arrived >= min(due, rate * seconds), f"B.3 has {arrived} rows of {due}: it stood still beside a stall"
    else:
        assert arrived < due, f"B.3 has {arrived} rows, and {due} were due: it did not stand beside a stall"


def rounds_of_b3(kept: float, grown: float) -> Rounds:
    arrived, late = np.zeros(200, dtype=np.int64), np.zeros((200, 864), dtype=np.int64)
    before, during = int(QUICK.stall_at * 10), int(QUICK.counts_from * 10)
    arrived[:before], arrived[during:] = 1000, round(1000 * kept)
    late[:before, 320], late[during:, 320 + round(32 * np.log2(grown))] = 1, 1
    rounds = Rounds()
    rounds.add("B.3", Seen(start=0.0, arrived=arrived, late=late, stalled=None, gaps={}), QUICK)
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
    assert result.met is met
    assert len(result.plots[0].series) == 2


@pytest.mark.parametrize(("kept", "met"), [(0.099, True), (0.1, False)])
def test_over_plain_tcp_it_must_stand_still(kept: float, met: bool) -> None:
    assert (
        isolation.report({("processes", "tcp"): rounds_of_b3(kept, 1.0)}, rounds_of_b3(1.0, 1.0), {}, QUICK, ()).met
        is met
    )
