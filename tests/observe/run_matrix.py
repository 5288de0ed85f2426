"""Run the situations live, and count how often the diagnosis is right.

  .venv/bin/python -m tests.observe.run_matrix [--set all] [--seeds FIRST COUNT] [--on spark] [--only TEXT]

A diagnosis is right if, five seconds after the onset, its first finding names the place and one of the causes; some
situations have more time (`Setting.allowed`). If two places are slow, its first two findings must name both. If one
subtask is slow, it must name this subtask. A healthy job is diagnosed each second, and is right if nobody is ever
blamed. Situations that need rights which this system does not give are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from headgate import JobHandle
from headgate.observe.finding import Finding
from tests.observe.faults import computes, mark_end, mark_onset, mark_slow_disk
from tests.observe.situations import (
    CAUSES,
    DEPLOYMENTS,
    HEALTHY,
    OTHERS,
    TUNING,
    UNSEEN,
    Drawn,
    Situation,
    Trouble,
    drawn,
    start,
)
from tests.slow_disk import slow_disk

#: How many times a second the slow disk writes.
WRITES = 20
#: The share of the time of a slow place that its rows need, at least.
_SLOW = 0.8
SETS = {
    "tuning": TUNING,
    "unseen": UNSEEN,
    "others": OTHERS,
    "causes": CAUSES,
    "healthy": HEALTHY,
    "faults": (*TUNING, *UNSEEN),
    "all": (*TUNING, *UNSEEN, *OTHERS, *CAUSES, *HEALTHY),
}


def main() -> int:
    options = _options()
    first, count = options.seeds
    right: dict[str, list[bool]] = defaultdict(list)
    for seed in range(first, first + count):
        for situation in SETS[options.set]:
            if options.only in situation.name and not (options.but and options.but in situation.name):
                is_right = run(situation, seed, options.on, options.save)
                right[situation.name] += [] if is_right is None else [is_right]
    for name, results in right.items():
        print(f"{name:50} {sum(results)} of {len(results)}")
    total = [result for results in right.values() for result in results]
    print(f"{sum(total)} of {len(total)} right")
    return 0 if all(total) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default="all", help="which situations")
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 1), metavar=("FIRST", "COUNT"))
    parser.add_argument("--on", choices=DEPLOYMENTS, default=DEPLOYMENTS[0], help="how the tasks run")
    parser.add_argument("--only", default="", help="situations whose name has this text")
    parser.add_argument("--but", default="", help="not the situations whose name has this text")
    parser.add_argument("--save", type=Path, help="keep the recordings in this folder")
    return parser.parse_args()


def run(situation: Situation, seed: int, deployment: str, save: Path | None = None) -> bool | None:
    """Run one situation. Returns whether the diagnosis was right; None if the system does not allow the situation."""
    deployment = situation.setting.deployment or deployment
    recording = None if save is None else save / f"{situation.file}-{seed}.gz"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        with suppress(OSError):  # not allowed: functions that write use the machine's disk
            mark_slow_disk(folder, stack.enter_context(slow_disk(folder, WRITES)))
        try:
            around = stack.enter_context(situation.setting.around())
        except OSError as error:
            print(f"left out {situation.name}: the system does not allow it: {error}", file=sys.stderr, flush=True)
            return None
        begins = partial(start, situation, seed, folder, deployment)
        observed = partial(_observed, begins, situation, folder, around.begin, recording)
        before, findings, taken = around.run(observed)
    sizes = drawn(situation, seed)
    limits = _limits(situation, sizes, taken, in_one_process="threads" in deployment)
    is_right = not before and matches(limits, findings, sizes.subtask)
    for each in set(situation.troubles) - set(limits.troubles):
        print(f"        {each.place} gets too few rows to be slow", file=sys.stderr)
    print("ok   " if is_right else "WRONG", f"{situation.name} [{seed}, {deployment}]", file=sys.stderr)
    for line in (*(f"before: {each.sentence}" for each in before), *_shown(findings)):
        print(f"        {line}", file=sys.stderr, flush=True)
    return is_right


def _observed(
    begins: Callable[[], JobHandle],
    situation: Situation,
    folder: Path,
    onset: Callable[[], None],
    recording: Path | None,
) -> tuple[list[Finding], list[Finding], dict[str, float]]:
    """Run a job. Return what is found before the onset, and when a diagnosis has had its time; and the rows a second
    that each slow place has taken in between."""
    setting = situation.setting
    after = _each_second if situation.is_healthy else _after
    job = begins()
    try:
        while not job.backpressure():
            time.sleep(0.1)
        before = after(job, setting.settle)
        mark_onset(folder)
        onset()
        taken, began = _taken(job, situation), time.monotonic()
        findings = after(job, setting.allowed)
        seconds = time.monotonic() - began
        rates = {place: (rows - taken[place]) / seconds for place, rows in _taken(job, situation).items()}
        if recording is not None:
            recording.parent.mkdir(parents=True, exist_ok=True)
            job.save_recording(recording)
        return before, findings, rates
    finally:
        mark_end(folder)
        job.cancel()


def _taken(job: JobHandle, situation: Situation) -> dict[str, int]:
    """Return the rows that each place with a trouble has taken."""
    operators = job.metrics()["operators"]
    return {each.place: operators.get(each.place, {}).get("rows_in", 0) for each in situation.troubles}


def _limits(situation: Situation, sizes: Drawn, taken: Mapping[str, float], *, in_one_process: bool) -> Situation:
    """Return the situation with those of two troubles that limit the job, or the busiest one.

    `taken` has the rows a second by place. Functions that compute share the processors, or the interpreter lock.
    """
    if len(situation.troubles) < 2:
        return situation
    processors = 1 if in_one_process else os.cpu_count() or 1
    busy = {}
    for each in situation.troubles:
        at_once = min(sizes.parallelism, processors) if each.fault is computes else sizes.parallelism
        busy[each.place] = taken[each.place] * sizes.seconds_per_row / at_once
    least = min(_SLOW, max(busy.values()))
    return replace(situation, troubles=tuple(each for each in situation.troubles if busy[each.place] >= least))


def _after(job: JobHandle, seconds: float) -> list[Finding]:
    """Return what is found after so many seconds."""
    time.sleep(seconds)
    return job.diagnose()


def _each_second(job: JobHandle, seconds: float) -> list[Finding]:
    """Diagnose a job each second for so many seconds, and return what is found first."""
    end, found = time.monotonic() + seconds, job.diagnose()
    while time.monotonic() < end:
        time.sleep(1.0)
        found = found or job.diagnose()
    return found


def matches(situation: Situation, findings: list[Finding], subtask: int | None = None) -> bool:
    """Return whether the first findings are the situation's troubles; for a healthy job, whether there are none.

    If only one subtask is slow, or gets most rows, and is known, its finding must name it alone.
    """
    if situation.is_healthy:
        return not findings
    firsts = findings[: len(situation.troubles)]
    return all(_is_found(trouble, firsts, subtask) for trouble in situation.troubles)


def _is_found(trouble: Trouble, findings: Iterable[Finding], subtask: int | None) -> bool:
    subtasks = None if subtask is None or not trouble.is_in_one_subtask else (subtask,)
    return any(
        _is_place(trouble, each) and each.cause.name in trouble.causes and each.subtasks == (subtasks or each.subtasks)
        for each in findings
    )


def _is_place(trouble: Trouble, finding: Finding) -> bool:
    if finding.operator is None:
        return finding.place == f"the exchange {trouble.exchange!r}"
    return finding.operator == trouble.place


def _shown(findings: Iterable[Finding]) -> list[str]:
    return [f"{finding.cause.name}: {finding.sentence}" for finding in findings]


if __name__ == "__main__":
    sys.exit(main())
