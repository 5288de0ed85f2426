"""A simulation of many subtasks: how much processor time a minute of virtual time takes, and how much memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: 250 streams with 20 sources and 20 sinks each, all to all: 10,000 subtasks, 100,000 channels. It runs in a process of
#: its own, whose peak of memory is that of the simulation alone.
PROGRAM = """
import json, resource, time
import headgate as hg
from headgate.simulation.simulated_environment import SimulatedEnvironment

STREAMS, WIDTH, SECONDS = 250, 20, 60
config = hg.Config(segment_size=1024, network_memory="2 GiB", metrics=False)
env = SimulatedEnvironment(parallelism=WIDTH, taskmanagers=2, config=config)
for stream in range(STREAMS):
    rows = hg.sources.generate(rows_of, rate=WIDTH, rows=WIDTH * SECONDS, batch_rows=1)
    env.from_source(rows).name(f"source {stream}").shuffle().sink_to(hg.sinks.null())
began = time.process_time()
result = env.execute()
print(json.dumps({
    "rows": result.rows_out, "virtual": result.duration_s, "seconds": time.process_time() - began,
    "subtasks": len(result.metrics["tasks"]), "channels": STREAMS * WIDTH * WIDTH,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""
ROWS = """
import numpy as np, pyarrow as pa

def rows_of(start, n):
    return pa.record_batch({"n": np.arange(start, start + n)})
"""


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_minute_of_ten_thousand_subtasks_takes_less_than_five_of_processor_time() -> None:
    found = json.loads(subprocess.run(
        [sys.executable, "-c", ROWS + PROGRAM], check=True, capture_output=True, text=True, timeout=1790
    ).stdout)  # fmt: skip
    print(found)
    assert (found["subtasks"], found["channels"]) == (10_000, 100_000)
    assert found["rows"] == 250 * 20 * 60
    assert found["virtual"] == pytest.approx(60, rel=0.05)
    assert found["seconds"] < 300
    assert found["peak"] < 4e9
