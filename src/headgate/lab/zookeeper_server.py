"""A ZooKeeper server for the lab and the tests: the class that is among PySpark's own jars, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError

_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
#: What the server needs of PySpark's jars.
_JARS: Final = ("zookeeper-*", "slf4j-api-*", "netty-*", "metrics-core-*", "snappy-java-*", "jul-to-slf4j-*")
_STARTS: Final = 30.0
#: Seconds of the longest session: Storm's. By default, it would be 20 ticks.
_SESSION: Final = 20


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """A running server."""

    address: str
    pid: int

    def processor_seconds(self) -> float:
        """Return the processor time that the server has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def zookeeper_server(port: int | None = None, folder: str | None = None) -> Iterator[ZooKeeperServer]:
    """Run a server on loopback during the block, with its data in `folder`. Raises ConfigError if it cannot start.

    Without `port` the server takes a free port, without `folder` a temporary folder. With the folder of an earlier
    server, it has that server's data.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("a ZooKeeper server needs PySpark's jars: pip install pyspark")
    jar_folder = Path(spec.origin).parent / "jars"
    jars = ":".join(str(path) for pattern in _JARS for path in sorted(jar_folder.glob(f"{pattern}.jar")))
    port = port or free_port()
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as data:
        settings = Path(data) / "zoo.cfg"
        settings.write_text(
            f"dataDir={data}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
            f"maxSessionTimeout={_SESSION * 1000}\nadmin.enableServer=false\n"
        )
        process = _start(["java", "-Xmx128m", "-cp", jars, _MAIN, str(settings)])
        try:
            _await(process, port)
            yield ZooKeeperServer(f"127.0.0.1:{port}", process.pid)
        finally:
            process.kill()
            process.wait()


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise ConfigError(f"a ZooKeeper server needs Java: {error}") from error


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _STARTS
    while process.poll() is None and time.monotonic() < deadline:
        if serves(port):
            return
        time.sleep(0.05)
    raise ConfigError(f"the ZooKeeper server did not start within {_STARTS:g} s: exit code {process.poll()}")


def serves(port: int) -> bool:
    """Return whether the server answers. It listens earlier, and then closes the connections of clients, which wait
    longer and longer before they try again."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.makefile("rb").read().startswith(b"Zookeeper version")
    except OSError:
        return False


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
