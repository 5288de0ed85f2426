"""A hundred windows, each with keys of its own: the memory of the process stays that of the first few."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

WINDOWS, FIRST = 100, 20
#: How much larger than in its first windows the process may get later: what is left in the allocators is never alike.
SHARE = 0.2
#: Argument: a type of key, and how many of them each window has. Tells, by window, the resident bytes of the process
#: when that was emitted, and at the end how many rows came out and how many keys are still held.
PROGRAM = """
import json, os, sys
from pathlib import Path
import numpy as np, pyarrow as pa
import headgate as hg

kind, per_window, windows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
page, peaks, second = os.sysconf("SC_PAGE_SIZE"), [0] * windows, 1_000_000

def rows(start, n):
    number = np.arange(start, start + n)
    at = pa.array(number // per_window * second).cast(pa.timestamp("us"))
    return pa.record_batch({"key": pa.array(number).cast(kind), "at": at, "value": pa.array(number)})

def emitted(batch, info):
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * page
    window = batch["window_start"][0].value // second
    peaks[window] = max(peaks[window], resident)

env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
source = hg.sources.generate(rows, rows=windows * per_window, batch_rows=8192)
stream = env.from_source(source, watermark=hg.Watermark("at"))
sums = stream.key_by("key").window(hg.tumble("1 s")).aggregate(rows=hg.count(), total=hg.sum("value"))
sums.sink_to(hg.sinks.for_each_batch(emitted))
result = env.execute()
kept = sum(operator["state_keys"] for operator in result.metrics["operators"].values() if "state_keys" in operator)
print(json.dumps({"peaks": peaks, "rows_out": result.rows_out, "keys": kept}))
"""


def test_keys_of_fired_windows_leave_the_process() -> None:
    stays_flat("string", 20_000)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_ten_million_keys_leave_the_process(kind: str) -> None:
    stays_flat(kind, 100_000)


def stays_flat(kind: str, per_window: int) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", PROGRAM, kind, str(per_window), str(WINDOWS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=230, env=environ, check=False)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    peaks = told["peaks"]
    assert told["rows_out"] == WINDOWS * per_window
    assert min(peaks) > 0
    early, later = max(peaks[:FIRST]), max(peaks[FIRST:])
    print(f"{kind}: {early / 1e6:.0f} MB in the first {FIRST} windows, {later / 1e6:.0f} MB after them")
    assert later <= (1 + SHARE) * early
    assert told["keys"] <= 4 * per_window
