"""The Spark masters that the tests run on, and a stand-in for a TaskManager."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from headgate.spark.gang import SparkGang, barrier_tasks
from tests.spark_session import SharedSpark

SOURCES = Path(__file__).parents[2] / "src"
#: test_separate_hosts.py also runs a standalone master, which takes 20 seconds of processor to start.
STANDALONE = pytest.param("standalone", marks=pytest.mark.soak)
MASTERS = ["local[2]", "local-cluster[2,1,1024]", STANDALONE]


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the master listens: a worker that finds no master tries again only after 20 seconds."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the standalone master does not listen on port {port}; it ended with {process.poll()}")


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a standalone master with two workers of one core each."""
    folder: Path = tmp_path_factory.mktemp("standalone")
    url = f"spark://127.0.0.1:{_free_port()}"
    environment = {**os.environ, "SPARK_HOME": pyspark.__path__[0], "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_LOCAL_DIRS"] = str(folder / "local")

    def start(role: str, *arguments: str) -> subprocess.Popen[bytes]:
        script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
        common = ["--host", "127.0.0.1", "--webui-port", "0"]
        with (folder / f"{role}.log").open("ab") as log:
            command = [str(script), f"org.apache.spark.deploy.{role}", *common, *arguments]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    processes = [start("master.Master", "--port", url.rpartition(":")[2])]
    _await_listener(int(url.rpartition(":")[2]), processes[0])
    for number in range(2):
        work = str(folder / f"work-{number}")
        processes.append(start("worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", work, url))
    yield url
    for process in reversed(processes):
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="session", params=MASTERS)
def master(request: pytest.FixtureRequest) -> str:
    """Return the URL of a master. Tests on the same master run one after the other, in all modules."""
    return str(request.getfixturevalue("standalone") if request.param == "standalone" else request.param)


@pytest.fixture
def spark(shared_spark: SharedSpark, master: str) -> SparkSession:
    return shared_spark.on(master)


@dataclass
class StandIn:
    """The test's link to a running stand-in, which has sent its facts and waits for an order."""

    link: socket.socket
    facts: dict[str, Any]

    def order(self, word: str) -> None:
        """Send the order `end` or `raise`."""
        self.link.sendall(word.encode() + b"\n")

    def await_death(self, timeout: float) -> None:
        """Wait until its process has closed the link. Raises TimeoutError."""
        self.link.settimeout(timeout)
        with suppress(ConnectionResetError):
            assert self.link.recv(1) == b""


@dataclass
class Started:
    """A gang of stand-ins."""

    gang: SparkGang
    tasks: list[StandIn]
    ended: queue.Queue[tuple[int | None, str]] = field(repr=False)


@pytest.fixture
def start(spark: SparkSession) -> Iterator[Callable[..., Started]]:
    """Start a gang of `count` stand-ins and wait until all of them run."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(150)
        links: list[socket.socket] = []

        def start(count: int = 2, payload: bytes = b"", host: str | None = None) -> Started:
            ended: queue.Queue[tuple[int | None, str]] = queue.Queue()
            main = _stand_in(listener.getsockname()[1])
            tasks = barrier_tasks(spark, main, payload, count, host)
            gang = SparkGang(spark, tasks, count, lambda index, reason: ended.put((index, reason)))
            stand_ins = []
            for _ in range(count):
                link = listener.accept()[0]
                links.append(link)
                stand_ins.append(StandIn(link, json.loads(link.makefile().readline())))
            return Started(gang, sorted(stand_ins, key=lambda task: task.facts["index"]), ended)

        yield start
        for link in links:
            link.close()


def _stand_in(port: int) -> Callable[[bytes, int, str], None]:
    def main(payload: bytes, index: int, host: str) -> None:
        import json
        import os
        import socket
        import sys

        facts = {"index": index, "host": host, "payload": len(payload), "pid": os.getpid(), "python": sys.executable}
        with open(f"/proc/{os.getppid()}/stat") as daemon:
            facts["executor"] = int(daemon.read().rpartition(")")[2].split()[1])
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(json.dumps(facts).encode() + b"\n")
            order = link.makefile().readline().strip()
            if order == "raise":
                raise ValueError("the test ordered it")

    return main


def clean_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program that finds this package, and whose temporary files go to `folder`."""
    ours = ("PYSPARK", "SPARK", "PYTHONPATH")
    base = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**base, "TMPDIR": str(folder), "PYTHONPATH": str(SOURCES)}


def run_script(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose environment does not name this package, and whose temporary files go to `folder`."""
    base = clean_environment(folder)
    del base["PYTHONPATH"]
    preamble = f"import sys\nsys.path.insert(0, {str(SOURCES)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", preamble + script],
        env={**base, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=folder,
    )
