"""Run the situations live, and count how often the diagnosis is right.

  .venv/bin/python -m tests.observe.run_matrix [--set all] [--seeds FIRST COUNT] [--on spark] [--only TEXT]

A diagnosis is right if, five seconds after the onset, its first finding names the place and one of the causes. If two
places are slow, its first two findings must name both. A healthy job is right if nobody is blamed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from headgate.observe.finding import Finding
from tests.observe.faults import mark_end, mark_onset, mark_slow_disk
from tests.observe.situations import DEPLOYMENTS, HEALTHY, OTHERS, TUNING, UNSEEN, Situation, Trouble, start
from tests.slow_disk import slow_disk

#: How many times a second the slow disk writes.
WRITES = 20
#: Seconds that a job runs before its fault begins, and that a diagnosis has.
SETTLE, ALLOWED = 5.0, 5.0
SETS = {
    "tuning": TUNING,
    "unseen": UNSEEN,
    "others": OTHERS,
    "healthy": HEALTHY,
    "faults": (*TUNING, *UNSEEN),
    "all": (*TUNING, *UNSEEN, *OTHERS, *HEALTHY),
}


def main() -> int:
    options = _options()
    first, count = options.seeds
    right: dict[str, list[bool]] = defaultdict(list)
    for seed in range(first, first + count):
        for situation in SETS[options.set]:
            if options.only in situation.name and not (options.but and options.but in situation.name):
                right[situation.name].append(run(situation, seed, options.on, options.save))
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


def run(situation: Situation, seed: int, deployment: str, save: Path | None = None) -> bool:
    """Run one situation. Returns whether the diagnosis was right."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        with suppress(OSError):  # not allowed: functions that write use the machine's disk
            mark_slow_disk(folder, stack.enter_context(slow_disk(folder, WRITES)))
        job = start(situation, seed, folder, deployment)
        try:
            while not job.backpressure():
                time.sleep(0.1)
            time.sleep(SETTLE)
            before = job.diagnose()
            mark_onset(folder)
            time.sleep(ALLOWED)
            findings = job.diagnose()
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                job.save_recording(save / f"{situation.file}-{seed}.gz")
        finally:
            mark_end(folder)
            job.cancel()
    is_right = not before and matches(situation, findings)
    print("ok   " if is_right else "WRONG", f"{situation.name} [{seed}, {deployment}]", file=sys.stderr)
    for line in (*(f"before: {each.sentence}" for each in before), *_shown(findings)):
        print(f"        {line}", file=sys.stderr, flush=True)
    return is_right


def matches(situation: Situation, findings: list[Finding]) -> bool:
    """Return whether the first findings are the situation's troubles; for a healthy job, whether there are none."""
    if situation.is_healthy:
        return not findings
    firsts = findings[: len(situation.troubles)]
    return all(_is_found(trouble, firsts) for trouble in situation.troubles)


def _is_found(trouble: Trouble, findings: Iterable[Finding]) -> bool:
    return any(each.operator == trouble.place and each.cause.name in trouble.causes for each in findings)


def _shown(findings: Iterable[Finding]) -> list[str]:
    return [f"{finding.cause.name}: {finding.sentence}" for finding in findings]


if __name__ == "__main__":
    sys.exit(main())
