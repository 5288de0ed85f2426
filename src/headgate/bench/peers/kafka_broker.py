"""A Kafka broker for measurements and tests: Apache Kafka 4.1 in one process, in KRaft mode, on loopback.

`python -m headgate.bench.peers.kafka_broker` fetches its jars with Maven into the cache of Headgate's downloads.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final

from headgate.bench.peers import maven

VERSION: Final = "4.1.0"
#: Processor time counts more than speed: a small heap, and a compiler that does little.
SMALL_JAVA: Final = ("-Xmx512m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Linux kills the broker when the thread that started it has ended in any way, also by SIGKILL.
_END_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
#: Seconds that the broker may take to start or to answer.
_PATIENCE: Final = 180.0


class NoBroker(Exception):
    """This machine cannot fetch or run a broker."""


class BrokerFailed(Exception):
    """The broker does not start, for example because a property is wrong."""


def jars() -> Path:
    """Fetch the broker's jars if they are missing, and return their folder. Raises NoBroker and UnknownJars."""
    if shutil.which("java") is None:
        raise NoBroker("there is no java")
    try:
        return maven.jars(f"kafka-{VERSION}", f"org.apache.kafka:kafka_2.13:{VERSION}")
    except maven.NoJars as error:
        raise NoBroker(error.message) from None


class KafkaBroker:
    """A running broker. `stop`, `kill` and `start` keep its data and its port.

    `java` are options of the JVM. `properties` are the broker's properties besides those that this class sets.
    `listeners` are further ports, by the name of a security protocol. Raises NoBroker and BrokerFailed.
    """

    def __init__(
        self,
        java: tuple[str, ...] = (),
        properties: Mapping[str, object] = MappingProxyType({}),
        listeners: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._options = java
        self._jars = jars()
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-kafka-")
        self._root = Path(self._folder.name)
        self.port, controller = free_port(), free_port()
        self.ports = self.port, controller, *listeners.values()
        self.servers = f"127.0.0.1:{self.port}"
        (self._root / "server.properties").write_text(
            _properties(self._root, {"PLAINTEXT": self.port, **listeners}, controller, properties)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._format()
        self.start()

    def _format(self) -> None:
        """Prepare the broker's folder of data."""
        arguments = "format", "-t", uuid.uuid4().hex[:22], "-c", "server.properties"
        if self._java("kafka.tools.StorageTool", *arguments).wait(_PATIENCE):
            if "UnsupportedClassVersionError" in self._log():
                raise NoBroker(f"java is too old for Kafka {VERSION}")
            raise BrokerFailed(f"the broker's folder cannot be prepared: {self._log()}")

    def start(self) -> None:
        """Start the broker, and wait until it answers. Raises BrokerFailed."""
        self._process = process = self._java("kafka.Kafka", "server.properties")
        deadline = time.monotonic() + _PATIENCE
        while not _answers(self.servers):
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"the broker does not start: {self._log()}")

    def _log(self) -> str:
        """Return the end of the broker's log."""
        return (self._root / "log").read_text()[-2000:]

    def stop(self) -> None:
        """Ask the broker to end, and wait for its end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker."""
        self._end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_PATIENCE)
            self._process = None

    def close(self) -> None:
        """End the broker, and remove its data."""
        self.kill()
        self._folder.cleanup()

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        environ = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
        with (self._root / "log").open("ab") as log:
            return subprocess.Popen(
                [*_END_WITH_PARENT, "java", *self._options, "-cp", f"{self._jars}/*", main, *arguments],
                cwd=self._root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ,
            )  # fmt: skip

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _properties(folder: Path, ports: Mapping[str, int], controller: int, more: Mapping[str, object]) -> str:
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    options = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ports)]),
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in options.items())


def _answers(servers: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=1)
    except KafkaException:
        return False
    return True


def free_port() -> int:
    """Return a port of loopback that no program uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    print(jars())
