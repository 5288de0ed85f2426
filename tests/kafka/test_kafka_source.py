"""The Kafka source with a real broker."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_offsets import Offsets, Partition
from headgate.testing import assert_same_rows, check_source
from tests.kafka_broker import Broker
from tests.runtime.jobs import environment, error_of, eventually

N = pa.schema({"n": pa.int64()})


def fill(kafka: Broker, topic: str, partitions: int, count: int, first: int = 0) -> list[dict[str, int]]:
    """Put numbers into the partitions in turn. Returns all as rows."""
    for partition in range(partitions):
        numbers = range(first + partition, first + count, partitions)
        kafka.produce(topic, [b'{"n": %d}' % n for n in numbers], partition)
    return [{"n": n} for n in range(first, first + count)]


def source(kafka: Broker, topic: str | Sequence[str], **options: Any) -> hg.Source:
    options = {"schema": N, "stop": "latest", **options}
    return hg.sources.kafka(kafka.servers, topic, **options)


def read(kafka: Broker, topic: str | Sequence[str], parallelism: int = 2, **options: Any) -> list[dict[str, Any]]:
    env = environment(parallelism=parallelism)
    rows: list[dict[str, Any]] = env.from_source(source(kafka, topic, **options)).collect().to_pylist()
    return rows


#: The bytes of each message for the kit, and options with which a few of them are a batch, and a few more wait.
LARGE = 20_000
FEW: dict[str, Any] = {"fetch_bytes": 3 * LARGE, "options": {"fetch.message.max.bytes": LARGE}}


def fill_large(kafka: Broker, topic: str, partitions: int, numbers: range) -> list[dict[str, int]]:
    """Put large messages with numbers into the partitions in turn, one by one, so that each is fetched by itself."""
    for n in numbers:
        kafka.produce(topic, [b'{"n": %d, "text": "%s"}' % (n, b"x" * LARGE)], n % partitions)
    return [{"n": n} for n in numbers]


def received(port: int) -> int:
    """Return how many bytes the open connections of this process to a port of loopback have received."""
    found = 0
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr == ("127.0.0.1", port):
            with socket.socket(fileno=os.dup(connection.fd)) as copy:
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
            found += struct.unpack_from("Q", info, 128)[0]  # tcpi_bytes_received
    return found


def test_the_source_keeps_the_contract(kafka: Broker) -> None:
    topic, empty = kafka.topic(3), kafka.topic(2)
    rows = fill_large(kafka, topic, 3, range(30))
    check_source(
        lambda: source(kafka, topic, group=topic, **FEW), rows,
        idle=lambda: source(kafka, empty, stop=None),
        broken=lambda: source(kafka, "no-such-topic"),
    )  # fmt: skip


def test_what_nobody_reads_is_not_fetched(kafka: Broker) -> None:
    """Batches have one message each, so that they are all of one size.

    The client fetches about four messages ahead of the rows that were read. On a busy machine, the first read finds
    several messages.
    """
    topic = kafka.topic(1)
    rows = fill_large(kafka, topic, 1, range(30))
    check_source(
        lambda: source(kafka, topic, **{**FEW, "fetch_bytes": LARGE}), rows,
        taken=lambda: received(kafka.port) // LARGE, most_ahead=16,
    )  # fmt: skip


def test_an_endless_source_keeps_the_contract(kafka: Broker) -> None:
    topics = [kafka.topic(2), kafka.topic(1)]
    rows = fill_large(kafka, topics[0], 2, range(12)) + fill_large(kafka, topics[1], 1, range(12, 20))
    check_source(lambda: source(kafka, topics, stop=None, **FEW), rows)


def test_where_reading_starts_and_stops(kafka: Broker) -> None:
    topic = kafka.topic(2)
    early = fill(kafka, topic, 2, 10)
    moment = datetime.now(UTC) + timedelta(milliseconds=1)
    eventually(lambda: datetime.now(UTC) > moment)
    late = fill(kafka, topic, 2, 10, first=10)
    assert_same_rows(read(kafka, topic), early + late)
    assert_same_rows(read(kafka, topic, start=moment), late)
    assert_same_rows(read(kafka, topic, start=moment.replace(tzinfo=None)), late)
    assert_same_rows(read(kafka, topic, stop=moment), early)
    assert read(kafka, topic, start="latest") == []
    assert read(kafka, topic, start=datetime(2100, 1, 1, tzinfo=UTC)) == []
    given = {(topic, 0): 7, (topic, 1): 10}
    assert_same_rows(read(kafka, topic, start=given), [{"n": 14}, {"n": 16}, {"n": 18}])
    assert_same_rows(read(kafka, topic, start={(topic, 1): 9}), [{"n": n} for n in (*range(0, 20, 2), 19)])
    assert_same_rows(read(kafka, topic, stop={(topic, 0): 2, (topic, 1): 0}), [{"n": 0}, {"n": 2}])


def test_the_group_s_offsets_are_committed_after_checkpoints_and_read_only_on_request(
    kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    rows = fill(kafka, topic, 2, 10)
    group = f"group-{topic}"
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="20 ms")
    env.from_source(source(kafka, topic, group=group)).sink_to(hg.sinks.null())
    env.execute()
    more = fill(kafka, topic, 2, 4, first=10)
    assert_same_rows(read(kafka, topic, group=group, start="group"), more)
    assert_same_rows(read(kafka, topic, group=group), rows + more)
    assert_same_rows(read(kafka, topic, group="another", start="group"), rows + more)


def test_what_lies_behind_the_stop_is_unread_for_the_group_too(kafka: Broker, tmp_path: Path) -> None:
    """The messages before and after the stop come in one batch. The position behind them is not the group's."""
    topic = kafka.topic(1)
    rows = fill(kafka, topic, 1, 5)
    env = environment(parallelism=1, checkpoint_dir=tmp_path, checkpoint_interval="20 ms")
    stream = env.from_source(source(kafka, topic, group=topic, stop={(topic, 0): 2}))
    assert stream.collect().to_pylist() == rows[:2]
    assert read(kafka, topic, group=topic, start="group") == rows[2:]


