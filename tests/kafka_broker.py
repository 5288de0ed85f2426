"""A Kafka broker for tests: Apache Kafka 4.1 in one process, in KRaft mode, on loopback.

`python -m tests.kafka_broker` fetches its jars with Maven into the cache of Headgate's downloads; tests do the same if
they are not there. Without Maven, or without Java, the tests of Kafka are skipped, and say so.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from headgate.demo.data import cache_folder

VERSION: Final = "4.1.0"
#: The ports of the running brokers.
PORTS: set[int] = set()
#: The processes of the running brokers.
PIDS: set[int] = set()
#: Processor time counts more than speed: a small heap, and a compiler that does little.
_JAVA: Final = ("-Xmx512m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Seconds that the broker may take to start or to answer, and Maven to fetch the jars.
_PATIENCE: Final = 180.0
_POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>headgate</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""


class NoBroker(Exception):
    """The broker cannot run on this machine."""


def jars() -> Path:
    """Return the folder of the broker's jars, after it has fetched them. Raises NoBroker."""
    folder = cache_folder() / f"kafka-{VERSION}"
    if shutil.which("java") is None:
        raise NoBroker("there is no java")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoBroker(f"there is no Maven (mvn) to fetch Kafka's jars into {folder}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        Path(unfinished, "pom.xml").write_text(_POM)
        into = f"-DoutputDirectory={unfinished}/jars"
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", into]
        done = subprocess.run(command, cwd=unfinished, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        if done.returncode:
            raise NoBroker(f"Maven cannot fetch Kafka's jars: {(done.stdout + done.stderr)[-500:]}")
        Path(unfinished, "jars").rename(folder)


class Broker:
    """A running broker. `stop`, `kill` and `start` keep its data and its port."""

    def __init__(self) -> None:
        self._jars = jars()
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-kafka-")
        self._root = Path(self._folder.name)
        self.port, controller = _free_port(), _free_port()
        PORTS.update((self.port, controller))
        self.servers = f"127.0.0.1:{self.port}"
        (self._root / "server.properties").write_text(_properties(self._root, self.port, controller))
        self._java("kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", "server.properties").wait()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        self._process = self._java("kafka.Kafka", "server.properties")
        PIDS.add(self._process.pid)
        deadline = time.monotonic() + _PATIENCE
        while not _answers(self.servers):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NoBroker(f"the broker does not start: {(self._root / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Let the broker end."""
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
            PIDS.discard(self._process.pid)
            self._process = None

    def close(self) -> None:
        """End the broker, and remove its data."""
        self.kill()
        self._folder.cleanup()

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        environ = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
        with (self._root / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", *_JAVA, "-cp", f"{self._jars}/*", main, *arguments],
                cwd=self._root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ,
            )  # fmt: skip

    # --- topics and messages

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic with a name of its own. `config` has the topic's options, with `_` for the dots."""
        from confluent_kafka.cimpl import NewTopic

        name = f"topic-{uuid.uuid4().hex[:10]}"
        options = {key.replace("_", "."): value for key, value in config.items()}
        self._admin_result("create_topics", [NewTopic(name, partitions, 1, config=options)])
        return name

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let the topic have so many partitions."""
        from confluent_kafka.cimpl import NewPartitions

        self._admin_result("create_partitions", [NewPartitions(topic, partitions)])

    def delete_topic(self, topic: str) -> None:
        self._admin_result("delete_topics", [topic])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        self._admin_result("delete_records", [TopicPartition(topic, partition, before)])

    def _admin_result(self, call: str, arguments: Any) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in getattr(admin, call)(arguments).values():
            future.result(_PATIENCE)

    def produce(self, topic: str, values: Iterable[bytes | None], partition: int = -1, **more: Any) -> None:
        """Produce messages, and wait until the broker has them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 2_000_000})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(_PATIENCE) == 0

    def messages(self, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[Any]:
        """Return all messages of a topic that a reader sees now."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "isolation.level": isolation,
            }
        )
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        found, open_partitions = [], set(range(partitions))
        deadline = time.monotonic() + _PATIENCE
        while open_partitions:
            assert time.monotonic() < deadline
            first = consumer.poll(0.2)
            for message in [first, *consumer.consume(1000, 0)] if first is not None else []:
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise AssertionError(message.error())
        consumer.close()
        return found


def values(messages: Sequence[Any]) -> list[bytes]:
    return [message.value() for message in messages]


def broker_or_skip() -> Broker:
    """Start a broker. Skip the test, aloud, where none can run."""
    try:
        pytest.importorskip("confluent_kafka")
        return Broker()
    except NoBroker as error:
        pytest.skip(f"no Kafka broker on this machine, so this is not tested: {error}")


def _properties(folder: Path, port: int, controller: int) -> str:
    options = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "true",
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


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    try:
        print(jars())
    except NoBroker as error:
        print(f"the tests of Kafka are skipped: {error}")
