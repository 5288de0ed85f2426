"""A Kafka broker for tests, with helpers for topics and messages.

`python -m tests.kafka_broker` fetches its jars with Maven into the cache of Headgate's downloads; tests do the same if
they are not there. Without Maven, or without Java, the tests of Kafka are skipped, and say so. A broker that does not
start fails them.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from headgate.bench.peers.kafka_broker import SMALL_JAVA, KafkaBroker, NoBroker, jars

#: The ports of the running brokers.
PORTS: set[int] = set()
#: The processes of the running brokers.
PIDS: set[int] = set()
#: Seconds that the broker may take to answer.
_PATIENCE: Final = 180.0
#: The messages that a producer may hold; librdkafka refuses more than 100,000.
_MOST_QUEUED = 50_000
_PROPERTIES: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "auto.create.topics.enable": "true",
}


class Broker(KafkaBroker):
    """A broker for tests, which the check of left-over processes and sockets knows."""

    def __init__(self, listeners: Mapping[str, int] | None = None, **properties: object) -> None:
        super().__init__(SMALL_JAVA, {**_PROPERTIES, **properties}, listeners or {})
        PORTS.update(self.ports)

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        super().start()
        PIDS.add(self.pid)

    def _end(self, number: signal.Signals) -> None:
        ended = None if self._process is None else self.pid
        super()._end(number)
        if ended is not None:
            PIDS.discard(ended)

    # --- topics and messages

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic with a name of its own. `config` has the topic's options, with `_` for the dots."""
        name = f"topic-{uuid.uuid4().hex[:10]}"
        self.make_topic(name, partitions, **config)
        return name

    def make_topic(self, name: str, partitions: int, **config: str) -> None:
        """Create a topic with this name."""
        from confluent_kafka.cimpl import NewTopic

        options = {key.replace("_", "."): value for key, value in config.items()}
        self._admin_result("create_topics", [NewTopic(name, partitions, 1, config=options)])
        while name not in self.admin().list_topics(timeout=_PATIENCE).topics:
            time.sleep(0.01)

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
        admin = self.admin()
        for future in getattr(admin, call)(arguments).values():
            future.result(_PATIENCE)

    def admin(self) -> Any:
        """Return a client of the library for questions to the broker."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})

    def produce(self, topic: str, values: Iterable[bytes | None], partition: int = -1, **more: Any) -> None:
        """Produce messages, and wait until the broker has them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 2_000_000})
        for number, value in enumerate(values, 1):
            producer.produce(topic, value, partition=partition, **more)
            if number % _MOST_QUEUED == 0:
                assert producer.flush(_PATIENCE) == 0
        assert producer.flush(_PATIENCE) == 0

    def messages(self, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[Any]:
        """Return all messages of a topic that a reader sees now."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
            }
        )
        # From offset 0, or from the first that is left: OFFSET_BEGINNING takes 0.5 s more.
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
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


def broker_or_skip(listeners: Mapping[str, int] | None = None, **properties: object) -> Broker:
    """Start a broker. Skip the test, aloud, on a machine that cannot run one."""
    pytest.importorskip("confluent_kafka")
    try:
        return Broker(listeners, **properties)
    except NoBroker as error:
        pytest.skip(f"no Kafka broker on this machine, so this is not tested: {error}")


if __name__ == "__main__":
    try:
        print(jars())
    except NoBroker as error:
        print(f"the tests of Kafka are skipped: {error}")