def test_messages_of_open_and_aborted_transactions_are_not_read(kafka: Broker) -> None:
    from confluent_kafka import Producer

    topic = kafka.topic(1)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions()
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction, producer.commit_transaction,
                                   producer.abort_transaction]):  # fmt: skip
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"n": number}))
        producer.flush()
        ends()
    assert read(kafka, topic) == [{"n": 0}, {"n": 2}], "and the input ends, though markers are no messages"
    assert_same_rows(read(kafka, topic, read_committed=False), [{"n": n} for n in range(4)])
    producer.begin_transaction()
    producer.produce(topic, b'{"n": 9}')
    producer.flush()
    assert read(kafka, topic) == [{"n": 0}, {"n": 2}], "up to the last stable offset"
    producer.commit_transaction()
    assert read(kafka, topic)[-1] == {"n": 9}


BAD = [
    (b"oops", "it is not a JSON object"), (b'{"n": "x"}', "number to string"), (b'{"n": 1} {"n": 2}', "whole"),
    (b"", "it is not a JSON object"), (None, "the message has no value"), (b'{"n": \n', "JSON parse error"),
    (b'{"n": 1}\n{"n": 2}', "JSON parse error"), (b"\xff", "it is not a JSON object"), (b'["n"]', "not a JSON object"),
    (b'{"n": 1, "s": "\xff"}', "UTF-8"), (b'{"n": 1, "s": "\n"}', "JSON parse error"),
]  # fmt: skip


@pytest.mark.parametrize("value", [bad for bad, _ in BAD])
def test_a_bad_message_costs_only_itself(kafka: Broker, value: bytes | None) -> None:
    topic = kafka.topic(1)
    good = [b'{"n": 1}', b'  {"n": 2, "more": [1]}', b'{\n  "n":\r\n 3\n}\n', b"{}"]
    kafka.produce(topic, [*good[:2], value, *good[2:]], key="k")
    env = environment(parallelism=1)
    rows = env.from_source(source(kafka, topic, metadata=["offset"]))
    aside = hg.sinks.collect()
    rows.side_output("bad").sink_to(aside)
    assert rows.collect().to_pylist() == [{"n": n, "offset": at} for n, at in [(1, 0), (2, 1), (3, 3), (None, 4)]]
    [bad] = aside.to_table().to_pylist()
    reason = bad.pop("error")
    assert bad == {"topic": topic, "partition": 0, "offset": 2, "key": b"k", "value": value}
    assert dict(BAD)[value] in reason


