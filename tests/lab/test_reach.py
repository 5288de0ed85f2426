"""`reach`, small: a stall stops the source, and the pools bound the bytes in flight; and the verdict."""

from __future__ import annotations

import pytest

from headgate.config import Config
from headgate.lab import reach
from headgate.lab.places import MODES, processes
from headgate.lab.reach import ONE, PLACES, TWO, Path, Standing


@pytest.mark.turns(2)
@pytest.mark.alone  # the reports of both processes must be of nearly the same time, or a segment counts at both ends
@pytest.mark.parametrize(
    ("mode", "path"), [("tcp", ONE), ("credit", TWO), pytest.param("credit", ONE, marks=pytest.mark.soak)]
)
def test_a_stalled_sink_stops_its_source(mode: str, path: Path) -> None:
    standing = reach.one_round(processes, mode, path, flow=0.5, stall=2.5)
    assert list(standing.places) == list(PLACES)
    assert 0 < standing.places["segments"] <= standing.most_segments <= path.bound(Config(**MODES[mode]))
    assert standing.bytes_made >= standing.places["segments"]


def test_the_verdict_is_whether_segments_stay_within_their_bound() -> None:
    places = dict.fromkeys(PLACES, 1000)
    within = Standing(0.001, 5000, places, most_segments=ONE.bound(Config()))
    beyond = Standing(0.001, 5000, places, most_segments=ONE.bound(Config()) + 1)
    assert reach.report({("credit", ONE): [within]}).met
    result = reach.report({("credit", ONE): [within, beyond], ("credit", TWO): [within]})
    assert not result.met
    assert {figure.name: figure.median for figure in result.figures}["credit, one connection: source stands after"] == 1
    assert [series.name for series in result.plots[0].series] == [f"credit, {place}" for place in PLACES]
