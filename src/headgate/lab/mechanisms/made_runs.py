"""Makes the runs of an experiment on mechanisms: one after the other, or several at the same time.

Runs at the same time share the cores, so some are late. What misses an expectation then runs again, alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TypeAlias

from headgate.bench.case_options import Options
from headgate.bench.command import reason
from headgate.bench.report import Skipped
from headgate.errors import HeadgateError
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms.observed import MechanismRun, interrupted

#: The runs to make, each with the name of its contestant. A contestant has one run for each round.
Plan: TypeAlias = list[tuple[str, Callable[[], MechanismRun]]]


@dataclass(frozen=True, slots=True)
class MadeRuns:
    """The runs of each contestant in the order of the plan, the contestants that failed, and how many ran at once."""

    runs: dict[str, list[MechanismRun]]
    failed: tuple[Skipped, ...]
    at_once: int

    def complete(self, report: Experiment) -> Experiment:
        """Return the report of these runs with what is missing in it. An experiment that lacks a run has not passed."""
        settings = {**report.settings, "runs at the same time": self.at_once}
        return replace(report, settings=settings, skipped=(*report.skipped, *self.failed))


def judged(
    case: str,
    options: Options,
    plan: Plan,
    report: Callable[[dict[str, list[MechanismRun]]], Experiment],
    needed: Collection[str] = (),
) -> Experiment:
    """Make the runs, and return what `report` makes of them. For `needed` see `make`.

    If runs were made at the same time, contestants that missed an expectation run again, one at a time, and so do those
    that are `needed`. Then only these second runs of them count, and the report says whose they are.
    """
    made = make(case, options, plan, needed)
    experiment = report(made.runs)
    if options.at_once == 1 or not experiment.missed:
        return made.complete(experiment)
    options.say(f"{case}: again, without others beside it: {', '.join(experiment.missed)}")
    second = [each for each in plan if each[0] in {*experiment.missed, *needed}]
    again = make(case, replace(options, at_once=1), second, needed)
    runs = {name: again.runs.get(name, rounds) for name, rounds in made.runs.items()}
    complete = replace(made, runs=runs, failed=(*made.failed, *again.failed)).complete(report(runs))
    return replace(complete, settings={**complete.settings, "run again, alone": ", ".join(experiment.missed)})


def make(case: str, options: Options, plan: Plan, needed: Collection[str] = ()) -> MadeRuns:
    """Make the runs, `options.at_once` at the same time, and say a line about each one that has ended.

    If a run fails, its contestant is left out and the others are kept. Raises HeadgateError if all contestants fail, or
    one that is `needed`. An interrupt (Ctrl-C) ends all runs and their jobs.
    """
    how = "one at a time" if options.at_once == 1 else f"{options.at_once} at the same time"
    options.say(f"{case}: {len(plan)} runs, {how}")
    # Threads whose names begin with "headgate-" run functions of jobs, and so cannot wait for the end of a job.
    with ThreadPoolExecutor(options.at_once, thread_name_prefix="lab-run") as pool:
        futures = {pool.submit(_timed, run): name for name, run in plan}
        try:
            for number, future in enumerate(as_completed(futures), 1):
                options.say(f"{case}: {number} of {len(plan)}, {futures[future]}: {_ending(future)}")
        except BaseException:
            interrupted.set()
            pool.shutdown(cancel_futures=True)
            interrupted.clear()
            raise
    reasons = {
        name: reason(error) for future, name in futures.items() if isinstance(error := future.exception(), Exception)
    }
    runs: dict[str, list[MechanismRun]] = {name: [] for name in futures.values() if name not in reasons}
    for future, name in futures.items():
        if name in runs:
            runs[name].append(_of_its_own(future.result()[0], options.at_once))
    if missing := [name for name in reasons if name in needed or not runs]:
        raise HeadgateError(f"{missing[0]} failed, and without it there are no results: {reasons[missing[0]]}")
    return MadeRuns(runs, tuple(Skipped(*each) for each in reasons.items()), options.at_once)


def _timed(run: Callable[[], MechanismRun]) -> tuple[MechanismRun, float]:
    began = time.monotonic()
    return run(), time.monotonic() - began


def _ending(future: Future[tuple[MechanismRun, float]]) -> str:
    error = future.exception()
    return f"failed, {type(error).__name__}" if error is not None else f"{future.result()[1]:.1f} s"


def _of_its_own(run: MechanismRun, at_once: int) -> MechanismRun:
    """Return the run without the processor times of what several runs share: the driver and a ZooKeeper."""
    return run if at_once == 1 else replace(run, driver_s=None, zookeeper_s=None)
