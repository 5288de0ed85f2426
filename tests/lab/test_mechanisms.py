"""The experiments that compare mechanisms: small runs, in virtual time and on the real runtime, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headgate as hg
from headgate.bench.case_options import Options
from headgate.lab.faults import lost_signals
from headgate.lab.faults.lossy_mechanisms import LossyJStormStages
from headgate.lab.flows import Flow, Flows
from headgate.lab.lab_command import main
from headgate.lab.mechanisms import burst, observed, sibling, skew, slowed_sink, tuning, waits
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, SIMULATED, counting, jstorm_stages
from headgate.lab.mechanisms.observed import Look, MechanismRun
from headgate.lab.mechanisms.overload import Overload
from headgate.lab.mechanisms.reactions import reactions
from headgate.lab.mechanisms.sibling import StallTimes
from headgate.lab.mechanisms.verdicts import Measured, Observation, OwnObservation, losses, misses, sentences
from headgate.lab.places import A2, B4, Place, processes
from headgate.lab.probe import Probe, Slow, Stall
from headgate.lab.simulated.simulated_place import simulation
from tests.ending import TooLate

SHORT = StallTimes(factor=400, before=0.3, stall=1.2, rounds=1)


def quiet(*mechanisms: str) -> Options:
    return Options(True, lambda text: None, mechanisms)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", SIMULATED)
def test_in_virtual_time_each_mechanism_does_what_was_expected(name: str) -> None:
    runs = {name: [sibling.one_round(simulation(0), CONTESTANTS[name], SHORT)]}
    result = sibling.report(runs, SHORT)
    assert result.met, result.target


def test_on_the_real_runtime_storm_status_leaves_the_sibling_its_rows() -> None:
    """The verdict depends on how steady the machine is. This does not: who was stopped, and that no row is lost."""
    times = replace(SHORT, before=0.5, stall=2.5)  # a slow machine reports late, and a stop shows between two reports
    run = sibling.one_round(processes, CONTESTANTS["storm-status"], times)
    assert run.rows_in == run.rows_out == 2 * sibling.RATE * times.end
    assert run.stopped_at(times.before) is not None
    assert run.out_of_memory == ""


def test_a_run_without_a_row_is_void() -> None:
    """As on a machine that is so busy that the source begins after its end."""
    late = Flows({A2: Flow((B4,), 1000.0, ends_on_time=True)}, -1.0)
    with pytest.raises(hg.HeadgateError, match="the run is void: its source read no row in time"):
        observed.observe(simulation(0), {}, late, Probe())


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
    monkeypatch.setattr(tuning, "QUICK", tuning.TuningTimes(seconds=1.6, settling=0.4, rounds=1))
    result = tuning.run(quiet(), simulation)
    assert result.met, result.target
    medians = {figure.name: figure.median for figure in result.figures}
    assert medians["fixed-rate, 0.25 of what the sink takes: carried"] == pytest.approx(0.25, abs=0.02)
    assert medians["max-pending, 1 messages: carried"] < 0.9
    assert medians["max-pending, 256 messages: in flight at most"] == pytest.approx(25_600, rel=0.1)
    assert medians["max-pending, 1 messages: until the source stops"] < 0.3
    assert "no throttle: until the source stops" not in medians
    assert [len(series.x) for series in result.plots[0].series] == [2] * 6


def test_the_comparisons_leave_ten_minutes_of_an_hour_to_the_simulations_of_scale() -> None:
    """Besides its plan, a run needs time to start and to end, and its sink time for what still waits."""
    job, mechanisms = 1.5, len(CONTESTANTS)
    late = (1 - slowed_sink.SLOW) / slowed_sink.CAPACITY * sibling.FULL.stall
    hot = (len(skew.TO) - 1) / len(skew.TO) * skew.OFFERED / skew.CAPACITY * skew.FULL.seconds
    limits = len(list(tuning.contestants()))
    planned = {
        "sibling": sibling.FULL.rounds * mechanisms * (sibling.FULL.end + job),
        "burst": burst.FULL.rounds * mechanisms * (burst.FULL.end + job),
        "slow-sink": sibling.FULL.rounds * mechanisms * (sibling.FULL.end + late + job),
        "skew": skew.FULL.rounds * mechanisms * (hot + job),
        "tuning": tuning.FULL.rounds * limits * (tuning.OFFERED * tuning.FULL.seconds + job),
        "faults": sum(
            lost_signals.FULL.end_of(case) + (2 if case.needs_zookeeper else 1) * job
            for case in lost_signals.CASES.values()
        ),
    }
    assert sum(planned.values()) < 50 * 60, planned


def test_a_limit_that_should_starve_and_does_not_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "STARVES", {("max-pending", 256)})
    assert list(
        tuning._misses(
            {("credit", 0.0): 1.0, ("max-pending", 256): 1.0}, {("credit", 0.0): 10.0, ("max-pending", 256): 30.0}
        )
    ) == [("max-pending 256", "carries 100%")]


def test_the_command_compares_the_named_mechanisms(tmp_path: Path) -> None:
    assert main(["sibling", "--simulate", "--quick", "--mechanisms", "jstorm-stages", "--out", str(tmp_path)]) == 0
    assert "jstorm-stages: the sibling keeps its rate" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sibling", "--mechanisms", "magic"], "unknown 'magic'; mechanisms: credit, tcp"),
        (["sibling", "--simulate", "--mechanisms", "storm-zk"], "storm-zk cannot be simulated, only credit, tcp"),
        (["reach", "--mechanisms", "credit"], "has no effect on reach; name sibling or burst"),
    ],
)
def test_a_comparison_that_is_none_is_wrong_usage(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("jstorm-stages", StallTimes(factor=1, before=0.5, stall=4.0, rounds=1)),
        pytest.param("max-pending", StallTimes(factor=1, before=0.5, stall=12.0, rounds=1), marks=pytest.mark.soak),
    ],
)
def test_with_its_documented_sizes_a_mechanism_does_what_was_expected(name: str, times: StallTimes) -> None:
    """Nothing is divided. In 12 s no message of MaxPending is older than its timeout, so none is doubled."""
    run = sibling.one_round(simulation(0), CONTESTANTS[name], times)
    did = {each.what: each.did for each in reactions(name, [run], times.overload())}
    assert len(did) == 2
    assert all(did.values()), did
    assert sibling.kept(run, times) >= sibling.KEEPS
    assert (run.lost, run.doubled) == (0, 0)


@pytest.mark.parametrize(
    ("ends", "waits_until", "free"), [(20, 12, True), (20, 19, False), (12, 11, True), (12, 12, None)]
)
def test_a_run_that_ends_too_soon_does_not_show_whether_a_source_is_free(
    ends: int, waits_until: int, free: bool | None
) -> None:
    """The overload ends after 10 s, and its backlog is gone within 3 s."""
    looks = [Look(float(at), at, at, float(min(at, waits_until))) for at in range(ends + 1)]
    overload = Overload(begin=0.0, end=10.0, come=11.0, taken=10.0, spare=6.0, factor=1.0)
    found = reactions("jstorm-stages", [MechanismRun(looks=looks)], overload)
    assert [each.did for each in found if "reads freely" in each.what] == ([] if free is None else [free])


@pytest.mark.turns(2)
@pytest.mark.parametrize(("module", "times"), [(burst, burst.FULL), (slowed_sink, sibling.QUICK)])
@pytest.mark.parametrize("name", ["jstorm-master", "spark-pid"])
def test_in_virtual_time_no_more_rows_are_in_flight_than_in_any_case(module: ModuleType, times: Any, name: str) -> None:
    """A quick burst is too short: half a second of its load is all that a source without a throttle has in flight."""
    result = module.report({name: [module.one_round(simulation(0), CONTESTANTS[name], times)]}, times)
    assert result.met, result.target
    (bound,) = (figure for figure in result.figures if "in any case" in figure.name)
    assert (bound.unit, bound.values) == ("expected 1", (1.0,))


# ---- verdicts


def in_flight(rows: int) -> MechanismRun:
    """Return a run in which so many rows are in flight during a stall, and whose source waits."""
    return MechanismRun(looks=[Look(0.0, 0, 0, 0.0), Look(1.0, rows, 0, 0.9), Look(30.0, rows, 0, 29.0)])


@pytest.mark.parametrize(
    ("name", "taken", "expected", "most"),
    [
        # 58 messages and ZooKeeper's answer. The queue is never free, so that the source may not go on.
        ("storm-zk", 0.0, 31_770, 31_770),
        # 1,590 messages are in excess when the source learns of the full queue. The sink has nothing for 3.75 s.
        ("storm-zk-1.2", 20.0, 15_870, 176_460),
        # 64 messages, 50 before the first order, 250 until the source sleeps for 5 ms, and then 667.
        ("jstorm-master", 0.0, 42_800, 226_160),
        # 64 messages, 45 and 225 more than the sink takes, and 351 until the source reads no more than that.
        ("jstorm-master", 20.0, 20_900, 78_460),
        # 512 messages and the announcement. The queue is never half empty.
        ("heron", 0.0, 122_650, 122_650),
        # The source goes on when the sink has taken 256 messages, after 15.7 s. 2,817 in excess are due by then.
        ("heron", 20.0, 61_310, 291_710),
        # 25 messages, 250 while they take 1.25 s, and a second of the new rate.
        ("spark-pid", 20.0, None, 39_500),
    ],
)
def test_an_explanation_excuses_up_to_a_bound(name: str, taken: float, expected: int | None, most: int) -> None:
    """Sizes and times are divided by 16. Half a second of what comes is the slack."""
    stall = Overload(begin=0.0, end=18.0, come=200.0, taken=taken, spare=0.0, factor=16.0, streams=1 if taken else 2)

    def found(rows: float) -> dict[bool, Observation]:
        """Return what is expected of the rows in flight; True: in any case."""
        seen = [each for each in reactions(name, [in_flight(round(rows))], stall) if "in flight" in each.what]
        return {each.what.startswith("in any case, at most"): each for each in seen}

    assert found(0.99 * most)[True].did
    assert misses([*found(1.01 * most).values()]) == [f"{name}: {found(0)[True].what}: no, against the expectation"]
    if expected is None:
        assert len(found(0)) == 1
    else:
        assert found(0.99 * expected)[False].did
        assert not found(1.01 * expected)[False].did


OVERLOADS: dict[str, Overload] = {
    "sibling": sibling.FULL.overload(),
    "sibling, quick": sibling.QUICK.overload(),
    "slow-sink": sibling.FULL.overload(slowed_sink.SLOW, streams=1),
    "slow-sink, quick": sibling.QUICK.overload(slowed_sink.SLOW, streams=1),
    "burst": burst.FULL.overload,
    "burst, quick": burst.QUICK.overload,
    **{f"waits, {name}": waits.FULL.overload(load) for name, load in waits.LOADS.items()},
}


@pytest.mark.parametrize("experiment", OVERLOADS)
def test_a_source_that_nobody_stops_misses_each_bound_that_is_judged(experiment: str) -> None:
    overload = OVERLOADS[experiment]
    run = in_flight(round(BATCH * overload.backlog))
    judged = set()
    for name in CONTESTANTS:
        found = [each for each in reactions(name, [run], overload) if "rows are in flight" in each.what]
        if any(each.expected is not None for each in found):
            judged.add(name)
            assert not any(each.did for each in found if each.expected is not None), name
            assert misses(found), f"an explanation excuses any number of rows: {name}"
        if overload.taken:
            assert name != "storm-zk" or name not in judged, "the documents have no bound of this one"
    if experiment in ("sibling", "sibling, quick"):
        assert {"storm-zk", "storm-zk-1.2", "jstorm-master", "heron"} <= judged
    if experiment in ("slow-sink", "slow-sink, quick"):
        assert {"storm-zk-1.2", "jstorm-master", "spark-pid", "storm-status"} <= judged
    if experiment == "slow-sink":
        assert "heron" in judged
    if experiment == "burst":
        assert {"jstorm-master", "spark-pid", "max-pending"} <= judged


@pytest.mark.parametrize("name", ["storm-zk-1.2", "jstorm-master", "spark-pid"])
def test_in_virtual_time_a_job_without_a_throttle_misses_the_bound_of_a_mechanism(name: str) -> None:
    run = slowed_sink.one_round(simulation(0), CONTESTANTS["unbounded"], sibling.QUICK)
    missed = misses(reactions(name, [run], sibling.QUICK.overload(slowed_sink.SLOW, streams=1)))
    assert any("in any case" in miss for miss in missed), missed


@pytest.mark.parametrize(("stops", "did"), [(0.2, True), (1.9, True), (2.1, False)])
def test_spark_stops_a_source_when_the_first_slow_batch_has_set_the_rate(stops: float, did: bool) -> None:
    """A batch of 0.125 s takes 1.25 s. The source has saved up 20 messages, which last for 0.11 s."""
    overload = Overload(begin=0.0, end=18.0, come=200.0, taken=20.0, spare=0.0, factor=16.0)
    run = MechanismRun(looks=[Look(at, round(100 * at), 0, max(0.0, at - stops)) for at in (0.0, stops, 20.0)])
    (found,) = (each for each in reactions("spark-pid", [run], overload) if "the source stops" in each.what)
    assert (found.what, found.did, found.expected) == ("the source stops after 0 to 1.99 s", did, True)


@pytest.mark.parametrize("quick", [True, False])
def test_spark_stops_no_source_whose_least_rate_is_what_comes(quick: bool) -> None:
    overload = Overload(begin=0.0, end=18.0, come=80.0, taken=20.0, spare=0.0, factor=80.0 if quick else 16.0)
    found = [each.what for each in reactions("spark-pid", [in_flight(0)], overload)]
    assert any("the source stops" in what for what in found) is not quick


def test_nothing_is_expected_of_a_batch_that_never_ends() -> None:
    stall = Overload(begin=0.0, end=18.0, come=200.0, taken=0.0, spare=0.0, factor=16.0)
    assert reactions("spark-pid", [in_flight(1_000_000)], stall) == []


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


def test_rows_in_flight_are_counted_at_one_time_although_reports_come_at_different_times() -> None:
    """100 rows/s are read and written, 30 ms later. Once only the newest report was seen, which may be half a second
    older than the other one."""

    def look(at: float, read: float, written: float) -> Look:
        return Look(at, round(100 * read), max(0, round(100 * (written - 0.03))), 0.0, (1000 + read, 1000 + written))

    reports = [(0.0, 0.03), (0.5, 0.03), (0.5, 0.53), (1.0, 0.53), (1.0, 1.4), (1.5, 1.4)]
    run = MechanismRun(looks=[look(0.1 * number, *each) for number, each in enumerate(reports)])
    assert run.most_in_flight(0.0, 1.0) == 3
    assert max(look.rows_in - look.rows_out for look in run.looks) == 50


def test_rows_in_flight_are_unknown_before_both_taskmanagers_have_reported() -> None:
    """The first report of the sinks is older than that of the sources. Once all that the sources had read until their
    report counted as in flight at that time."""
    reports = [(0.7, 0.4), (0.7, 0.65), (0.95, 0.65), (0.95, 0.9), (1.2, 0.9)]
    run = MechanismRun(
        looks=[Look(at, round(1000 * at), round(1000 * (out - 0.03)), 0.0, (at, out)) for at, out in reports]
    )
    assert run.most_in_flight(0.0, 2.0) == 30


def test_a_miss_that_is_explained_is_shown_and_fails_nothing() -> None:
    missed = Observation("tcp", "the source stops", False, True, "sockets hold more")
    assert misses([missed]) == []
    assert missed.figure.unit == "expected 1, but sockets hold more"
    assert Observation("tcp", "the source stops", True, True, "sockets hold more").figure.unit == "expected 1"


def test_the_report_says_who_did_what_and_where_credit_loses() -> None:
    findings = [
        Observation("credit", "rows are lost", False, False),
        Observation("shed", "rows are lost", True, True),
        OwnObservation("shed", "at most 100 rows are in flight", True, True),
        OwnObservation("shed", "at most 200 rows are in flight", True, None),
        Observation("credit", "memory is full", False, False),
    ]
    measured: Measured = {
        "credit": {"p99": ("ms", [100.0, 80.0, 90.0]), "rows lost": ("rows", [0.0])},
        "tcp": {"p99": ("ms", [88.0]), "rows lost": ("rows", [0.0])},
        "shed": {"p99": ("ms", [4.0, None, float("nan")]), "rows lost": ("rows", [50.0])},
        "heron": {"p99": ("ms", [9.0]), "rows lost": ("rows", [0.0])},
    }
    assert sentences(findings, measured, {"p99": "less", "rows lost": "less"}) == (
        "Rows are lost with shed; not with credit.",
        "Memory is full with none.",
        "1 of 1 expected reactions were seen; 1 measured, not judged.",
        "Credit loses in 'p99': 90 ms; better: shed 4, heron 9.",
    )
    assert [*losses(measured, {"p99": "more"})] == ["Credit loses in none of these figures: p99."]
    assert [*losses({"tcp": measured["tcp"]}, {"p99": "less"})] == []


def test_a_source_that_stops_twice_oscillates() -> None:
    waits = [0.0, 0.0, 0.05, 0.1, 0.1, 0.1, 0.15, 0.2, 0.2, 0.2]
    looks = [Look(0.05 * number, 10 * number, 0, waited) for number, waited in enumerate(waits)]
    run = MechanismRun(looks=looks)
    assert run.stops(0.0, 1.0) == 2
    assert run.stops(0.0, 0.2) == 1
    assert run.stops(0.4, 1.0) == 0


def test_a_wait_counts_for_the_time_since_the_last_report() -> None:
    """A process reports every fifth look. Waits of a tenth of the time are no stop; waits of six tenths are one."""
    waits = [0.0, 0.025, 0.175, 0.175, 0.2]
    looks = [Look(0.05 * number, 100 * (number // 5), 0, waits[number // 5]) for number in range(25)]
    run = MechanismRun(looks=looks)
    assert run.stopped_at(0.0) == pytest.approx(0.25)
    assert run.released_at(0.0) == pytest.approx(0.5)


def test_a_job_that_ran_out_of_memory_has_lost_what_was_under_way() -> None:
    full = MechanismRun(looks=[Look(0.0, 0, 0, 0.0), Look(1.5, 900, 400, 0.0)], rows_in=900, rows_out=400)
    full.out_of_memory = "full"
    assert (full.full_at, full.lost) == (1.5, 500)
    report = sibling.report({"storm-zk": [full]}, SHORT)
    assert "storm-zk: memory is full: yes, against the expectation" in report.target
    figures = {figure.name: figure.values for figure in report.figures}
    assert figures["storm-zk: until memory is full"] == (1.5,)


def test_a_job_whose_memory_is_full_shows_when() -> None:
    """The memory has 512 buffers. A message that waits has one of its own, and 200 messages/s come."""
    times = StallTimes(factor=80, before=0.5, stall=6.0, rounds=1)
    run = slowed_sink.one_round(
        lambda options: processes({**options, "network_memory": 8 << 20}), CONTESTANTS["unbounded"], times
    )
    assert run.out_of_memory.startswith("out of memory at ")
    assert run.full_at is not None
    assert 2.0 < run.full_at < times.end
    report = slowed_sink.report({"unbounded": [run]}, times)
    assert "unbounded: memory is full: yes, against the expectation" in report.target
    assert ("unbounded: until memory is full", (run.full_at,)) in [(each.name, each.values) for each in report.figures]


def test_a_run_in_which_an_input_stopped_reading_is_void() -> None:
    """Over plain TCP, an input may stop."""
    metrics = {"tasks": {"probe[0]": {"reader_stops": 2}}}
    observed.check_readers("tcp", metrics)
    observed.check_readers(None, metrics)
    with pytest.raises(hg.HeadgateError, match="the run is void: inputs stopped reading 2 times"):
        observed.check_readers("unbounded", metrics)


@pytest.mark.parametrize(
    ("place", "observe"),
    [
        pytest.param(processes, partial(observed.observe_part, seconds=1.5), id="part"),
        pytest.param(simulation(0), observed.observe, id="whole"),
    ],
)
def test_the_inputs_of_a_run_are_checked(place: Place, observe: Callable[..., MechanismRun]) -> None:
    """The job runs over plain TCP, whatever the options say. So the input of the stalled sink does stop."""
    flows = Flows({A2: Flow((B4,), 50_000.0, batch_rows=100)}, 4.0)
    with pytest.raises(hg.HeadgateError, match="the run is void: inputs stopped reading"):
        observe(
            lambda options: place({**options, "flow_control": "tcp"}),
            {"flow_control": "unbounded"},
            flows,
            Probe({B4: Stall(0.1, 3.0)}),
        )


def test_a_job_that_runs_for_too_long_is_cancelled_and_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink needs 10 s for the rows, and the job may take one."""
    monkeypatch.setattr(observed, "_longest", lambda planned: 1.0)
    flows = Flows({A2: Flow((B4,), 10_000.0, batch_rows=100)}, 1.0)
    run = observed.observe(simulation(0), counting(None, 80), flows, Probe(slows={B4: Slow(1000.0)}))
    assert run.is_stuck
    assert 0.9 < run.seconds < 1.2
    assert 0 < run.rows_out < run.rows_in
    assert run.seen == {}


