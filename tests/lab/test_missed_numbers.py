"""A proof that misses one of its numbers ends with exit code 1 and `"met": false` in its JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headgate.config import Config
from headgate.lab import (
    barrier,
    buffer_timeout,
    cost,
    isolation,
    places,
    reach,
    sizing,
    spark_controller,
    storm_originals,
)
from headgate.lab import checkpoint_delay as checkpoint
from headgate.lab.experiment import Experiment
from headgate.lab.faults import lost_signals
from headgate.lab.lab_command import ABOUT, EXPERIMENTS, main
from headgate.lab.mechanisms import burst, sibling, skew, slowed_sink, tuning, waits
from headgate.lab.mechanisms.observed import Look, MechanismRun
from headgate.lab.mechanisms.verdicts import CREDIT
from headgate.lab.originals.controlled_load import ControlledBatch
from headgate.lab.originals.stop_and_go import Trace
from headgate.lab.probe import Seen
from headgate.lab.simulated import scale
from tests.lab.test_buffer_timeout import outcomes
from tests.lab.test_isolation import rounds_of_b3
from tests.lab.test_waits import made


def _cost(met: bool) -> Experiment:
    rates = {(size, mode): [1e9] for size in cost.SIZES for mode in (cost.CREDIT, cost.TCP)}
    carried = {(size, cost.CREDIT): [1e9 if met else 0.9e9] for size in cost.ENOUGH}
    return cost.report(rates | carried, 1)


def _isolation(met: bool) -> Experiment:
    rounds = {("processes", "credit"): rounds_of_b3(1.0 if met else 0.5, 1.0)}
    return isolation.report(rounds, rounds_of_b3(1.0, 1.0), {}, isolation.QUICK, ())


def _run(met: bool) -> MechanismRun:
    """A run in which the source waits until the sink is as fast as before. If it is not met, a row is lost."""
    looks = [Look(0.0, 0, 0, 0.0), Look(4.6, 100, 100, 4.6), Look(60.0, 200, 200, 4.6)]
    return MechanismRun(looks=looks, rows_in=100, rows_out=100 if met else 99)


def _burst(met: bool) -> Experiment:
    return burst.report({"credit": [_run(met)]}, burst.QUICK)


def _sibling(met: bool) -> Experiment:
    return sibling.report({"tcp": [_run(met)]}, sibling.QUICK)


def _slow_sink(met: bool) -> Experiment:
    return slowed_sink.report({"credit": [_run(met)]}, sibling.QUICK)


def _skew(met: bool) -> Experiment:
    return skew.report({"credit": [_run(met)]}, skew.QUICK)


def _scale(met: bool) -> Experiment:
    return scale.report({"credit": {2: scale.Scaled(starving=0 if met else 1)}})


def _tuning_runs(met: bool) -> tuning.Runs:
    def run(carried: float, in_flight: int) -> list[MechanismRun]:
        arrived = np.full((100, 1), round(carried * 1000))
        seen = Seen(start=0.0, arrived=arrived, late=arrived, stalled=None, gaps={})
        return [MechanismRun(looks=[Look(at=0.1, rows_in=in_flight, rows_out=0, waited=0.0)], seen={places.B4: seen})]

    runs: tuning.Runs = {CREDIT: {0.0: run(1.0 if met else 0.9, 100)}, tuning.NOTHING: {0.0: run(1.0, 900)}}
    for name, sweep in tuning.SWEEPS.items():
        runs[name] = {limit: run(0.5 if (name, limit) in tuning.STARVES else 1.0, 900) for limit in sweep.limits}
    return runs


def _tuning(met: bool) -> Experiment:
    return tuning.report(_tuning_runs(met), tuning.QUICK)


def _waits(met: bool) -> Experiment:
    return waits.report({"max-pending": [made("max-pending", doubled=5000 if met else 0)]}, waits.QUICK)


def _spark_streaming(met: bool) -> Experiment:
    def run(rows: int) -> list[list[ControlledBatch]]:
        return [[ControlledBatch(rows=rows, scheduling=0.0, processing=1.0)] * spark_controller.QUICK.batches]

    runs = {spark_controller.ORIGINAL: run(100), spark_controller.OURS: run(110 if met else 200)}
    return spark_controller.report(runs, spark_controller.QUICK)


def _barrier(met: bool) -> Experiment:
    credit = barrier.BarrierRounds([0.01 if met else 0.5], [3.0], [0.4], [0.4], [0.01])
    return barrier.report({"credit": credit, "tcp": barrier.BarrierRounds([3.1], [3.0], [2.0], [2.0])})


def _checkpoint(met: bool) -> Experiment:
    cases = {name: checkpoint.Case([0.05 if met else 0.2], [0.3], [1e6], [0.9]) for name in checkpoint.CASES}
    return checkpoint.report(cases, 1e7)


def _reach(met: bool) -> Experiment:
    most = reach.ONE.bound(Config()) + (0 if met else 1)
    standing = reach.Standing(0.001, 5000, dict.fromkeys(reach.PLACES, 1000), most)
    return reach.report({("credit", reach.ONE): [standing]})


def _sizing(met: bool) -> Experiment:
    carried = {sizing.FITS: 1.0, sizing.EXCEEDS: 0.5 if met else 0.8}
    few, many = sizing.SIZES
    return sizing.report(
        {(few, point): [share] for point, share in carried.items()} | {(many, point): [1.0] for point in carried}
    )


def _faults(met: bool) -> Experiment:
    def run(case: lost_signals.FaultCase) -> MechanismRun:
        times = lost_signals.QUICK
        looks = []
        for step in range(round(times.end_of(case) / 0.1)):
            at = step * 0.1
            waits = (case.stops and times.before < at < times.over) or (at > times.over and not case.goes_on)
            before = looks[-1] if looks else Look(0.0, 0, 0, 0.0)
            looks.append(Look(at, before.rows_in + (0 if waits else 2000), 0, before.waited + (0.1 if waits else 0)))
        return MechanismRun(looks=looks)

    runs = {name: run(case) for name, case in lost_signals.CASES.items()}
    if not met:
        runs["heron, lost start"] = runs["heron, lost stop"]
    return lost_signals.report(runs, lost_signals.QUICK)


def _storm(met: bool) -> Experiment:
    def trace(stop: float) -> Trace:
        emitted = np.arange(0, 15, 0.1)
        return Trace(emitted[(emitted <= 2) | (emitted >= 2 + stop)], np.arange(0.1, 15, 0.2))

    pair = trace(4.0), trace(4.0 if met else 8.0)
    return storm_originals.report({name: [pair] for name in storm_originals.PAIRS}, quick=True)


def _buffer_timeout(met: bool) -> Experiment:
    best = buffer_timeout.Outcome([10e6], [1.0], [1.0], [2.0], [100.0])
    ours = buffer_timeout.Outcome([10e6], [1.0], [1.0 if met else 3.0], [2.0], [100.0])
    return buffer_timeout.report(outcomes(ours, best), [100])


REPORTS: dict[str, Callable[[bool], Experiment]] = {
    "cost": _cost,
    "isolation": _isolation,
    "sibling": _sibling,
    "burst": _burst,
    "slow-sink": _slow_sink,
    "skew": _skew,
    "scale": _scale,
    "faults": _faults,
    "tuning": _tuning,
    "waits": _waits,
    "spark-streaming": _spark_streaming,
    "storm": _storm,
    "barrier": _barrier,
    "checkpoint": _checkpoint,
    "reach": _reach,
    "sizing": _sizing,
    "buffer-timeout": _buffer_timeout,
}


def test_loads_and_sizes_are_those_of_the_proofs() -> None:
    """Checks loads and sizes; the tests of each verdict check its numbers."""
    for times in (isolation.FULL, isolation.QUICK):
        assert isolation.SHARE == 0.5
        assert times.settling == 1.0
        assert times.stalled > 0
    assert sizing.DEFAULT == 2 + 8
    assert sizing.FITS < sizing.DEFAULT < sizing.EXCEEDS
    enough = [Config(**size) for size in cost.ENOUGH.values()]
    assert [each.buffers_per_channel + each.floating_buffers_per_gate for each in enough] == [64, 128, 256]
    assert cost.SIZES == {**cost.ENOUGH, cost.DEFAULT: {}}
    assert list(buffer_timeout.TIMEOUTS.values()) == [0.0, 0.001, 0.01, 0.1, "adaptive"]
    assert buffer_timeout.FANS == {1: (1, 1), 10: (2, 5), 100: (4, 25), 1000: (4, 250)}
    assert all(writers * gates == channels for channels, (writers, gates) in buffer_timeout.FANS.items())
    assert buffer_timeout.LOAD == 0.1


def test_every_experiment_has_a_case_in_this_file() -> None:
    assert list(REPORTS) == list(EXPERIMENTS)


@pytest.mark.parametrize("met", [True, False])
@pytest.mark.parametrize("name", REPORTS)
def test_exit_code_and_json(name: str, met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real command reports the experiment's own verdict on given figures."""
    monkeypatch.setattr(importlib.import_module(EXPERIMENTS[name]), "run", lambda options: REPORTS[name](met))
    monkeypatch.setattr("headgate.lab.lab_command.draw", lambda plots, path: False)
    assert main([name, "--out", str(tmp_path), "--json", str(tmp_path / "all.json")]) == (0 if met else 1)
    assert json.loads((tmp_path / f"{name}.json").read_text())["met"] is met
    assert json.loads((tmp_path / "all.json").read_text())["experiments"][0]["met"] is met


def test_a_limit_with_which_the_job_does_not_end_is_a_miss() -> None:
    runs = _tuning_runs(True)
    runs["max-pending"][1] = [MechanismRun(looks=[Look(0.1, 900, 0, 0.0)], is_stuck=True)]
    result = tuning.report(runs, tuning.QUICK)
    assert not result.met
    assert result.target.endswith("; missed: max-pending 1 does not end")


def test_help_says_what_each_experiment_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert ABOUT.keys() == EXPERIMENTS.keys()
    assert all(text in told for text in ABOUT.values())