def test_without_the_side_output_a_bad_message_fails_the_job(kafka: Broker) -> None:
    topic = kafka.topic(1)
    kafka.produce(topic, [b'{"n": 1}', b"oops"])
    env = environment()
    env.from_source(source(kafka, topic)).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert isinstance(error, hg.SourceError)
    assert f"{topic}[0]: the message at offset 1 cannot be decoded: it is not a JSON object" in str(error)


def test_what_a_message_has_besides_its_value(kafka: Broker) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, [b"a"], 1, key=b"k", timestamp=1_700_000_000_123, headers=[("x", b"1"), ("y", None)])
    kafka.produce(topic, [None], 0, timestamp=1)
    names = {kind: f"its_{kind}" for kind in ("key", "timestamp", "headers", "topic", "partition", "offset")}
    rows = sorted(read(kafka, topic, schema=None, format="raw", metadata=names), key=lambda row: row["its_partition"])
    assert rows == [
        {"value": None, "its_key": None, "its_timestamp": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
         "its_headers": None, "its_topic": topic, "its_partition": 0, "its_offset": 0},
        {"value": b"a", "its_key": b"k", "its_timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
         "its_headers": [{"name": "x", "value": b"1"}, {"name": "y", "value": None}],
         "its_topic": topic, "its_partition": 1, "its_offset": 0},
    ]  # fmt: skip


