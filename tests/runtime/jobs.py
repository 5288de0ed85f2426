"""Small jobs that go wrong in a chosen way, and how to wait for what they do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

import headgate as hg
from headgate.runtime.launch.forks import PROCESS_NAME


def environment(
    processes: bool = False, taskmanagers: int = 2, parallelism: int = 2, **options: Any
) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(
        parallelism=parallelism,
        config=hg.Config(paranoid=True, **options),
        deployment=hg.LocalDeployment(taskmanagers=taskmanagers, processes=processes),
    )


def numbers(start: int, n: int) -> pa.RecordBatch:
    """Rows of one column `n`, each its own number."""
    return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], names=["n"])


NUMBERS = pa.schema({"n": pa.int64()})


def endless(env: hg.StreamEnvironment, rate: float | None = None) -> hg.DataStream:
    """Rows 0, 1, 2 ... without end."""

    def rows(start: int, n: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], names=["n"])

    return env.from_source(hg.sources.generate(rows, rate=rate, batch_rows=256))


def counted(env: hg.StreamEnvironment, rows: int = 1000) -> hg.DataStream:
    """Rows 0 to `rows`."""

    def made(start: int, n: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], names=["n"])

    return env.from_source(hg.sources.generate(made, rows=rows, batch_rows=64))


def keyed(stream: hg.DataStream) -> hg.DataStream:
    """Through an exchange to every TaskManager."""
    return stream.key_by("n").aggregate(rows=hg.count()).changes()


def eventually(what: Callable[[], Any], timeout: float = 60.0) -> Any:
    """The first true value of `what`."""
    deadline = time.monotonic() + timeout
    while not (value := what()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain"
        time.sleep(0.005)
    return value


def wait_until_running(job: hg.JobHandle, rows: int = 1) -> None:
    """The sources have read so many rows."""
    eventually(lambda: job.status() not in ("CREATED", "RUNNING") or job.metrics()["rows_in"] >= rows)
    assert job.status() == "RUNNING", error_of(job)


def error_of(job: hg.JobHandle) -> hg.HeadgateError:
    """What the job failed with."""
    try:
        result = job.wait(60)
    except hg.HeadgateError as error:
        return error
    raise AssertionError(f"the job did not fail: {result}")


def said_by(error: hg.HeadgateError) -> str:
    """What the error says, without its recording: a job that runs for two seconds before it fails has one."""
    return re.sub(r"\s\(its last minutes are in \S+, which `headgate doctor` reads\)$", "", error.message)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def pids(driver: int | None = None) -> dict[int, int]:
    """Processes of TaskManagers by index, those of this process or of another driver."""
    found = {}
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):
            name, _, index = process.name().rpartition("-")
            if f"{name}-" == PROCESS_NAME:
                found[int(index)] = process.pid
    return found


def pid_of(job: hg.JobHandle, taskmanager: int) -> int:
    """The process of a TaskManager in the job's present attempt."""
    pid = job._master._attempt.members[taskmanager].pid
    assert pid is not None
    return pid


def port_of(job: hg.JobHandle, taskmanager: int) -> int:
    """Where a TaskManager of the job's present attempt listens."""
    address = job._master._attempt.members[taskmanager].address
    assert address is not None
    return address[1]


def ports() -> set[int]:
    """Return the TCP ports that this process listens on."""
    connections = psutil.Process().net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