def test_a_source_that_is_never_released_hangs_no_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal that lets it go on is lost. So the source never comes to its end."""
    monkeypatch.setattr(observed, "_MARGIN", 3.0)
    options = counting(LossyJStormStages(**jstorm_stages(80), lost="start"), 80)
    flows = Flows({A2: Flow((B4,), 20_000.0, batch_rows=BATCH)}, 1.0)
    run = observed.observe(processes, options, flows, Probe({B4: Stall(0.2, 0.5)}))
    if run.signals > 1:
        raise TooLate("more rows are in flight on a busy machine; the next release of the queue arrives")
    assert run.is_stuck
    assert run.rows_in < 20_000
    assert run.released_at(0.7) is None


def test_a_job_that_does_not_end_is_a_miss_and_its_source_is_not_free() -> None:
    stuck = MechanismRun(looks=[Look(0.0, 0, 0, 0.0), Look(9.0, 100, 100, 8.0)], rows_in=100, rows_out=100)
    assert sibling.report({"max-pending": [stuck]}, SHORT).target.count("does not end") == 0
    stuck.is_stuck = True
    assert "max-pending: the job does not end: yes, against the expectation" in (
        sibling.report({"max-pending": [stuck]}, SHORT).target
    )
    overload = Overload(begin=0.0, end=8.0, come=11.0, taken=10.0, spare=6.0, factor=1.0)
    free = [each for each in reactions("jstorm-stages", [stuck], overload) if "reads freely" in each.what]
    assert [(each.did, each.expected) for each in free] == [(False, True)]


def test_processor_times_of_zookeeper_are_those_of_the_run() -> None:
    """The server used 7 s for its start."""
    used = iter([7.0, 7.25])
    flows = Flows({A2: Flow((B4,), 1000.0, batch_rows=BATCH)}, 60.0)
    run = observed.observe_part(processes, {}, flows, Probe(), seconds=0.3, zookeeper_s=lambda: next(used))
    assert run.zookeeper_s == 0.25
    assert observed.overhead([run])["processor time of ZooKeeper"] == ("s per s", [0.25 / run.seconds])


def test_rows_that_are_sent_again_are_wasted_work() -> None:
    once, twice = MechanismRun(rows_in=100, rows_sent=100, rows_out=100), MechanismRun(rows_in=100, rows_sent=150)
    twice.rows_out = 150
    assert observed.overhead([once, twice])["rows sent for a written row"] == ("", [1.0, 1.5])
