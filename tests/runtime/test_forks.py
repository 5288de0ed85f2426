"""TaskManager processes are forks of one that has its imports done; what they see is the driver as it is now."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

import headgate as hg
from headgate.runtime.forks import ENDED, command, server
from tests.ending import END, within
from tests.runtime.jobs import endless, environment, error_of, eventually, keyed, pids, wait_until_running

SEEN = pa.schema([(name, pa.string()) for name in ("folder", "variable", "path", "chance", "pid")])


def look() -> list[dict[str, str]]:
    """What each of two processes sees."""
    schema = SEEN

    def seen(batch: pa.RecordBatch) -> pa.RecordBatch:  # in here, so that it travels without this module
        found = {
            "folder": os.getcwd(),
            "variable": os.environ.get("SEEN_BY_CHILDREN", "") + str("GONE_SINCE" in os.environ),
            "path": sys.path[0],
            "chance": f"{random.random()} {np.random.random()}",
            "pid": str(os.getpid()),
        }
        return pa.RecordBatch.from_pylist([found], schema=schema)

    env = environment(processes=True)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": [n]}) for n in range(2)]))
    found: list[dict[str, str]] = rows.map_batches(seen, schema=SEEN).collect().to_pylist()
    return found


def test_they_see_the_driver_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE_SINCE", "1")
    look()
    monkeypatch.delenv("GONE_SINCE")
    monkeypatch.setenv("SEEN_BY_CHILDREN", "now")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.chdir(tmp_path)
    one, other = look()
    assert one["folder"] == other["folder"] == str(tmp_path)
    assert one["variable"] == other["variable"] == "nowFalse"
    assert one["path"] == other["path"] == str(tmp_path / "modules")
    assert one["pid"] != other["pid"]
    for mine, its in zip(one["chance"].split(), other["chance"].split(), strict=True):
        assert mine != its


def test_a_driver_whose_folder_is_gone_has_processes_all_the_same(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
        "import headgate as hg\n"
        "env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))\n"
        "print(env.from_source(hg.sources.iterable([[{'n': 1}]])).collect()['n'].to_pylist())\n"
    )
    folder = tmp_path / "gone"
    folder.mkdir()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, timeout=60, env=environ, check=False
    )
    assert (done.stdout, done.returncode) == ("[1]\n", 0), done.stderr


def test_a_server_that_is_gone_is_replaced() -> None:
    look()
    before = server.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    eventually(lambda: psutil.Process(before).status() == psutil.STATUS_ZOMBIE)
    assert len(look()) == 2
    assert server.pid != before


def test_a_server_without_anything_to_do_ends_and_serves_who_asked_before() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    (nothing, stdin), (status, told) = os.pipe(), os.pipe()
    os.close(stdin)  # the child finds that its driver is gone
    request = json.dumps({"start": 1, "index": 0, "count": 1, "host": "127.0.0.1"}).encode()
    socket.send_fds(ours, [request], [nothing, 1, 2, told])
    server = subprocess.Popen(command(idle=0.0), stdin=theirs.fileno())
    for descriptor in (nothing, told):
        os.close(descriptor)
    with ours, theirs:
        theirs.close()
        process, code = ENDED.unpack(os.read(status, ENDED.size))
        assert process not in (0, server.pid) and code == 3
        assert server.wait(60) == 0
        with pytest.raises(ConnectionError):
            ours.send(request)
    os.close(status)


def test_a_server_that_is_killed_takes_its_processes_with_it() -> None:
    env = environment(processes=True)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async("job")
    wait_until_running(job)
    children = [psutil.Process(pid) for pid in pids().values()]
    assert len(children) == 2 and server.pid is not None
    with within(END):
        os.kill(server.pid, signal.SIGKILL)
        error = error_of(job)
        _, left = psutil.wait_procs(children, timeout=60)
    assert type(error) is hg.TaskManagerLost
    assert "the process that starts TaskManagers was killed" in error.message
    assert left == []
