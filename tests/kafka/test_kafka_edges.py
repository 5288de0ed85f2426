"""What the Kafka source and sink do without a broker: positions, sizes, headers and options."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.connector import ReaderContext
from headgate.connectors.kafka.delivery import Delivery
from headgate.connectors.kafka.kafka_client import KafkaClient, kafka_library
from headgate.connectors.kafka.kafka_reader import Reading, _Fetching
from headgate.connectors.kafka.message_columns import MessageColumns
from headgate.connectors.kafka.message_decoders import RAW, JsonDecoder, RawDecoder
from headgate.connectors.kafka.message_encoders import HEADERS, Messages, RawEncoder
from headgate.connectors.kafka.partition_ends import PartitionEnds
from headgate.connectors.kafka.topic_limits import check_sizes

pytest.importorskip("confluent_kafka")
NOWHERE = KafkaClient("localhost:1", {})


class Message:
    """What librdkafka returns: a message, or with `error` an event."""

    def __init__(self, offset: int, error: Any = None, partition: int = 0) -> None:
        self._values = {"topic": "t", "partition": partition, "offset": offset, "value": b"x", "error": error}

    def __getattr__(self, name: str) -> Any:
        return lambda: self._values[name]


def fetching(partitions: int = 1, stop: int | None = None) -> _Fetching:
    """The thread's part of a reader of some partitions, at the offset 10."""
    starts = {("t", number): 10 for number in range(partitions)}
    stops = None if stop is None else dict.fromkeys(starts, stop)
    reading = Reading(
        topics=["t"], starts=starts, stops=stops, consumer=NOWHERE.consumer, ends=PartitionEnds(NOWHERE, True),
        decoder=RawDecoder(), columns=MessageColumns(()), schema=RAW, commits_offsets=False, discovery_interval=60.0,
        fetch_bytes=1 << 20,
    )  # fmt: skip
    context = ReaderContext(
        job="job", operator="source", subtask=0, parallelism=1, wake=lambda: None, started_at=0.0, clock=time.time
    )
    return _Fetching(reading, context, dict(starts), dict(starts))


@pytest.mark.parametrize("place", range(4))
def test_the_end_of_a_partition_takes_no_position_back(place: int) -> None:
    """The event says where the partition ended when it was asked. Messages of the same batch may lie behind it."""
    end = Message(10 + place, kafka_library().KafkaError(kafka_library().KafkaError._PARTITION_EOF))
    batch = [Message(10), Message(11), Message(12)]
    batch.insert(place, end)
    reader = fetching()
    assert reader._fetched(None, batch).offsets == {("t", 0): 13}
    assert reader._fetched(None, [Message(11, end.error())]).offsets == {("t", 0): 13}
    assert reader._fetched(None, [Message(15, end.error())]).offsets == {("t", 0): 15}, "after a transaction's marker"


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("stop", [None, 12, 13])
def test_the_rows_and_the_position_of_each_partition(partitions: int, stop: int | None) -> None:
    """A reader of one partition does not ask each message for its place, nor whether it lies before the stop."""
    others = [Message(10, partition=1)] if partitions == 2 else []
    consumer = SimpleNamespace(incremental_unassign=lambda partitions: None)
    fetched = fetching(partitions, stop)._fetched(consumer, [Message(10), *others, Message(11), Message(12)])
    end = {("t", 0): stop or 13, **({("t", 1): 11} if others else {})}
    assert fetched.offsets == end, "what lies behind the stop is unread"
    rows = Counter[Any]()
    for partition, count in fetched.rows_by_partition:
        rows[partition] += count
    assert rows == {("t", 0): 2 if stop == 12 else 3, **({("t", 1): 1} if others else {})}
    assert fetched.rows.num_rows == rows.total()
    assert fetched.ended == ([] if stop is None else [("t", 0)])


@pytest.mark.parametrize("others", [(), ("key",), ("key", "headers", "timestamp")])
def test_a_producer_takes_each_message_once_also_if_its_queue_is_full_in_between(others: tuple[str, ...]) -> None:
    given: list[tuple[Any, ...]] = []

    def wait_until(take: Any) -> None:
        assert not take(), "the queue is still full"
        while not take():
            assert len(given) % 10 == 0, "it takes as many messages as have room"
            producer.purge()
            producer.flush(0)
            delivery.failure = None

    delivery = Delivery(KafkaClient("localhost:1", {"queue.buffering.max.messages": 10}), "t", wait_until)
    produce = delivery.producer.produce

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(producer, name)

        def produce(self, *values: Any, **named: Any) -> None:
            produce(*values, **named)
            given.append((*values[1:], *[value for name, value in named.items() if name != "topic"]))

    producer, delivery.producer = delivery.producer, Spy()
    columns: dict[str, list[Any]] = {
        "value": [b"x\0y", None, *map(b"%d".__mod__, range(33))],
        "key": [None, b"k", *[b"l"] * 33],
        "headers": [[{"name": "a", "value": b"b"}], *[None] * 34],
        "timestamp": [*range(35)],
    }
    arrays = {name: pa.array(columns[name], HEADERS if name == "headers" else None) for name in ("value", *others)}
    delivery.give(pa.record_batch(arrays))
    headers = [[("a", b"b")], *[[]] * 34]
    expected = [columns["value"], columns["key"], headers, columns["timestamp"]][: 1 + len(others)]
    assert given == [*zip(*expected, strict=True)]
    delivery.producer = producer
    delivery.close()


