"""`checkpoint`, small: checkpoints complete while the sources are held back; and the verdict."""

from __future__ import annotations

import pytest

from headgate.lab import checkpoint_delay as checkpoint
from headgate.lab.checkpoint_delay import CASES, Case
from headgate.lab.places import processes

DRAIN = 4e6


@pytest.mark.parametrize(
    "name",
    [
        "unaligned after 50 ms",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("unaligned", "aligned, debloating, plain TCP")),
    ],
)
def test_a_checkpoint_under_pressure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_WATCH_SECONDS", 3.0)  # on a slow machine a second may have but two reports
    case = Case()
    checkpoint.under_pressure(processes, CASES[name], DRAIN, 1, case)
    assert case.durations[0] > 0
    assert case.sizes[0] > 0
    assert case.queued[0] > 0
    assert case.held_back[0] >= checkpoint.HIGH


def test_both_sources_have_to_be_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([{"A.1": 0.0, "A.2": 3.0}, {"A.1": 5.0, "A.2": 3.0}])
    monkeypatch.setattr(checkpoint, "_WATCH_SECONDS", 0.001)
    monkeypatch.setattr(checkpoint, "_held_back", lambda job: next(seconds))
    assert checkpoint._least_held_back(object()) == ("A.2", 0.0)  # type: ignore[arg-type]


def test_sinks_that_keep_up_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "HIGH", 2.0)
    with pytest.raises(checkpoint.HeadgateError, match=r"A\.[12] is held back .* of its time, not 200%"):  # type: ignore[attr-defined]
        checkpoint.under_pressure(processes, {}, DRAIN, 1, Case())


@pytest.mark.parametrize(("seconds", "met"), [(0.099, True), (0.1, False)])
def test_the_verdict_depends_on_barriers_that_overtake(seconds: float, met: bool) -> None:
    cases = {name: Case([3.0], [3.0], [1e6], [0.9]) for name in CASES}
    cases["unaligned"] = Case([seconds, seconds, 0.5], [3.0] * 3, [1e6] * 3, [0.9])
    result = checkpoint.report(cases, DRAIN)
    assert result.met is met
    assert len(result.plots[0].series) == len(CASES)