def stream_of(*batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_messages_of_arrow_have_any_number_of_rows(kafka: Broker) -> None:
    topic = kafka.topic(1)
    batches = [pa.record_batch({"n": pa.array(numbers, pa.int64())}) for numbers in ([1, 2], [3], [])]
    other = pa.record_batch({"m": [1]})
    kafka.produce(
        topic, [stream_of(*batches), stream_of(batches[2]), stream_of(other), b"?", None, stream_of(batches[1])]
    )
    env = environment(parallelism=1)
    rows = env.from_source(source(kafka, topic, format="arrow", metadata=["offset"]))
    aside = hg.sinks.collect()
    rows.side_output("bad").sink_to(aside)
    expected = [{"n": 1, "offset": 0}, {"n": 2, "offset": 0}, {"n": 3, "offset": 0}, {"n": 3, "offset": 5}]
    assert rows.collect().to_pylist() == expected
    assert aside.to_table().column("offset").to_pylist() == [2, 3, 4]


def test_partitions_that_come_later_are_read_from_their_beginning(kafka: Broker) -> None:
    topic = kafka.topic(1)
    fill(kafka, topic, 1, 3)
    env = environment()
    rows = env.from_source(source(kafka, topic, stop=None, start="latest", discovery_interval="100 ms"))
    results = hg.sinks.collect()
    rows.sink_to(results)
    job = env.execute_async()
    eventually(lambda: any(each.get("unread") for each in job.metrics().get("operators", {}).values()))
    # Now the source reads the first partition. Before, it could have found all four at its start.
    kafka.add_partitions(topic, 4)
    kafka.produce(topic, [b'{"n": 7}'], 3)
    kafka.produce(topic, [b'{"n": 8}'], 2)
    eventually(lambda: results.rows >= 2)
    job.cancel()
    assert_same_rows(results.to_table(), [{"n": 7}, {"n": 8}])


def test_partitions_that_come_while_the_job_is_stopped_are_read_from_their_beginning(
    kafka: Broker, tmp_path: Path
) -> None:
    """Also with start="latest", and with other subtasks."""
    topic = kafka.topic(1)
    got: list[int] = []

    def started(parallelism: int) -> hg.JobHandle:
        env = environment(parallelism=parallelism, checkpoint_dir=tmp_path, checkpoint_interval="50 ms")
        stream = env.from_source(source(kafka, topic, stop=None, start="latest", discovery_interval="100 ms"))
        stream.sink_to(hg.sinks.for_each_batch(lambda batch, info: got.extend(batch["n"].to_pylist())))
        return env.execute_async("later", resume="latest-if-any")

    job = started(1)
    eventually(lambda: job.status() == "RUNNING")  # it knows the latest offset
    kafka.produce(topic, [b'{"n": 1}'])
    eventually(lambda: got == [1])
    job.stop(timeout=60)
    job.wait()
    kafka.add_partitions(topic, 3)
    for number in range(3):
        kafka.produce(topic, [b'{"n": %d}' % n for n in (10 * number, 10 * number + 1)], number)
    job = started(2)
    eventually(lambda: len(got) >= 7)
    job.stop(timeout=60)
    job.wait()
    assert sorted(got) == [0, 1, 1, 10, 11, 20, 21]


def test_a_topic_that_is_added_at_a_resume_is_read_and_kept(kafka: Broker, tmp_path: Path) -> None:
    """The checkpoint of the job with both topics names both: a job that leaves one out again is refused."""
    first, second = kafka.topic(1), kafka.topic(2)
    rows = [*fill(kafka, first, 1, 5), *fill(kafka, second, 2, 6, first=5)]

    def started(topics: list[str], resume: str | None) -> hg.JobHandle:
        env = environment(checkpoint_dir=tmp_path, checkpoint_interval="50 ms")
        stream = env.from_source(source(kafka, topics, stop=None)).uid("source")
        stream.sink_to(hg.sinks.for_each_batch(lambda batch, info: got.extend(batch.to_pylist()))).uid("sink")
        return env.execute_async("topics", resume=resume)

    got: list[dict[str, Any]] = []
    job = started([first], None)
    eventually(lambda: len(got) == 5)
    job.stop(timeout=60)
    job.wait()
    job = started([first, second], "latest")
    eventually(lambda: len(got) >= 11)
    job.stop(timeout=60)
    job.wait()
    assert sorted(row["n"] for row in got) == sorted(row["n"] for row in rows)
    with pytest.raises(hg.SourceError, match=f"also reads {second}"):
        started([first], "latest").wait()


def test_a_position_that_has_expired_is_refused_by_name(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1)
    fill(kafka, topic, 1, 5)
    options: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_interval": "20 ms"}

    def start(resume: str | None) -> hg.JobHandle:
        env = environment(parallelism=1, restart=hg.restart.none(), **options)
        env.from_source(source(kafka, topic, stop=None)).sink_to(hg.sinks.null())
        return env.execute_async("expired", resume=resume)

    job = start(None)
    eventually(lambda: job.metrics()["rows_in"] == 5)
    job.stop()
    fill(kafka, topic, 1, 5, first=5)
    kafka.delete_records(topic, 0, 8)
    error = error_of(start("latest"))
    assert isinstance(error, hg.SourceError)
    assert f"{topic}[0]: the topic no longer has the message at offset 5" in str(error)


def test_a_topic_that_is_deleted_while_it_is_read(kafka: Broker) -> None:
    topic = kafka.topic(1)
    fill(kafka, topic, 1, 5)
    env = environment(parallelism=1)
    env.from_source(source(kafka, topic, stop=None, discovery_interval="100 ms")).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: job.metrics()["rows_in"] == 5)
    kafka.delete_topic(topic)
    error = error_of(job)
    assert isinstance(error, hg.SourceError)
    assert "create the topic" in str(error)


def test_a_topic_that_does_not_exist(kafka: Broker) -> None:
    env = environment()
    env.from_source(source(kafka, "no-such-topic")).sink_to(hg.sinks.null())
    with pytest.raises(hg.SourceError, match=r"topic 'no-such-topic': .*; create the topic, or correct its name"):
        env.execute()


def test_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.connectors.kafka.kafka_offsets.ANSWER_TIMEOUT", 0.5)
    pytest.importorskip("confluent_kafka")
    env = environment()
    env.from_source(hg.sources.kafka("127.0.0.1:1", "orders", schema=N)).sink_to(hg.sinks.null())
    with pytest.raises(hg.SourceError, match="check the servers= and that a broker runs there"):
        env.execute()


