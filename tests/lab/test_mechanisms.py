"""The experiments that compare mechanisms: small runs, in virtual time and on the real runtime, and their verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.bench.case_options import Options
from headgate.lab import burst, mechanism_isolation, slowed_sink, tuning
from headgate.lab.contestants import CONTESTANTS, WITHOUT_SERVER
from headgate.lab.lab_command import main
from headgate.lab.mechanism_isolation import StallTimes
from headgate.lab.observed import Look, MechanismRun
from headgate.lab.places import processes
from headgate.lab.simulated.simulated_place import simulation
from headgate.lab.verdicts import Observation, misses

SHORT = StallTimes(factor=400, before=0.3, stall=1.2, rounds=1)


def quiet(*mechanisms: str) -> Options:
    return Options(True, lambda text: None, mechanisms)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", WITHOUT_SERVER)
def test_in_virtual_time_each_mechanism_does_what_was_expected(name: str) -> None:
    runs = {name: [mechanism_isolation.one_round(simulation(0), CONTESTANTS[name], SHORT)]}
    result = mechanism_isolation.report(runs, SHORT)
    assert result.met, result.target


def test_on_the_real_runtime_storm_status_leaves_the_sibling_its_rows() -> None:
    """The verdict depends on how steady the machine is. This does not: who was stopped, and that no row is lost."""
    run = mechanism_isolation.one_round(processes, CONTESTANTS["storm-status"], SHORT)
    assert run.rows_in == run.rows_out == 2 * mechanism_isolation.RATE * SHORT.end
    assert run.stopped_at(SHORT.before) is not None
    assert run.out_of_memory == ""


@pytest.mark.parametrize("experiment", ["slow-sink", "burst"])
def test_the_other_experiments_in_virtual_time(experiment: str) -> None:
    module = {"slow-sink": slowed_sink, "burst": burst}[experiment]
    result = module.run(quiet("storm-status", "shed"), simulation)
    assert result.case == experiment
    assert result.met, result.target
    names = {figure.name for figure in result.figures}
    assert {"storm-status: rows lost", "shed: rows lost"} <= names
    assert len(result.plots[0].series) == 2


def test_limits_that_are_too_small_starve_and_limits_that_are_too_large_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: replace(sweep, limits=(sweep.limits[0], sweep.limits[-1])) for name, sweep in tuning.SWEEPS.items()}
    monkeypatch.setattr(tuning, "SWEEPS", few)
    monkeypatch.setattr(tuning, "QUICK", tuning.TuningTimes(seconds=1.6, settling=0.4, rounds=1))
    result = tuning.run(quiet(), simulation)
    assert result.met, result.target
    medians = {figure.name: figure.median for figure in result.figures}
    assert medians["fixed-rate, 0.25 of what the sink takes: carried"] == pytest.approx(0.25, abs=0.02)
    assert medians["max-pending, 1 messages: carried"] < 0.9
    assert medians["max-pending, 256 messages: in flight at most"] == pytest.approx(25_600, rel=0.1)
    assert [len(series.x) for series in result.plots[0].series] == [2, 2, 2, 2]


def test_a_limit_that_should_starve_and_does_not_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "STARVES", {("max-pending", 256)})
    assert list(
        tuning._misses(
            {("credit", 0.0): 1.0, ("max-pending", 256): 1.0}, {("credit", 0.0): 10.0, ("max-pending", 256): 30.0}
        )
    ) == ["max-pending 256 carries 100%"]


def test_the_command_compares_the_named_mechanisms(tmp_path: Path) -> None:
    assert main(["isolation", "--simulate", "--quick", "--mechanisms", "jstorm-stages", "--out", str(tmp_path)]) == 0
    assert "jstorm-stages: the sibling keeps its rate" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["isolation", "--mechanisms", "magic"], "unknown 'magic'; mechanisms: credit, tcp"),
        (["isolation", "--simulate", "--mechanisms", "storm-zk"], "storm-zk needs a server and cannot be simulated"),
        (["reach", "--mechanisms", "credit"], "has no effect on reach; name isolation or burst"),
    ],
)
def test_a_comparison_that_is_none_is_wrong_usage(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert says in capsys.readouterr().err


# ---- verdicts


def test_what_differs_from_an_expectation_is_a_miss_and_what_was_only_measured_is_not() -> None:
    findings = [
        Observation("a", "rows are lost", True, True),
        Observation("b", "rows are lost", True, False),
        Observation("c", "rows are lost", True, None),
    ]
    assert misses(findings) == ["b: rows are lost: yes, against the expectation"]
    assert [each.figure.unit for each in findings] == ["expected 1", "expected 0", "measured"]


def test_a_source_has_stopped_when_it_waits_for_most_of_the_time() -> None:
    waits = [0.0, 0.0, 0.02, 0.06, 0.11, 0.16, 0.16, 0.16]
    run = MechanismRun(
        looks=[Look(0.05 * number, 10 * number, 5 * number, waited) for number, waited in enumerate(waits)]
    )
    assert run.stopped_at(0.0) == pytest.approx(0.1)
    assert run.stopped_at(0.25) is None
    assert run.released_at(0.1) == pytest.approx(0.25)
    assert run.most_in_flight(0.0, 0.2) == 20
