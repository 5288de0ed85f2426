"""A job's program in its own process: what it leaves behind when it ends, is interrupted or killed; its exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headgate.runtime.launch.cores import usable_cores
from tests.ending import END, within
from tests.runtime.jobs import files_below, pids

ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
#: Tells when it runs, then reads rows without end.
DRIVER = """
import pyarrow as pa
import headgate as hg

env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(taskmanagers=2, processes=True))
rows = hg.sources.generate(lambda start, n: pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())}))
seen = []

def tell(batch):
    if not seen:
        print("running")
        seen.append(True)
    return batch

env.from_source(rows).map_batches(tell, schema=pa.schema({"n": pa.int64()})).key_by("n").aggregate(
    rows=hg.count()
).sink_to(hg.sinks.null())
env.execute()
"""


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """A program with two TaskManager processes, running."""
    program = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRON, process_group=0
    )
    assert program.stdout is not None
    assert program.stderr is not None
    try:
        assert program.stdout.readline().endswith(b" | running\n"), program.stderr.read()
        yield program
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
        program.stderr.close()


def run(script: Path, text: str) -> subprocess.CompletedProcess[str]:
    script.write_text(text)
    command = [sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRON, check=False)


@pytest.mark.ends
def test_processes_end_with_their_driver(driver: subprocess.Popen[bytes]) -> None:
    children = [psutil.Process(pid) for pid in pids(driver.pid).values()]
    assert len(children) == 2
    driver.kill()
    with within(END):
        _, left = psutil.wait_procs(children, timeout=60)
    assert left == []


@pytest.mark.ends
def test_an_interrupt_from_the_terminal(driver: subprocess.Popen[bytes]) -> None:
    """Ctrl-C goes to the driver's process group. The driver cancels the job; the only traceback is its own."""
    children = [psutil.Process(pid) for pid in pids(driver.pid).values()]
    with within(END):
        os.killpg(driver.pid, signal.SIGINT)
        _, words = driver.communicate(timeout=30)
    assert not any(child.is_running() for child in children)
    assert words.decode().count("Traceback") == 1
    assert words.decode().rstrip().endswith("KeyboardInterrupt")


#: Its functions are those of `__main__`. Says in how many processes they ran, and whether in its own.
PLAIN = """
import os
import pyarrow as pa
import headgate as hg

print("the program runs")

def double(batch):
    numbers = [2 * n for n in batch["n"].to_pylist()]
    return pa.record_batch({"n": numbers, "pid": [os.getpid()] * len(numbers)})

env = hg.StreamEnvironment(parallelism=2)
rows = env.from_source(hg.sources.iterable([[{"n": 1}], [{"n": 2}]]))
found = rows.map_batches(double, schema=pa.schema({"n": pa.int64(), "pid": pa.int64()})).collect().to_pydict()
print(sorted(found["n"]), len(set(found["pid"])), os.getpid() in found["pid"])
"""


@pytest.mark.parametrize(
    "way",
    ["script", "notebook", *(pytest.param(way, marks=pytest.mark.soak) for way in ("argument", "standard input"))],
)
def test_processes_are_the_default_and_need_no_main_guard(tmp_path: Path, way: str) -> None:
    """They do not run the program again. The folder it runs in has a module by the name of one of Python's."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "json.py").write_text("raise ImportError('this is not the one')")
    script = tmp_path / "script.py"
    script.write_text(PLAIN)
    cells = f"import code; shell = code.InteractiveInterpreter(dict(__name__='__main__')); shell.runcode({PLAIN!r})"
    arguments = {"script": [str(script)], "argument": ["-P", "-c", PLAIN], "notebook": ["-P", "-c", cells]}
    done = subprocess.run(
        [sys.executable, *arguments.get(way, ["-P", "-"])], capture_output=True, text=True, timeout=60,
        env=ENVIRON, check=False, cwd=tmp_path / "elsewhere", input=PLAIN if way == "standard input" else None,
    )  # fmt: skip
    processes = min(2, usable_cores())
    assert (done.stdout, done.stderr) == (f"the program runs\n[2, 4] {processes} False\n", "")
    assert done.returncode == 0


def test_an_error_ends_a_program_with_its_words(tmp_path: Path) -> None:
    done = run(
        tmp_path / "script.py",
        "import headgate as hg\n"
        "env = hg.StreamEnvironment()\n"
        "rows = env.from_source(hg.sources.iterable([[{'n': 1}]]))\n"
        "rows.map(lambda row: 1 // 0, schema=rows.schema).name('half').sink_to(hg.sinks.null())\n"
        "env.execute()\n",
    )
    assert done.returncode == 1
    assert "headgate.errors.UserFunctionError: half[0]: <lambda> raised ZeroDivisionError" in done.stderr
    assert 'script.py", line 4, in <lambda>' in done.stderr


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_program_that_ends_takes_its_jobs_with_it(tmp_path: Path, processes: bool) -> None:
    """Nobody waits for this one; its hidden files are gone all the same."""
    done = run(
        tmp_path / "script.py",
        "import sys\n"
        "import pyarrow as pa\n"
        "import headgate as hg\n"
        f"env = hg.StreamEnvironment(deployment=hg.LocalDeployment(1, processes={processes}))\n"
        "make = lambda start, n: pa.record_batch({'n': pa.array(range(start, start + n), pa.int64())})\n"
        f"sink = hg.sinks.csv({str(tmp_path / 'out')!r})\n"
        "env.from_source(hg.sources.generate(make, rows=1 << 40)).sink_to(sink)\n"
        "job = env.execute_async()\n"
        "while job.status() == 'CREATED' or not job.metrics()['rows_in']:\n"
        "    pass\n"
        "sys.exit(7)\n",
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 7)
    assert files_below(tmp_path) == ["script.py"]
