"""`waits`: the long waits of mechanisms, in virtual time and with a real ZooKeeper, and their verdicts."""

from __future__ import annotations

import pytest

from headgate.bench.case_options import Options
from headgate.lab.mechanisms import contestants, observed, waits
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS
from headgate.lab.mechanisms.observed import Look, MechanismRun
from headgate.lab.mechanisms.reactions import SLACK
from headgate.lab.mechanisms.waits import FULL, LOADS, QUICK, SWEPT, WaitTimes
from headgate.lab.places import processes
from headgate.lab.simulated import simulated_waits
from headgate.lab.simulated.simulated_place import simulation
from headgate.lab.zookeeper_server import zookeeper_server
from tests.ending import TooLate

#: When the source of a made run is free: in seconds after it stopped, or after the stall.
EXPECTED = {"max-pending": ("stall", 1.5), "storm-zk-1.2": ("stop", 3.0), "storm-status": ("stall", 1.3)}


def made(name: str, *, since: str = "", free: float = 0.0, doubled: int = 5000) -> MechanismRun:
    """Return a run of `QUICK` whose source stops when the queue is full. By default it does what is expected."""
    since, free = (since, free) if since else EXPECTED[name]
    load, overload, reaction = LOADS[name], QUICK.overload(LOADS[name]), CONTESTANTS[name].expected.reaction
    assert reaction is not None
    stops = overload.begin + reaction.fills[0] / QUICK.factor / load.come
    free_at = free + (stops if since == "stop" else overload.end)
    looks, waited = list[Look](), 0.0
    for step in range(round(QUICK.end(load) / 0.05)):
        at = 0.05 * step
        waited += 0.05 * (stops < at <= free_at)
        read = stops if stops < at <= free_at else at
        written = min(read, overload.begin) if at < overload.end else read
        looks.append(Look(at, round(load.come * BATCH * read), round(load.come * BATCH * written), waited))
    more = doubled if name == "max-pending" else 0
    return MechanismRun(looks=looks, rows_in=100_000, rows_out=100_000 + more, seconds=looks[-1].at)


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SWEPT)
def test_in_virtual_time_a_mechanism_waits_as_documented(name: str) -> None:
    result = waits.report({name: [waits.one_round(simulation(0), name, QUICK)]}, QUICK)
    assert result.met, result.target


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SWEPT)
def test_in_virtual_time_an_undivided_mechanism_waits_as_documented(name: str) -> None:
    result = waits.report({name: [waits.one_round(simulation(0), name, FULL)]}, FULL)
    assert result.met, result.target


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SWEPT)
def test_times_and_sizes_may_be_divided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of 32,768 messages fills in 65.5 s at 500 messages/s, one of 1,000 in 5 s at 200."""
    monkeypatch.setattr(waits, "SWEPT", (name,))
    monkeypatch.setattr(waits, "QUICK_FACTORS", (10.0, 20.0))
    said = list[str]()
    result = simulated_waits.run(Options(True, said.append))
    assert result.met, result.target
    assert said[0] == "waits: all sizes and times divided by 10, 20 in turn"
    figures = {figure.name: figure.median for figure in result.figures}
    for factor in (10, 20):
        stops = figures[f"{name}: until the source stops, times {factor}"]
        assert stops == pytest.approx({"max-pending": 5.0, "storm-status": 65.5}[name], rel=0.1)
    assert [len(series.x) for series in result.plots[0].series] == [2, 2]


def test_a_source_of_storm_1_2_learns_of_the_free_queue_at_its_second_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kazoo")
    with zookeeper_server() as server:
        for module in (contestants, observed):
            monkeypatch.setattr(module, "zookeeper", lambda: server)
        run = waits.one_round(processes, "storm-zk-1.2", QUICK)
    result = waits.report({"storm-zk-1.2": [run]}, QUICK)
    stands = {figure.name: figure.values for figure in result.figures}.get("storm-zk-1.2: how long the source stands")
    if stands is None or abs(stands[0] - 3.0) > 2 * SLACK:
        raise TooLate(f"the source stands for {stands}: its processes or ZooKeeper were late")
    assert run.rows_in == run.rows_out


# ---- verdicts


@pytest.mark.parametrize("name", LOADS)
def test_what_waits_as_long_as_documented_meets_its_expectations(name: str) -> None:
    result = waits.report({name: [made(name)]}, QUICK)
    assert result.met, result.target


@pytest.mark.parametrize(
    ("run", "missed"),
    [
        ({"name": "storm-zk-1.2", "since": "stop", "free": 1.5}, "until its second poll, for 2 to 4 s"),
        ({"name": "storm-status", "since": "stall", "free": 0.3}, "at least 0.592 s after the stall"),
        ({"name": "max-pending", "doubled": 4900}, "at least 5,000 rows are doubled"),
        ({"name": "max-pending", "since": "stall", "free": 9.0}, "the source reads freely at the end"),
    ],
)
def test_what_waits_too_short_or_too_long_is_a_miss(run: dict[str, object], missed: str) -> None:
    result = waits.report({str(run["name"]): [made(**run)]}, QUICK)  # type: ignore[arg-type]
    assert f"{missed}: no, against the expectation" in result.target


def test_a_time_that_does_not_scale_is_a_miss() -> None:
    """The source stops after 5 s, and after a twentieth of 7 s."""

    def run(factor: float, stops: float) -> MechanismRun:
        overload = WaitTimes(factor, FULL.edge / factor).overload(LOADS["max-pending"])
        begin, end = overload.begin + stops / factor, overload.end + 24 / factor
        looks = [Look(at, rows, 0, at * (begin < at <= end)) for rows, at in enumerate((0.0, begin, end, 2 * end))]
        return MechanismRun(looks=looks)

    def misses(stops: float) -> bool:
        target = waits.sweep_report({"max-pending": {1.0: run(1.0, 5.0), 20.0: run(20.0, stops)}}).target
        return "until the source stops, times the factor, is the same: no" in target

    assert not misses(5.2)
    assert misses(7.0)


def test_each_run_takes_less_than_two_and_a_half_minutes_and_all_less_than_six() -> None:
    """At most so many messages wait when the source ends; the sink then takes them. A job needs time to start."""
    waiting = {"max-pending": waits.PENDING, "storm-zk-1.2": 2 * waits.POLL * 200, "storm-status": waits.QUEUE}
    planned = {name: FULL.end(load) + waiting[name] / load.taken + 1.5 for name, load in LOADS.items()}
    assert max(planned.values()) < 150, planned
    assert sum(planned.values()) < 360, planned


def test_the_waits_are_those_of_the_originals() -> None:
    """Nothing of a full run is divided, and each stall is long enough for what it shows."""
    assert FULL.factor == 1
    pending = CONTESTANTS["max-pending"].options(1)["throttle"]
    assert (pending.messages, pending.timeout) == (waits.PENDING, 30)
    assert LOADS["max-pending"].stall > 2 * pending.timeout + pending.messages / LOADS["max-pending"].come
    assert CONTESTANTS["storm-status"].options(1)["throttle"].receive_buffer == waits.QUEUE
    assert LOADS["storm-status"].stall > waits.QUEUE / LOADS["storm-status"].come
