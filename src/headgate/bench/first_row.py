"""`first-row`: seconds from `import headgate` to the first row of a small local job."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from headgate.bench.case_options import Options
from headgate.bench.report import CaseResult, Figure
from headgate.errors import HeadgateError

_LIMIT_S: Final = 0.8
_ROUNDS: Final = 15
_QUICK_ROUNDS: Final = 3
_TIMEOUT_S: Final = 60.0
#: A program that prints the seconds from the import to the rows, and the processor time of its process.
PROGRAM: Final = """
import time
begin = time.perf_counter()
import headgate as hg
env = hg.StreamEnvironment(parallelism=2)
rows = env.from_source(hg.sources.iterable([[{"key": 1, "value": 2}], [{"key": 2, "value": 3}]]))
assert rows.key_by("key").aggregate(total=hg.sum("value")).collect().num_rows == 2
print(time.perf_counter() - begin, time.process_time())
"""


def run(options: Options) -> CaseResult:
    """Measure new programs one after the other. Each program runs a keyed sum of two rows in two processes."""
    rounds = [_measured() for _ in range(_QUICK_ROUNDS if options.quick else _ROUNDS)]
    seconds = Figure("import to first row", "s", tuple(elapsed for elapsed, _ in rounds))
    processor = Figure("processor time of the program", "s", tuple(used for _, used in rounds))
    return CaseResult(
        case="first-row",
        target=f"median {_LIMIT_S} s or less",
        met=seconds.median <= _LIMIT_S,
        figures=(seconds, processor),
    )


def _measured() -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise HeadgateError(f"first-row: the program ended with exit code {done.returncode}: {done.stderr}")
    elapsed, used = map(float, done.stdout.split())
    return elapsed, used
