"""The runs of an experiment: at the same time or in turn, with failed ones, and after Ctrl-C."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import Skipped
from headgate.errors import ConfigError, HeadgateError
from headgate.lab.experiment import Experiment
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.made_runs import Plan, judged, make
from headgate.lab.mechanisms.observed import MechanismRun, interrupted, observe
from headgate.lab.places import A2, B4, processes
from headgate.lab.probe import Probe
from headgate.runtime.master import job

#: Seconds after which a run that waits for another one fails.
PATIENCE = 30.0


def quick(at_once: int, said: list[str] | None = None) -> Options:
    return Options(True, ([] if said is None else said).append, at_once=at_once)


def run() -> MechanismRun:
    return MechanismRun(driver_s=1.0, zookeeper_s=1.0)


def fail() -> MechanismRun:
    raise ConfigError("no Java")


def test_so_many_runs_are_made_at_the_same_time_and_their_order_is_that_of_the_plan() -> None:
    all_run = threading.Barrier(3, timeout=PATIENCE)
    first_may_end = threading.Event()

    def first() -> MechanismRun:
        all_run.wait()
        assert first_may_end.wait(PATIENCE)
        return run()

    def last() -> MechanismRun:
        all_run.wait()
        first_may_end.set()
        return run()

    def middle() -> MechanismRun:
        all_run.wait()
        return run()

    said = list[str]()
    made = make("sibling", quick(3, said), [("a", first), ("b", middle), ("c", last)])
    assert list(made.runs) == ["a", "b", "c"]
    assert made.failed == ()
    assert said[0] == "sibling: 3 runs, 3 at the same time"
    assert [line.partition(",")[0] for line in said[1:]] == [f"sibling: {number} of 3" for number in (1, 2, 3)]
    assert sorted(line.split(", ")[1][0] for line in said[1:]) == ["a", "b", "c"]


def test_otherwise_a_run_begins_when_the_one_before_has_ended() -> None:
    running = list[str]()
    seen = list[list[str]]()

    def named(name: str) -> Any:
        def make_it() -> MechanismRun:
            running.append(name)
            seen.append([*running])
            running.remove(name)
            return run()

        return name, make_it

    made = make("sibling", quick(1), [named("a"), named("b"), named("a")])
    assert seen == [["a"], ["b"], ["a"]]
    assert [len(rounds) for rounds in made.runs.values()] == [2, 1]


def test_processor_times_that_several_runs_share_are_not_those_of_one() -> None:
    def times(at_once: int) -> list[float | None]:
        (made,) = make("burst", quick(at_once), [("a", run)]).runs["a"]
        return [made.driver_s, made.zookeeper_s]

    assert times(1) == [1.0, 1.0]
    assert times(2) == [None, None]


def test_a_failed_contestant_does_not_lose_the_results_of_others() -> None:
    said = list[str]()
    plan: Plan = [("storm-zk", fail), ("credit", run), ("storm-zk", run)]
    made = make("sibling", quick(2, said), plan)
    assert list(made.runs) == ["credit"]
    assert made.failed == (Skipped("storm-zk", "ConfigError: no Java"),)
    assert "storm-zk: failed, ConfigError" in " ".join(said)
    report = made.complete(Experiment(case="sibling", target="all", met=True, figures=()))
    assert not report.passed
    assert report.skipped == made.failed
    assert report.settings["runs at the same time"] == 2


def test_who_misses_an_expectation_beside_others_runs_again_alone() -> None:
    """With the first one that runs again, what it is compared with runs again too. The last runs of each count."""
    made = dict[str, int]()

    def counted(name: str) -> tuple[str, Any]:
        def make_it() -> MechanismRun:
            made[name] = made.get(name, 0) + 1
            return MechanismRun(seconds=made[name])

        return name, make_it

    def report(runs: dict[str, list[MechanismRun]]) -> Experiment:
        late = tuple(name for name, (run,) in runs.items() if name == "late" and run.seconds < 2)
        return Experiment(case="sibling", target="all", met=not late, figures=(), missed=late)

    def result(at_once: int, *names: str) -> Experiment:
        made.clear()
        return judged("sibling", quick(at_once), [counted(name) for name in names], report, needed=["credit"])

    again = result(2, "credit", "late", "tcp")
    assert made == {"credit": 2, "late": 2, "tcp": 1}
    assert (again.met, again.settings["run again, alone"]) == (True, "late")
    assert again.settings["runs at the same time"] == 2
    never = result(2, "credit", "tcp")
    assert made == {"credit": 1, "tcp": 1}
    assert "run again, alone" not in never.settings
    assert not result(1, "credit", "late").met
    assert made == {"credit": 1, "late": 1}


@pytest.mark.parametrize(("names", "needed"), [(["credit", "tcp"], ["credit"]), (["credit"], [])])
def test_without_anything_to_compare_with_the_experiment_fails(names: list[str], needed: list[str]) -> None:
    plan: Plan = [(name, fail if name == "credit" else run) for name in names]
    with pytest.raises(HeadgateError, match="credit failed, and without it there are no results: ConfigError: no Java"):
        make("tuning", quick(2), plan, needed=needed)


def test_an_interrupt_ends_the_jobs_of_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run ends, and the interrupt comes. The job of the other run has rows for ten minutes."""
    jobs = list[hg.JobHandle]()
    monkeypatch.setattr(job, "listeners", [jobs.append])
    starts = threading.Event()

    def endless() -> MechanismRun:
        return observe(place, {}, Flows({A2: Flow((B4,), 1000.0)}, 600.0), Probe())

    def place(options: dict[str, Any]) -> hg.StreamEnvironment:
        starts.set()
        return processes(options)

    def ends() -> MechanismRun:
        assert starts.wait(PATIENCE)
        return run()

    def say(text: str) -> None:
        if "1 of 3" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make("sibling", Options(True, say, at_once=2), [("endless", endless), ("ends", ends), ("later", endless)])
    assert {each.status() for each in jobs} == {"CANCELLED"}
    assert not interrupted.is_set(), "a later experiment of the program runs"
