"""The Kafka sink with a real broker."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.kafka.delivery import Delivery, wait_for
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.testing import assert_same_rows, check_sink
from tests.kafka_broker import Broker, values
from tests.runtime.jobs import counted, environment, error_of


def write(kafka: Broker, rows: Any, topic: str, schema: pa.Schema | None = None, **options: Any) -> None:
    env = environment()
    env.from_source(hg.sources.iterable(rows, schema)).sink_to(hg.sinks.kafka(kafka.servers, topic, **options))
    env.execute()


def objects(kafka: Broker, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    return [json.loads(value) for value in values(kafka.messages(topic, partitions))]


class Places:
    """A topic for each name that the kit uses."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        self._broker = broker
        self._options = options
        self._topics: dict[str, str] = {}

    def make(self, name: str) -> hg.Sink:
        if name not in self._topics:
            self._topics[name] = self._broker.topic(1)
        return hg.sinks.kafka(self._broker.servers, self._topics[name], **self._options)

    def read(self, name: str) -> list[dict[str, Any]]:
        return objects(self._broker, self._topics[name])


@pytest.mark.soak
def test_the_sink_keeps_the_contract_at_each_line(kafka: Broker) -> None:
    places = Places(kafka)
    check_sink(places.make, places.read, broken=lambda: hg.sinks.kafka(kafka.servers, "no-such-topic"))


def test_the_sink_keeps_the_contract(kafka: Broker) -> None:
    """A part of the same: crashes at the steps of one checkpoint. In the end the broker answers nothing."""
    places, topic = Places(kafka), kafka.topic(1)
    broken = lambda: hg.sinks.kafka(kafka.servers, "no-such-topic")  # noqa: E731
    rows = [{"n": n, "s": "x" * 1000} for n in range(30)]
    try:
        check_sink(
            places.make, places.read, rows=rows, broken=broken, stalled=lambda: Pausing(kafka, topic), checkpoints=[2],
            lines=0,
        )  # fmt: skip
    finally:
        os.kill(kafka.pid, signal.SIGCONT)


def test_formats_keys_headers_and_timestamps(kafka: Broker) -> None:
    headers = pa.list_(pa.struct({"name": pa.string(), "value": pa.binary()}))
    schema = pa.schema({"k": pa.string(), "h": headers, "t": pa.timestamp("us", "UTC"), "n": pa.int64()})
    moment = datetime(2024, 5, 1, 10, 0, 0, 123000, UTC)
    rows: list[dict[str, Any]] = [
        {"k": "a", "h": [{"name": "x", "value": b"1"}, {"name": "x", "value": None}], "t": moment, "n": 1},
        {"k": None, "h": None, "t": None, "n": None},
    ]
    topic = kafka.topic(1)
    write(kafka, rows, topic, schema, key="k", headers="h", timestamp="t")
    first, second = kafka.messages(topic)
    assert json.loads(first.value()) == {"k": "a", "n": 1}
    assert (first.key(), first.headers(), first.timestamp()[1]) == (b"a", [("x", b"1"), ("x", None)], 1714557600123)
    assert json.loads(second.value()) == {"k": None, "n": None}
    assert (second.key(), second.headers()) == (None, None)
    assert second.timestamp()[1] > 1714557600123

    for key in (None, "k"):
        topic = kafka.topic(1)
        plain = [{name: row[name] for name in ("k", "t", "n")} for row in rows]
        write(kafka, plain, topic, pa.schema([schema.field(name) for name in plain[0]]), key=key, timestamp="t")
        first, second = kafka.messages(topic)
        assert (first.key(), first.timestamp()[1]) == (key and b"a", 1714557600123)
        assert second.timestamp()[1] > 1714557600123

    topic = kafka.topic(1)
    write(kafka, [{"k": 7, "value": b"\x00\xff"}, {"k": 8, "value": None}], topic, format="raw", key="k")
    assert [(message.key(), message.value()) for message in kafka.messages(topic)] == [
        (b"7", b"\x00\xff"),
        (b"8", None),
    ]

    topic = kafka.topic(1)
    batch = pa.record_batch({"n": range(100_000), "s": ["some text"] * 100_000})
    write(kafka, [batch], topic, format="arrow")
    messages = values(kafka.messages(topic))
    assert len(messages) > 1
    assert max(map(len, messages)) < 1_000_000
    assert pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in messages]).combine_chunks() == pa.table(
        batch
    )


