"""A disk that is nearly full of what a killed driver left: the next start has room for its checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

pytestmark = pytest.mark.timeout(300)

ROWS = 100_000
#: A disk of its own for checkpoints, which ends with the namespace; then two programs, the second after the first.
MACHINE = """
mkdir disk
mount -t tmpfs -o size=32m tmpfs disk
if "$@" first; then exit 9; else test $? -eq 137; fi
"$@" second
"""
#: Says which it is. The first leaves 256 KiB of the disk in half a checkpoint, and is killed there.
PROGRAM = """
import os, pathlib, shutil, signal, sys
import pyarrow as pa
import headgate as hg
from headgate.runtime.taskmanager import state_upload

ROWS, is_first = int(sys.argv[1]), sys.argv[2] == "first"
write_part = state_upload.write_part

def fills_the_disk(folder, attempt, task, payload, kind="state"):
    part = write_part(folder, attempt, task, payload, kind)
    if any(pathlib.Path("disk").glob("job/chk-*/_metadata")):
        write_part(folder, attempt, task, [bytes(shutil.disk_usage("disk").free - (256 << 10))])
        os.kill(os.getpid(), signal.SIGKILL)
    return part

def numbers(start, n):
    return pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})

if is_first:
    state_upload.write_part = fills_the_disk
config = hg.Config(checkpoint_dir="disk", checkpoint_interval="100 ms")
env = hg.StreamEnvironment(parallelism=2, config=config, deployment=hg.LocalDeployment(1, processes=False))
rows = env.from_source(hg.sources.generate(numbers, rows=ROWS, rate=50_000))
rows.key_by("n").aggregate(times=hg.count()).changes().sink_to(hg.sinks.parquet("out"))
job = env.execute_async(resume=None if is_first else "latest")
assert job.wait(120).restarts == 0
assert not [each.failure for each in job.checkpoints() if each.failure]
"""
IN_A_NAMESPACE = ["unshare", "--map-root-user", "--mount", "sh", "-ec"]


def test_what_a_killed_driver_left_fills_no_disk(tmp_path: Path) -> None:
    may_mount = subprocess.run([*IN_A_NAMESPACE, "mount -t tmpfs tmpfs /tmp"], capture_output=True, check=False)
    if may_mount.returncode:
        pytest.skip("this machine lets no user mount a disk in a namespace of its own")
    done = subprocess.run(
        [*IN_A_NAMESPACE, MACHINE, "sh", sys.executable, "-c", PROGRAM, str(ROWS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    numbers = sorted(ds.dataset(tmp_path / "out", format="parquet").to_table()["n"].to_pylist())
    assert numbers == list(range(ROWS))