def is_refused(producer: Any, row: dict[str, Any]) -> bool:
    """Return whether librdkafka refuses a message because of its size."""
    headers = [(each["name"], each["value"]) for each in row["headers"]]
    try:
        producer.produce("t", row["value"], row["key"], headers=headers)
    except kafka_library().KafkaException as error:
        return bool(error.args[0].name() == "MSG_SIZE_TOO_LARGE")
    except BufferError:  # its queue is full
        pass
    return False


@pytest.mark.parametrize("largest", [1000, 1_000_000])
@pytest.mark.parametrize("headers", [[], [{"name": "a" * 50, "value": b"b" * 200}] * 3, [{"name": "", "value": None}]])
@pytest.mark.parametrize("key", [None, b"k" * 90])
def test_sizes_that_librdkafka_refuses_are_refused_before_the_checkpoint(
    largest: int, headers: list[dict[str, Any]], key: bytes | None
) -> None:
    """A message that is refused only by the commit would fail each commit of its checkpoint."""
    producer = NOWHERE.producer(lambda error: None, message_max_bytes=largest)
    schema = pa.schema({"value": pa.binary(), "key": pa.binary(), "headers": HEADERS})
    refused = []
    for size in range(largest - 1100 if largest > 1100 else 0, largest + 20):
        row = {"value": b"v" * size, "key": key, "headers": headers}
        if is_refused(producer, row):
            refused.append(size)
        if size in refused[:1] or size == largest + 19:
            with pytest.raises(hg.SinkError, match="is too large; raise"):
                check_sizes(pa.RecordBatch.from_pylist([{"value": b""}, row], schema), largest)
    producer.purge()
    assert refused == list(range(refused[0], largest + 20))
    small = {"value": b"v" * max(0, refused[0] - 60), "key": key, "headers": headers}
    check_sizes(pa.RecordBatch.from_pylist([small], schema), largest)
    check_sizes(pa.RecordBatch.from_pylist([], schema), 1)


@pytest.mark.parametrize("headers", [[None], [{"name": None, "value": b""}]])
def test_a_header_that_is_null_is_refused(headers: list[Any]) -> None:
    messages = Messages(RawEncoder(), None, "headers", None)
    schema = pa.schema({"value": pa.binary(), "headers": HEADERS})
    fine = {"value": b"", "headers": None}
    assert messages.encoded(pa.RecordBatch.from_pylist([fine], schema)).num_rows == 1
    with pytest.raises(hg.SinkError, match="a header is null, or its name is"):
        messages.encoded(pa.RecordBatch.from_pylist([fine, {"value": b"", "headers": headers}], schema))


@pytest.mark.parametrize("option", ["isolation.level", "enable.partition.eof", "auto.offset.reset"])
def test_options_that_would_misread_the_record_of_commits_are_refused(option: str) -> None:
    """With read_uncommitted, the sink would take an aborted checkpoint for a committed one, and drop its rows."""
    with pytest.raises(hg.ConfigError, match=f"options= has '{option}'"):
        hg.sinks.kafka("localhost:1", "t", options={option: "earliest"})


@pytest.mark.parametrize(
    ("topics", "bounded", "error"),
    [
        (["a"], False, r"the job of the checkpoint also reads b; give topics=\['a', 'b'\]"),
        (["a", "c"], True, "also reads b"),
        (["a", "b", "c"], True, "the job of the checkpoint ends, and does not read c"),
    ],
)
def test_a_job_resumes_with_the_topics_that_it_had(topics: list[str], bounded: bool, error: str) -> None:
    offsets = [["a", 0, 5], ["b", 0, 7]]
    source = hg.sources.kafka("localhost:1", topics, format="raw", stop="latest" if bounded else None)
    with pytest.raises(hg.SourceError, match=error):
        source.restore({"starts": offsets, "stops": offsets if bounded else None})


def test_objects_that_pass_the_ends_of_messages_are_found() -> None:
    """There are three messages and three objects, but not one in each."""
    values: list[bytes | None] = [b'{"n": 1}{"n": 2}', b'{"a": ', b'{"b": 1}}', b'{"n": 3} ']
    decoded = JsonDecoder(pa.schema({"n": pa.int64()})).decode(values)
    assert decoded.rows.to_pylist() == [{"n": 3}]
    assert [number for number, _ in decoded.bad] == [0, 1, 2]