def murmur2(data: bytes) -> int:
    """The hash of Kafka's own partitioner, as its documents give it."""
    length, mask = len(data), 0xFFFFFFFF
    m, h = 0x5BD1E995, (0x9747B28C ^ length) & 0xFFFFFFFF
    for begin in range(0, length - length % 4, 4):
        k = int.from_bytes(data[begin : begin + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[length - length % 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_keys_go_to_the_partitions_that_kafka_s_own_producer_chooses(kafka: Broker) -> None:
    topic = kafka.topic(5)
    write(kafka, [{"k": f"key-{n}"} for n in range(50)], topic, key="k")
    messages = kafka.messages(topic, 5)
    assert len(messages) == 50
    assert all(message.partition() == murmur2(message.key()) % 5 for message in messages)


def test_no_row_is_lost_in_a_job_that_fails(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="50 ms", restart=hg.restart.fixed(5, "0 s"))
    flag = tmp_path / "failed"

    def fail_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() > 10_000 and not flag.exists():
            flag.touch()
            raise RuntimeError("the failure of the test")
        return batch

    rows = counted(env, rows=20_000).map_batches(fail_once, schema=pa.schema({"n": pa.int64()}))
    rows.sink_to(hg.sinks.kafka(kafka.servers, topic, guarantee="at-least-once"))
    job = env.execute_async()
    assert job.guarantee == "at-least-once"
    assert job.wait(60).restarts == 1
    assert {row["n"] for row in objects(kafka, topic, 2)} == set(range(20_000))


def test_from_kafka_through_a_window_to_kafka(kafka: Broker, tmp_path: Path) -> None:
    given, results = kafka.topic(3), kafka.topic(2)
    for partition in range(3):
        times = [f"2024-05-01T10:{minute:02}:00Z" for minute in range(60)]
        kafka.produce(given, [json.dumps({"city": "Rome", "at": at}).encode() for at in times], partition)
    schema = pa.schema({"city": pa.string(), "at": pa.timestamp("s", "UTC")})
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="20 ms")
    source = hg.sources.kafka(kafka.servers, given, schema=schema, stop="latest")
    trips = env.from_source(source, watermark=hg.Watermark("at"))
    counts = trips.key_by("city").window(hg.tumble("10 min")).aggregate(trips=hg.count())
    counts.sink_to(hg.sinks.kafka(kafka.servers, results, key="city"))
    assert env.execute().late_rows == 0
    assert Counter(row["trips"] for row in objects(kafka, results, 2)) == {30: 6}
    read = hg.sources.kafka(kafka.servers, results, schema=counts.schema, stop="latest")
    again = hg.StreamEnvironment().from_source(read).collect()
    assert again.schema == counts.schema
    assert_same_rows(again, objects_with_times(kafka, results))


def objects_with_times(kafka: Broker, topic: str) -> list[dict[str, Any]]:
    rows = objects(kafka, topic, 2)
    for row in rows:
        for name in ("window_start", "window_end"):
            row[name] = datetime.fromisoformat(row[name])
    return rows


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_topic_that_does_not_exist(kafka: Broker, tmp_path: Path, guarantee: Any) -> None:
    """The brokers of the tests would create a topic for a producer that asks for it. The sink creates none."""
    env = environment(checkpoint_dir=tmp_path)
    counted(env, rows=10).sink_to(hg.sinks.kafka(kafka.servers, "no-such-topic", guarantee=guarantee))
    with pytest.raises(hg.SinkError, match=r"topic 'no-such-topic': .*; create the topic, or correct its name"):
        env.execute()
    assert "no-such-topic" not in kafka.admin().list_topics(timeout=30).topics


def test_a_message_that_is_too_large(kafka: Broker) -> None:
    topic = kafka.topic(1)
    env = environment()
    env.from_source(hg.sources.iterable([{"s": "x" * 2_000_000}])).sink_to(hg.sinks.kafka(kafka.servers, topic))
    error = error_of(env.execute_async())
    assert isinstance(error, hg.SinkError)
    assert "a message of 20000" in str(error)
    assert "raise max.message.bytes" in str(error)


class Pausing(hg.Sink):
    """Pauses the broker when the writers open: from then on it answers nothing."""

    def __init__(self, broker: Broker, topic: str, **options: Any) -> None:
        self.sink = hg.sinks.kafka(broker.servers, topic, **options)
        self.pid = broker.pid

    def prepare(self, job: str, schema: pa.Schema) -> None:
        self.sink.prepare(job, schema)

    def writer(self, context: hg.WriterContext) -> hg.SinkWriter:
        os.kill(self.pid, signal.SIGSTOP)
        return self.sink.writer(context)


def test_a_broker_that_does_not_answer(kafka: Broker) -> None:
    topic = kafka.topic(1)
    try:
        env = environment()
        counted(env, rows=10).sink_to(Pausing(kafka, topic, options={"message.timeout.ms": 1500}))
        error = error_of(env.execute_async())
        assert isinstance(error, hg.SinkError)
        assert f"topic '{topic}'" in str(error)
    finally:
        os.kill(kafka.pid, signal.SIGCONT)


def test_a_producer_that_has_failed_can_be_closed(kafka: Broker) -> None:
    """librdkafka raises the error of a fenced producer in whatever call comes next."""
    library, client, topic = pytest.importorskip("confluent_kafka"), KafkaClient(kafka.servers, {}), kafka.topic(1)
    old, new = (Delivery(client, topic, wait_for, transactional_id=topic) for _ in range(2))
    old.producer.init_transactions()
    old.producer.begin_transaction()
    old.producer.produce(topic, b"1")
    old.wait()
    new.producer.init_transactions()
    with pytest.raises(library.KafkaException, match="fenced"):
        old.producer.commit_transaction()
    old.close()
    new.close()


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ({"b": pa.binary()}, {}, "column 'b' is binary, which JSON cannot hold"),
        ({"n": pa.int64()}, {"key": "k"}, "key='k' is no column"),
        ({"n": pa.float64()}, {"key": "n"}, "key='n' is double; it must be text, binary or a whole number"),
        ({"n": pa.int64()}, {"timestamp": "n"}, "timestamp='n' is int64; it must be a timestamp"),
        ({"n": pa.int64()}, {"format": "raw"}, "format='raw' takes a column 'value'"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(
    schema: dict[str, pa.DataType], options: dict[str, Any], message: str
) -> None:
    pytest.importorskip("confluent_kafka")
    env = environment()
    rows = env.from_source(hg.sources.iterable([], pa.schema(schema)))
    rows.sink_to(hg.sinks.kafka("127.0.0.1:1", "x", **options))
    with pytest.raises(hg.PlanError, match=message):
        env.execute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format='xml' is not one of 'json', 'avro', 'arrow', 'raw'"),
        ({"format": "arrow", "key": "k"}, "format='arrow' has many rows"),
        ({"options": {"transactional.id": "x"}}, "has 'transactional.id', which kafka sets itself"),
        ({"options": {"no.such": "x"}}, "Kafka refuses an option"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(hg.ConfigError, match=message):
        hg.sinks.kafka("127.0.0.1:1", "x", **options)
