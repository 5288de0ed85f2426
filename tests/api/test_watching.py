"""`headgate run` shows the jobs of a script while they run, and how they ended."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

#: A script with a job whose function waits for the file "stop". It is stopped once standard error has named the cause.
SCRIPT = """
import os, sys, threading, time
import headgate as hg
import pyarrow as pa

def numbers(start, rows):
    return pa.record_batch({"n": pa.array(range(start, start + rows), pa.int64())})

def slow(batch):
    threading.Event().wait(0.1)
    return batch

env = hg.StreamEnvironment(parallelism=1, config=hg.Config(network_memory="4 MiB"))
source = hg.sources.generate(numbers, schema=pa.schema({"n": pa.int64()}), batch_rows=100)
rows = env.from_source(source).name("numbers").rebalance().map_batches(slow, schema=source.schema).name("warehouse")
rows.sink_to(hg.sinks.null())
job = env.execute_async("counts")
while not any(finding.operator == "warehouse" for finding in job.diagnose()):
    time.sleep(0.1)
threading.Event().wait(WAIT)
print("the script's own line")
job.stop(drain=True)
"""


def command(folder: Path, wait: float) -> list[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("WAIT", str(wait)))
    return [sys.executable, "-m", "headgate.cli", "run", str(script)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "300", "HEADGATE_WEB": ""}


def test_a_log_has_the_page_and_the_end_and_not_the_limit_of_a_job_that_keeps_up(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, 14), env=environment(), capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "the script's own line\n"
    assert re.search(r"^  its page: http://127\.0\.0\.1:\d+/#\S+$", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^job 'counts' is RUNNING", done.stderr, re.MULTILINE), done.stderr
    assert "warehouse" not in done.stderr
    assert re.match(r"job 'counts' has finished: [\d,]+ rows in, [\d,]+ rows out, ", done.stderr.splitlines()[-1])


def test_a_terminal_shows_them_and_the_output_goes_where_it_should(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(tmp_path, 5), env=environment(), stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        seen = b"".join(iter(lambda: _read(ours), b"")).decode()
        assert process.stdout is not None
        assert process.stdout.read() == b"the script's own line\n"
        assert process.wait(60) == 0
    os.close(ours)
    assert "job 'counts': RUNNING" in seen
    assert "at its limit: 'numbers' waits for 'warehouse': its function takes" in seen
    assert "its page: http://127.0.0.1:" in seen
    assert re.search(r"job 'counts' has finished: [\d,]+ rows in", seen)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the last one that held the other end has closed it
        return b""


@pytest.mark.parametrize("fails", [False, True])
def test_a_short_job_leaves_no_line(tmp_path: Path, fails: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import headgate as hg\n"
        "env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))\n"
        "rows = env.from_source(hg.sources.iterable([[{'n': 1}]]))\n"
        f"print(rows.map(lambda row: {{'n': 1 // {0 if fails else 1}}}, schema=rows.schema).collect().num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli", "run", str(script)],
        env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == fails
    assert "its page" not in done.stderr
    assert ("UserFunctionError" in done.stderr) == fails
