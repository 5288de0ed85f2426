"""Run the situations live, and count how often the diagnosis is right.

  .venv/bin/python -m tests.observe.run_matrix [--seeds FIRST COUNT] [--only TEXT] [--save FOLDER]

A diagnosis is right if, five seconds after the onset, its first finding names the place and one of the causes. A
healthy job is right if nobody is blamed. `--save` keeps the recording of each run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from headgate.observe.finding import Finding
from tests.observe.situations import HEALTHY, MATRIX, Situation, mark_onset, start

#: Seconds that a job runs before its fault begins, and that a diagnosis has.
SETTLE, ALLOWED = 5.0, 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 1), metavar=("FIRST", "COUNT"))
    parser.add_argument("--only", default="", help="situations whose name has this text")
    parser.add_argument("--save", type=Path, help="keep the recordings in this folder")
    options = parser.parse_args()
    first, count = options.seeds
    right: dict[str, list[bool]] = defaultdict(list)
    for seed in range(first, first + count):
        for situation in (*MATRIX, *HEALTHY):
            if options.only in situation.name:
                right[situation.name].append(run(situation, seed, options.save))
    for name, results in right.items():
        print(f"{name:50} {sum(results)} of {len(results)}")
    total = [result for results in right.values() for result in results]
    print(f"{sum(total)} of {len(total)} right")
    return 0 if all(total) else 1


def run(situation: Situation, seed: int, save: Path | None = None) -> bool:
    """Run one situation. Returns whether the diagnosis was right."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = start(situation, seed, folder)
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
            job.cancel()
    is_right = not before and matches(situation, findings)
    print("ok   " if is_right else "WRONG", f"{situation.name} [{seed}]", *_shown(before, findings), file=sys.stderr)
    return is_right


def matches(situation: Situation, findings: list[Finding]) -> bool:
    """Return whether the first finding is the place and cause of the situation; for a healthy one, whether it is
    empty."""
    if not situation.place or not findings:
        return not situation.place and not findings
    return findings[0].operator == situation.place and findings[0].cause.name in situation.causes


def _shown(before: list[Finding], findings: list[Finding]) -> list[str]:
    lines = [f"  before: {finding.sentence}" for finding in before]
    return ["", *lines, *(f"  {finding.cause.name} {finding.sentence}" for finding in findings)]


if __name__ == "__main__":
    sys.exit(main())
