"""Simulated experiments have the figures of the real ones, which docs/evidence/lab.md records for processes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from headgate.bench.case_options import Options
from headgate.lab import isolation, lab_command, reach
from headgate.lab.isolation import Times
from headgate.lab.mechanisms import burst, sibling, slowed_sink
from headgate.lab.mechanisms.contestants import CONTESTANTS
from headgate.lab.mechanisms.observed import Look, MechanismRun
from headgate.lab.places import B4, processes, warm_up
from headgate.lab.simulated import simulated_isolation, simulated_reach
from headgate.lab.simulated.simulated_place import simulation
from tests.ending import TooLate

SHORT = Times(capacity=0.1, warm_up=0.1, before=0.1, settling=0.1, stalled=0.1)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("mode", "path", "made"),
    [
        ("credit", reach.ONE, 0.79e6),
        ("tcp", reach.TWO, 9.4e6),
        pytest.param("credit", reach.TWO, 1.7e6, marks=pytest.mark.soak),
        pytest.param("tcp", reach.ONE, 4.6e6, marks=pytest.mark.soak),
    ],
)
def test_the_reach_is_that_of_the_real_runtime(mode: str, path: reach.Path, made: float) -> None:
    standing = reach.one_round(simulation(0), mode, path, 0.2, 1.5)
    assert standing.bytes_made == pytest.approx(made, rel=0.2)
    assert standing.seconds < 0.01


def test_a_stalled_stream_leaves_its_sibling_what_the_real_runtime_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "QUICK", SHORT)
    said = list[str]()
    result = simulated_isolation.run(Options(True, said.append))
    assert result.met
    assert said == ["isolation: seed 0, credit", "isolation: seed 0, tcp"]
    figures = {figure.name: figure.median for figure in result.figures}
    assert figures["credit, simulation: share of its rate kept"] == pytest.approx(1.0, abs=0.05)
    assert figures["tcp, simulation: share of its rate kept"] == pytest.approx(0.0, abs=0.05)
    monkeypatch.setattr(reach, "measure", lambda options, place_of: {})
    assert simulated_reach.run(Options(True, said.append)).case == "reach"


def stops_after(run: MechanismRun, rate: float, begin: float) -> float | None:
    """Return how long after `begin` the source stops. None: it does not. At first, `rate` rows/s come.

    A process reports each 0.25 to 0.5 s: when it counted, and for how long the source has waited. A wait that goes on
    began so long before a report.
    """
    reports = [run.looks[0]]
    for look in run.looks:
        if look.counted is not None and look.counted[0] > source_time(reports[-1]):
            reports.append(look)
    first_row = source_time(reports[0]) - reports[0].rows_in / rate
    before = 0.0
    for last, look in pairwise(reports):
        seconds, waited = source_time(look) - source_time(last), look.waited - last.waited
        if source_time(look) > first_row + begin and waited > seconds / 2:
            began = source_time(last) - before if waited > 0.9 * seconds else source_time(look) - waited
            return began - first_row - begin
        before = waited
    return None


def source_time(look: Look) -> float:
    assert look.counted is not None
    return look.counted[0]


def compare_stops(real: float | None, simulated: float | None) -> None:
    assert (real is None) == (simulated is None), (real, simulated)
    if real is not None and simulated != pytest.approx(real, abs=0.1 + 0.2 * real):
        raise TooLate(f"the source stops after {real:.2f} s, and after {simulated:.2f} s in the simulation")


@pytest.mark.alone
@pytest.mark.parametrize("name", ["credit", "unbounded", pytest.param("heron", marks=pytest.mark.soak)])
def test_a_simulated_burst_has_the_latency_the_throughput_and_the_stop_of_a_real_one(name: str) -> None:
    """The load is 150 % for 3 s, so the last of these rows has to wait for a second and a half.

    Without processor time, a job with credit does not carry what the sink takes. Then there is nothing to compare.
    """
    times = burst.BurstTimes(factor=80, before=0.5, burst=3.0, after=4.0, rounds=1)
    warm_up()
    real, simulated = (burst.one_round(place, CONTESTANTS[name], times) for place in (processes, simulation(0)))
    carried = real.seen[B4].rate(times.before, times.over)
    if carried < 0.97 * burst.CAPACITY:
        raise TooLate(f"the machine is busy: the sink got {carried:,.0f} rows/s of the {burst.CAPACITY:,.0f} it takes")
    for percent in (50, 99, 100):
        late = [run.seen[B4].latency(percent, times.before, times.over) for run in (real, simulated)]
        assert late[1] == pytest.approx(late[0], rel=0.2), percent
    assert simulated.seen[B4].rate(times.before, times.over) == pytest.approx(carried, rel=0.2)
    stopped = [stops_after(run, burst.CALM * burst.CAPACITY, times.before) for run in (real, simulated)]
    assert (stopped[1] is None) == (name == "unbounded")
    compare_stops(*stopped)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("storm-status", 80),
        ("unbounded", 80),
        pytest.param("jstorm-stages", 1, marks=pytest.mark.soak),
        pytest.param("tcp", 80, marks=pytest.mark.soak),
    ],
)
def test_a_simulated_slow_sink_lets_as_many_rows_wait_as_a_real_one(name: str, factor: float) -> None:
    """The queue of StormStatus has 410 messages here: it is full after 2.3 s. That of JStormStages is not divided,
    because three messages would be fewer than those on the way. It stops its sender with 205 messages, after 1.1 s.

    A busy machine delays the rows of the real run, so it has several tries.
    """
    warm_up()
    times = replace(sibling.QUICK, factor=factor)
    runs = [slowed_sink.one_round(place, CONTESTANTS[name], times) for place in (processes, simulation(0))]
    real, simulated = (run.most_in_flight(0, times.end) for run in runs)
    if simulated != pytest.approx(real, rel=0.2):
        raise TooLate(f"{real:,} rows wait, and {simulated:,} in the simulation")
    stopped = [stops_after(run, sibling.RATE, times.before) for run in runs]
    assert (stopped[1] is None) == (name == "unbounded")
    compare_stops(*stopped)


def test_only_some_experiments_can_be_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lab_command.main(["cost", "--simulate", "--out", str(tmp_path)])
    names = "isolation, sibling, burst, slow-sink, skew, scale, tuning, waits, reach"
    assert f"unknown experiment 'cost'; experiments: {names}" in capsys.readouterr().err