def test_the_slowest_partition_holds_back_the_watermark(kafka: Broker) -> None:
    """Without that, the rows of one partition would be late. Idle partitions do not hold it back for ever."""
    topic = kafka.topic(3)
    schema = pa.schema({"n": pa.int64(), "at": pa.timestamp("ms", "UTC")})
    for partition in (0, 1):
        times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=n, hours=5 * partition) for n in range(60)]
        messages = [json.dumps({"n": n, "at": at.isoformat()}).encode() for n, at in enumerate(times)]
        kafka.produce(topic, messages, partition)
    env = environment(parallelism=1)
    # A slow machine may get the rows of the first partition a second after those of the other one.
    watermark = hg.Watermark("at", idle_timeout="3 s")
    rows = env.from_source(source(kafka, topic, schema=schema, stop=None), watermark=watermark)
    counts = rows.key_by().window(hg.tumble("1 min")).aggregate(rows=hg.count())
    results = hg.sinks.collect()
    counts.sink_to(results)
    job = env.execute_async()
    eventually(lambda: results.rows >= 59, timeout=60)
    assert job.metrics()["late_rows"] == 0
    kafka.produce(topic, [json.dumps({"n": 60, "at": "2024-01-01T05:59:30Z"}).encode()], 1)
    eventually(lambda: results.rows >= 119, timeout=60)
    assert job.metrics()["late_rows"] == 0
    job.cancel()
    assert {row["rows"] for row in results.to_table().to_pylist()} == {1}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_partition_that_is_found_later_holds_back_the_watermark(kafka: Broker, parallelism: int) -> None:
    """Also if it is the first partition of its subtask, which held back nothing before."""
    topic = kafka.topic(1)

    def minutes(partition: int, *numbers: int) -> None:
        rows = [{"n": n, "at": f"2024-01-01T{n // 60:02}:{n % 60:02}:00Z"} for n in numbers]
        kafka.produce(topic, [json.dumps(row).encode() for row in rows], partition)

    def rows_at_windows() -> int:
        found = [name for name in job.metrics()["operators"] if "window" in name]
        return sum(job.metrics()["operators"][name]["rows_in"] for name in found)

    env = environment(parallelism=parallelism)
    schema = pa.schema({"n": pa.int64(), "at": pa.timestamp("ms", "UTC")})
    found = source(kafka, topic, schema=schema, stop=None, discovery_interval="50 ms")
    counts = env.from_source(found, watermark=hg.Watermark("at")).key_by("n").window(hg.tumble("1 min"))
    results = hg.sinks.collect()
    counts.aggregate(rows=hg.count()).sink_to(results)
    job = env.execute_async()
    minutes(0, *range(10))
    eventually(lambda: results.rows == 9)
    kafka.add_partitions(topic, 2)
    minutes(1, 9)
    eventually(lambda: rows_at_windows() == 11)
    minutes(0, 700)
    eventually(lambda: rows_at_windows() == 12)
    minutes(1, *range(10, 600), 700)
    eventually(lambda: results.rows == 600)
    assert job.metrics()["late_rows"] == 0
    job.cancel()


def test_fetching_stops_while_the_job_takes_nothing(kafka: Broker) -> None:
    """Of 60 MB, the reader takes what its queue and three batches hold."""
    from headgate.testing.source_run import SourceRun

    topic = kafka.topic(1, max_message_bytes="2000000")
    kafka.produce(topic, [bytes(1_000_000)] * 60)
    run = SourceRun(source(kafka, topic, schema=None, format="raw", stop=None, fetch_bytes="1 mb"), 60, 60.0)
    run.start(1)
    run.read(0)
    fetched = run.readers[0]._fetching._offsets  # type: ignore[attr-defined]
    before = -1
    until = time.monotonic() + 3
    while time.monotonic() < until and before != (before := fetched[topic, 0]):
        time.sleep(0.3)
    assert before < 40
    while run.rows < 60:
        run.read(0)
    run.close()
    run.source.release()


def test_a_broker_that_restarts_only_delays_the_job(kafka: Broker, tmp_path: Path) -> None:
    """Also while the source looks for new partitions."""
    topic = kafka.topic(2)
    fill(kafka, topic, 2, 10)
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="50 ms", restart=hg.restart.none())
    results = hg.sinks.collect()
    env.from_source(source(kafka, topic, stop=None, discovery_interval="50 ms")).sink_to(results)
    job = env.execute_async()
    eventually(lambda: results.rows == 10 or has_ended(job), timeout=60)
    kafka.kill()
    kafka.start()
    fill(kafka, topic, 2, 10, first=10)
    eventually(lambda: results.rows == 20 or has_ended(job), timeout=60)
    assert not has_ended(job), error_of(job)
    job.cancel()
    assert_same_rows(results.to_table(), [{"n": n} for n in range(20)])


