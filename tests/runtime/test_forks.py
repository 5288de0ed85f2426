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
from headgate.runtime.launch.forks import ENDED, command, server
from headgate.runtime.launch.framing import NOT_REPORTED
from tests.ending import END, within
from tests.runtime.jobs import endless, environment, error_of, eventually, keyed, pids, wait_until_running

SEEN = pa.schema([(name, pa.string()) for name in ("folder", "variable", "path", "chance", "pid")])


def look() -> list[dict[str, str]]:
    """What each of two processes sees."""
    schema = SEEN

    def seen(_batch: pa.RecordBatch) -> pa.RecordBatch:  # in here, so that it travels without this module
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


#: Runs a job in processes, which import a module beside this script.
PROGRAM = """
import headgate as hg
from beside import twice

env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))
rows = env.from_source(hg.sources.iterable([[{"n": 1}]]))
rows = rows.map_batches(twice, schema=rows.schema)
print(rows.collect()["n"].to_pylist())
"""
BESIDE = """
import pyarrow as pa

def twice(batch):
    import within  # not loaded on the driver, so it does not travel
    return pa.record_batch({"n": [within.FACTOR * n for n in batch["n"].to_pylist()]})
"""
#: Tells that it was imported, and by whom.
PLANTED = """
import os
import sys

with open(os.environ["PLANTED_TOLD"], "a") as file:
    print(__name__, sys.argv, file=file)
raise ImportError("planted")
"""


@pytest.mark.turns(2)
@pytest.mark.parametrize("program", ["a script", "code that is safe", "a module", "a shell"])
def test_nothing_is_imported_from_the_working_folder(tmp_path: Path, program: str) -> None:
    """What the driver can import its processes can, too."""
    there, working = tmp_path / "program", tmp_path / "working"
    there.mkdir()
    working.mkdir()
    (there / "script.py").write_text(PROGRAM)
    (there / "beside.py").write_text(BESIDE)
    (there / "within.py").write_text("FACTOR = 2")
    for name in ("random", "json", "headgate", "pyarrow", *(["within"] if program != "a shell" else [])):
        (working / f"{name}.py").write_text(PLANTED)
    sources = str(Path(hg.__file__).parents[1])
    command = {
        "a script": [there / "script.py"],
        "code that is safe": ["-P", "-c", f"import sys; sys.path.append({str(there)!r}){PROGRAM}"],
        "a module": ["-P", "-m", "script"],
        # Its path begins with "", which was another folder when it imported what it needs.
        "a shell": [
            "-c",
            f"import os, json, random, headgate.api.environment, beside; os.chdir({str(working)!r}){PROGRAM}",
        ],
    }[program]
    told = tmp_path / "told"
    path = [sources, *([str(there)] if program in ("a module", "a shell") else [])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PLANTED_TOLD": str(told)}
    cwd = there if program == "a shell" else working
    done = subprocess.run(
        [sys.executable, *command],  # type: ignore[misc]
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        check=False,
        cwd=cwd,
    )
    assert not told.exists(), told.read_text()
    assert (done.stdout, done.returncode) == ("[2]\n", 0), done.stderr


def test_a_server_that_is_gone_is_replaced() -> None:
    look()
    before, held = server.pid, server._control
    assert before is not None
    assert held is not None
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)  # all its threads are gone, and with them its socket
    assert len(look()) == 2
    assert server.pid != before
    assert held.fileno() == -1, "its end is closed here"


def test_it_is_started_ahead_unless_it_runs() -> None:
    server.start()
    before = server.pid
    assert before is not None
    server.start()
    assert server.pid == before
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    server.start()
    assert server.pid not in (None, before)
    assert len(look()) == 2


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
        assert process not in (0, server.pid)
        assert code == NOT_REPORTED
        assert server.wait(60) == 0
        with pytest.raises(ConnectionError):
            ours.send(request)
    os.close(status)


@pytest.mark.ends
def test_a_server_that_is_killed_takes_its_processes_with_it() -> None:
    env = environment(processes=True)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async("job")
    wait_until_running(job)
    children = [psutil.Process(pid) for pid in pids().values()]
    assert len(children) == 2
    assert server.pid is not None
    with within(END):
        os.kill(server.pid, signal.SIGKILL)
        error = error_of(job)
        _, left = psutil.wait_procs(children, timeout=60)
    assert type(error) is hg.TaskManagerLost
    assert "the process that starts TaskManagers was killed" in error.message
    assert left == []


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_child_that_returns_from_a_function_ends_there(capfd: pytest.CaptureFixture[str], processes: bool) -> None:
    """It would go on as a second task of the same connections."""

    def splits(batch: pa.RecordBatch) -> pa.RecordBatch:
        if child := os.fork():
            os.waitpid(child, 0)
        return batch

    env = environment(processes=processes)
    batches = [pa.record_batch({"n": [n]}) for n in range(4)]
    rows = env.from_source(hg.sources.iterable(batches)).map_batches(splits, schema=batches[0].schema)
    assert sorted(rows.collect()["n"].to_pylist()) == [0, 1, 2, 3]
    assert "splits forked this process, and the child returned from it" in capfd.readouterr().err


def test_what_functions_leave_running_ends_with_their_process(tmp_path: Path) -> None:
    def starts(batch: pa.RecordBatch) -> pa.RecordBatch:
        left = subprocess.Popen(["sleep", "600"])
        (tmp_path / str(left.pid)).touch()
        return batch

    env = environment(processes=True)
    batch = pa.record_batch({"n": [1]})
    env.from_source(hg.sources.iterable([batch])).map_batches(starts, schema=batch.schema).collect()
    [process] = [int(file.name) for file in tmp_path.iterdir()]
    eventually(lambda: _has_ended(process))


def _has_ended(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE  # type: ignore[no-any-return]
    except psutil.NoSuchProcess:
        return True
