"""`skew` and `scale`: small runs in virtual time, and the verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.bench.case_options import Options
from headgate.errors import HeadgateError
from headgate.lab.mechanisms import skew
from headgate.lab.mechanisms.contestants import CONTESTANTS, GUARD, SEGMENT
from headgate.lab.mechanisms.observed import MechanismRun
from headgate.lab.mechanisms.skew import SkewTimes
from headgate.lab.places import B3, B4, processes
from headgate.lab.probe import Seen
from headgate.lab.simulated import scale, simulated_skew
from headgate.lab.simulated.simulated_place import simulation

SHORT = SkewTimes(factor=400, seconds=2.0, rounds=1)


@pytest.mark.parametrize("name", ["credit", "jstorm-stages", "shed", "unbounded", "fixed-rate"])
def test_only_what_stops_no_source_spares_the_other_keys(name: str) -> None:
    result = skew.report({name: [skew.one_round(simulation(0), CONTESTANTS[name], SHORT)]}, SHORT)
    assert result.met, result.target
    units = {figure.name: figure.unit for figure in result.figures}
    assert units[f"{name}: the other keys keep their rate"].startswith("expected")
    if name != "fixed-rate":  # it waits for its own rate
        assert (f"{name}: until the source stops" in units) is (name in {"credit", "jstorm-stages"})


def test_a_source_that_waits_for_the_hot_key_sends_two_thirds_of_the_others() -> None:
    times = SkewTimes(factor=400, seconds=6.0, rounds=1)
    run = skew.one_round(simulation(0), CONTESTANTS["credit"], times)
    assert skew.share(run, B4, skew.CAPACITY, times) == pytest.approx(1.0, abs=0.05)
    assert skew.share(run, B3, skew.CAPACITY / 2, times) == pytest.approx(2 / 3, abs=0.05)


def test_a_source_that_catches_up_at_the_end_has_not_kept_the_rate_of_the_others() -> None:
    """The other keys have 10,000 rows/s. The source stands in the middle of the run, and sends twice as many later."""
    arrived = np.full(60, 1000)
    arrived[20:45], arrived[45:] = 0, 2000
    seen = Seen(start=0.0, arrived=arrived, late=np.zeros((60, 1), np.int64), stalled=None, gaps={})
    assert skew.share(MechanismRun(seen={B3: seen}), B3, 10_000, skew.QUICK) == pytest.approx(2.0)
    assert skew.others_share(MechanismRun(seen={B3: seen}), skew.QUICK) == pytest.approx(0.8, abs=0.02)


def test_nothing_is_expected_of_a_queue_that_is_not_full_in_time() -> None:
    expected = CONTESTANTS["storm-status"].expected
    assert skew.FULL.spares(expected) is skew.QUICK.spares(expected) is False
    assert SkewTimes(factor=8, seconds=4.0, rounds=1).spares(expected) is None
    assert skew.FULL.spares(CONTESTANTS["spark-pid"].expected) is None


def test_a_key_that_was_not_spared_is_a_miss() -> None:
    result = skew.report({"shed": [MechanismRun(rows_in=10, rows_out=5)]}, SHORT)
    assert result.target.endswith("missed: shed: the other keys keep their rate: no, against the expectation")


def test_on_the_real_runtime_a_hot_key_holds_back_the_others() -> None:
    run = skew.one_round(processes, CONTESTANTS["jstorm-stages"], SHORT)
    assert 0 < run.rows_in == run.rows_out < skew.OFFERED * SHORT.seconds
    assert run.stopped_at(0.0) is not None


def test_the_skew_of_the_command_is_that_of_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew, "QUICK", SHORT)
    said = list[str]()
    result = simulated_skew.run(Options(True, said.append, ("shed-oldest",)))
    assert result.met, result.target
    assert said[:2] == ["skew: all sizes and times divided by 400", "skew: 1 runs, one at a time"]
    assert said[2].startswith("skew: 1 of 1, shed-oldest: ")


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("name", "starving", "stopped"),
    [("jstorm-stages", 0, 1), ("tcp", 10, 2), ("heron", 190, 20), ("shed", 0, 0)],
)
def test_a_stalled_subtask_reaches_as_far_as_its_mechanism(name: str, starving: int, stopped: int) -> None:
    """`tcp` starves the sinks behind the same connection: those of every tenth source. `heron` starves all.

    `shed` drops nearly all that comes for the stalled sink: a tenth of the 1,000 batches/s of the fast source, in 5 of
    5.5 s. The other 19 sources have 190 batches/s.
    """
    found = scale.one_run(CONTESTANTS[name], 20)
    assert (found.starving, found.stopped) == (starving, stopped)
    assert found.sent_per_row == pytest.approx(1190 / (1190 - 100 * 5 / 5.5) if name == "shed" else 1.0, abs=0.01)
    result = scale.report({name: {20: found}})
    assert result.met, result.target


def test_a_quick_scale_runs_in_processes_of_its_own() -> None:
    said = list[str]()
    result = scale.run(Options(True, said.append, ("jstorm-master",)))
    assert result.met, result.target
    assert said[0] == "scale: 1 simulations, all sizes and times divided by 100"
    assert said[1].startswith("scale: 220 subtasks, jstorm-master: ")
    (stopped,) = (figure.median for figure in result.figures if "sources that stop" in figure.name)
    assert stopped == 0


def test_scale_shows_signals_and_sent_rows_for_a_written_row_unless_memory_was_full() -> None:
    runs = {2: scale.Scaled(signals_per_row=0.02, sent_per_row=1.5), 20: scale.Scaled(out_of_memory=True)}
    shown = {figure.name: figure.values for figure in scale.report({"max-pending": runs}).figures}
    assert shown["max-pending: signals for a written row, of 22 subtasks"] == (0.02,)
    assert shown["max-pending: rows sent for a written row, of 22 subtasks"] == (1.5,)
    assert not [name for name in shown if "for a written row, of 220" in name]


def test_a_simulation_in_which_an_input_stopped_reading_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job runs over plain TCP, whatever the mechanism asked for. So the input of the stalled sink does stop."""
    monkeypatch.setattr(scale, "_OPTIONS", {**scale._OPTIONS, "flow_control": "tcp"})
    with pytest.raises(HeadgateError, match="the run is void: inputs stopped reading"):
        scale.one_run(CONTESTANTS["unbounded"], 10)


def test_a_stall_that_reaches_others_against_the_expectation_is_a_miss() -> None:
    result = scale.report({"credit": {2: scale.Scaled(), 20: scale.Scaled(starving=1)}})
    assert result.target.endswith(
        "missed: credit: sinks of other sources get all their rows: no, against the expectation"
    )


def test_the_guard_holds_four_times_the_longest_queue() -> None:
    """Without a throttle a message needs a whole buffer. With one, it needs its bytes."""
    fills = {
        name: each.expected.reaction.fills[1]
        for name, each in CONTESTANTS.items()
        if each.expected.reaction is not None and each.expected.reaction.is_divided
    }
    assert max(fills, key=lambda name: fills[name]) == "storm-status"
    options = CONTESTANTS["storm-status"].options(1)
    queue = options["throttle"].receive_buffer
    assert 4 * queue * SEGMENT <= GUARD == options["network_memory"]
    assert GUARD >= 4 * CONTESTANTS["heron"].options(1)["throttle"].high
