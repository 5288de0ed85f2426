"""The all-to-all exchange of `isolation`, small: every writer stops, and one that does not misses the proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headgate.lab import all_to_all, isolation
from headgate.lab.flows import ROW_BYTES
from headgate.lab.isolation import QUICK, Rounds
from headgate.lab.places import A1, A2, processes
from headgate.lab.probe import Gap, Seen

CAME, LATE = np.zeros(30, dtype=np.int64), np.zeros((30, 864), dtype=np.int64)
#: B.4 began 0.5 s after B.3, and stalls from 2.0 to 4.0 on B.3's clock.
B3_SEEN = Seen(start=1000.0, arrived=CAME, late=LATE, stalled=None, gaps={A1: Gap(2.1, 4.2, 0), A2: Gap(2.3, 4.1, 0)})
B4_SEEN = Seen(
    start=1000.5, arrived=CAME, late=LATE, stalled=(1.5, 3.5), gaps={A1: Gap(1.6, 3.7, 30), A2: Gap(1.8, 3.6, 12)}
)


@pytest.mark.alone
def test_a_reader_that_stalls_stops_every_writer() -> None:
    standing = all_to_all.one_round(processes, "credit", flow=0.5, stall=2.0)
    assert standing.seconds is not None
    assert 0 <= standing.seconds < 2.0
    assert standing.bytes_made > 0
    assert sum(standing.arrived.y) > 0


def test_the_last_writer_counts() -> None:
    standing = all_to_all.standing("credit", B3_SEEN, B4_SEEN, 3.0)
    assert standing.seconds == pytest.approx(0.3)
    assert standing.bytes_made == 42 * ROW_BYTES
    assert len(standing.arrived.x) == 30


def test_a_writer_that_does_not_stop_misses_the_proof() -> None:
    stood = all_to_all.standing("credit", B3_SEEN, B4_SEEN, 3.0)
    goes_on = replace_gap(B3_SEEN, A2, Gap(2.3, 3.9, 0))
    missed = all_to_all.standing("credit", goes_on, B4_SEEN, 3.0)
    assert missed.seconds is None
    for rounds, met in [([stood, stood], True), ([stood, missed], False), ([missed], False)]:
        result = isolation.report({}, _no_rounds(), {"credit": rounds}, QUICK, ())
        figures = {figure.name: figure.values for figure in result.figures}
        assert result.met is met
        assert len(result.plots[1].series) == 1
        assert figures["credit, all to all: rounds in which one did not stand"] == (rounds.count(missed),)
        assert figures.get("credit, all to all: every writer stands after", ()) == pytest.approx(
            [300.0] * rounds.count(stood)
        )


def replace_gap(seen: Seen, writer: int, gap: Gap) -> Seen:
    return replace(seen, gaps={**seen.gaps, writer: gap})


def _no_rounds() -> Rounds:
    rounds = Rounds()
    rounds.add("none", Seen(start=0.0, arrived=np.ones(200, dtype=np.int64), late=LATE, stalled=None, gaps={}), QUICK)
    return rounds