class Starting(Offsets):
    """Asks brokers that answer the first question about a partition with an error."""

    error: int | None = None

    def asked(self, partitions: Sequence[Partition], spec: Any = None) -> dict[Any, Future[Any]]:
        from confluent_kafka import KafkaError, KafkaException

        answers, error = dict(super().asked(partitions, spec)), self.error
        if error is not None:
            self.error = None
            refused: Future[Any] = Future()
            refused.set_exception(KafkaException(KafkaError(error)))
            answers[next(iter(answers))] = refused
        return answers


def test_a_leader_that_has_just_started_is_asked_again(kafka: Broker) -> None:
    """Otherwise a job that starts beside its broker fails, as random schedules have shown."""
    from confluent_kafka import KafkaError

    topic = kafka.topic(2)
    fill(kafka, topic, 2, 10)
    places = [(topic, 0), (topic, 1)]
    offsets = Starting(KafkaClient(kafka.servers, {}), read_committed=True)
    for error in (KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT):
        offsets.error = error
        assert offsets.latest(places) == dict.fromkeys(places, 5)
    offsets.error = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(hg.SourceError, match="the right to use this topic"):
        offsets.latest(places)


def has_ended(job: hg.JobHandle) -> bool:
    return job.status() not in ("CREATED", "RUNNING")


def test_no_option_shows_in_errors_or_logs(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hush-hush"
    options = {"sasl.username": "me", "sasl.password": secret, "security.protocol": "SASL_PLAINTEXT",
               "sasl.mechanism": "PLAIN", "socket.connection.setup.timeout.ms": 1000}  # fmt: skip
    made = source(kafka, kafka.topic(), options=options)
    assert secret not in repr(made.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.connectors.kafka.kafka_offsets.ANSWER_TIMEOUT", 1.0)
        env = environment()
        env.from_source(made).sink_to(hg.sinks.null())
        with pytest.raises(hg.SourceError) as raised:
            env.execute()
    assert secret not in str(raised.value) + caplog.text
    with pytest.raises(hg.ConfigError, match="Kafka refuses an option: .*no.such.option") as refused:
        source(kafka, "x", options={"no.such.option": secret})
    assert secret not in str(refused.value)


def test_an_address_of_the_web_is_no_broker() -> None:
    with pytest.raises(hg.ConfigError, match="servers='http://localhost:9092' must be hosts and ports, such as"):
        hg.sources.kafka("http://localhost:9092", "orders", schema=N)


def test_a_partition_far_ahead_of_another_waits_for_it(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka import Producer

    monkeypatch.setattr("headgate.connectors.kafka.kafka_reader._MOST_MESSAGES", 20)
    topic, epoch = kafka.topic(2), datetime(1970, 1, 1, tzinfo=UTC)
    producer = Producer({"bootstrap.servers": kafka.servers, "batch.num.messages": 20})
    for number in range(3_000):
        for part, step in enumerate((timedelta(minutes=1), timedelta(hours=1))):
            row = {"at": (epoch + step * number).isoformat(), "part": part}
            producer.produce(topic, json.dumps(row), partition=part)
    producer.flush()
    schema = pa.schema({"at": pa.timestamp("us", "UTC"), "part": pa.int64()})
    few = {"max.partition.fetch.bytes": 2_000}  # so that the broker returns both partitions in turn

    def longest_lead(drift: str | None) -> float:
        """Return by how many hours the second partition was ahead of the first, at most."""
        last, leads = [epoch, epoch], [0.0]

        def seen(batch: pa.RecordBatch) -> pa.RecordBatch:
            for row in batch.to_pylist():
                last[row["part"]] = row["at"]
            if last[0] < epoch + timedelta(hours=49):  # the first partition ends at hour 50
                leads.append((last[1] - last[0]) / timedelta(hours=1))
            return batch

        stream = environment(parallelism=1).from_source(
            source(kafka, topic, schema=schema, options=few), watermark=hg.Watermark("at", max_drift=drift)
        )
        assert stream.map_batches(seen, schema=schema).collect().num_rows == 6_000
        return max(leads)

    assert longest_lead(None) > 500
    # The consumer may have returned two batches more, and holds a third.
    assert longest_lead("10 h") <= 10 + 4 * 20
