"""A standalone cluster whose master, workers and driver are separate machines that share a network and a folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.exactly_once import attempts, committed, expected
from tests.hosts import Host, hosts, why_no_hosts
from tests.runtime.faults import open_gate
from tests.runtime.jobs import eventually

MASTER, FIRST, SECOND, DRIVER = "10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.4"
URL = f"spark://{MASTER}:7077"
FIRST_PORT, LAST_PORT = 7000, 7001
ROOT = Path(__file__).parents[2]
#: The program on the driver's machine. It prints the TaskManagers of the first attempt, and how the job has ended.
PROGRAM = f"""
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.exactly_once import attempts, environment
from tests.runtime.faults import build_gated
from tests.runtime.jobs import eventually

folder = Path(sys.argv[1])
spark = SparkSession.builder.master("{URL}").config("spark.ui.enabled", "false").getOrCreate()
options = {{"port_range": ({FIRST_PORT}, {LAST_PORT}), "slots_timeout": "60 s"}}
job = build_gated(environment(folder, spark, **options), folder).execute_async()
eventually(lambda: 0 in attempts(folder), 60)
print(json.dumps([[member.address, member.pid] for member in job._master._attempt.members]), flush=True)
result = job.wait(120)
print(json.dumps({{"restarts": result.restarts, "remote_bytes": result.metrics["remote_bytes"]}}))
spark.stop()
"""

if reason := why_no_hosts():
    warnings.warn(f"no cluster of separate machines is tried: {reason}", stacklevel=1)
pytestmark = pytest.mark.skipif(bool(reason), reason=reason)


@dataclass
class Cluster:
    """A cluster, with its machines by address."""

    machines: dict[str, Host]
    folder: Path

    def start(self, address: str, command: list[str], name: str) -> subprocess.Popen[str]:
        """Return what a user would set: SPARK_LOCAL_IP, since the machine's name has no address or a wrong one."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))},
            "SPARK_HOME": pyspark.__path__[0],
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_DIRS": str(self.folder / f"local-{name}"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self.folder / f"{name}.log").open("w") as log:
            return self.machines[address].run(
                lambda: subprocess.Popen(
                    command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder
                )
            )

    def spark_class(self, address: str, role: str, *arguments: str) -> subprocess.Popen[str]:
        script = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
        common = ["--host", address, "--webui-port", "0"]
        command = [script, f"org.apache.spark.deploy.{role}", *common, *arguments]
        return self.start(address, command, f"{role}-{address}")

    def listening(self, address: str, process: int) -> set[tuple[str, int]]:
        """Return the addresses at which other machines can connect to a process there."""
        found = self.machines[address].run(lambda: _listening(process))
        return {each for each in found if not each[0].startswith("127.")}

    def protocol(self, address: str, port: int) -> str | None:
        """Return the protocol with which the address answers a client on the driver's machine without a certificate."""
        return self.machines[DRIVER].run(lambda: _protocol(address, port))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        machines = stack.enter_context(hosts(MASTER, FIRST, SECOND, DRIVER))
        cluster = Cluster({machine.address: machine for machine in machines}, tmp_path)
        master = cluster.spark_class(MASTER, "master.Master", "--port", URL.rpartition(":")[2])
        stack.enter_context(_ended(master))
        for worker in (FIRST, SECOND):
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work-{worker}"), URL]
            stack.enter_context(_ended(cluster.spark_class(worker, "worker.Worker", *arguments)))
        yield cluster


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    with process:
        yield
        process.terminate()


def _listening(process: int) -> set[tuple[str, int]]:
    open_files = {os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir()}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/thread-self/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == "0A" and f"socket:[{inode}]" in open_files:
                host, _, port = local.rpartition(":")
                found.add((_address(host), int(port, 16)))
    return found


def _protocol(address: str, port: int) -> str | None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((address, port), timeout=10) as sock, context.wrap_socket(sock) as secured:
        return secured.version()


def _address(text: str) -> str:
    """Parse an address of IPv4, which may be written as IPv6."""
    words = text[-8:]
    return ".".join(str(int(words[at : at + 2], 16)) for at in (6, 4, 2, 0))


def test_a_job_runs_and_starts_again(cluster: Cluster, tmp_path: Path) -> None:
    driver = cluster.start(DRIVER, [sys.executable, "-c", PROGRAM, str(tmp_path)], "driver")
    with driver:
        try:
            assert driver.stdout is not None
            first = json.loads(driver.stdout.readline() or _fail(tmp_path))
            assert sorted(address for address, _ in first) == [[FIRST, FIRST_PORT], [SECOND, FIRST_PORT]]
            for (machine, _), process in [*first, ((DRIVER, FIRST_PORT), driver.pid)]:
                assert cluster.listening(machine, process) == {(machine, FIRST_PORT)}
                assert cluster.protocol(machine, FIRST_PORT) == "TLSv1.3"
            os.kill(first[0][1], signal.SIGKILL)
            eventually(lambda: 1 in attempts(tmp_path), 90)
            open_gate(tmp_path)
            ended = json.loads(driver.stdout.readline() or _fail(tmp_path))
        finally:
            if driver.poll() is None and sys.exc_info()[0]:
                driver.kill()
    assert ended["restarts"] == 1
    assert ended["remote_bytes"] > 0
    assert committed(tmp_path) == expected()


def _fail(folder: Path) -> str:
    raise AssertionError((folder / "driver.log").read_text()[-3000:])
