"""Messages that brokers would refuse are refused before their checkpoint, with a real broker and without one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.topic_limits import TopicLimits
from tests.kafka_broker import Broker, values
from tests.runtime.jobs import environment, error_of

pytest.importorskip("confluent_kafka")
SCHEMA = pa.schema({"value": pa.string(), "k": pa.string(), "at": pa.timestamp("us", "UTC")})
HOUR = 3_600_000
MINUTE = 60_000
NOW = 1_714_557_600


def write(kafka: Broker, folder: Path, topic: str, rows: list[dict[str, Any]], **options: Any) -> hg.JobHandle:
    """Write the rows in a job with checkpoints."""
    env = environment(checkpoint_dir=folder, restart=hg.restart.none())
    env.from_source(hg.sources.iterable(rows, SCHEMA)).sink_to(hg.sinks.kafka(kafka.servers, topic, **options))
    return env.execute_async()


def refusal(kafka: Broker, folder: Path, topic: str, rows: list[dict[str, Any]], **options: Any) -> str:
    """Return the error of a job that has no checkpoint."""
    error = error_of(write(kafka, folder, topic, rows, **options))
    assert isinstance(error, hg.SinkError)
    assert not list(folder.rglob("_metadata"))
    return str(error)


def row_at(hours: float) -> dict[str, Any]:
    return {"value": "x", "k": "a", "at": datetime.now(UTC) + timedelta(hours=hours)}


def test_a_time_too_far_ahead_is_refused_before_its_checkpoint(kafka: Broker, tmp_path: Path) -> None:
    """The last window of a day that has not ended, for example. Kafka 4 takes an hour by default."""
    topic = kafka.topic(1)
    write(kafka, tmp_path / "fine", topic, [row_at(0.9), row_at(-10_000)], timestamp="at").wait(60)
    error = refusal(kafka, tmp_path / "far", topic, [row_at(0), row_at(12)], timestamp="at")
    assert "s ahead of the clock, and brokers take 3600 s; raise message.timestamp.after.max.ms" in error
    assert len(values(kafka.messages(topic))) == 2


def test_a_time_too_far_behind_is_refused_before_its_checkpoint(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1, message_timestamp_before_max_ms=str(HOUR))
    error = refusal(kafka, tmp_path, topic, [row_at(-2)], timestamp="at")
    assert "s behind the clock, and brokers take 3600 s, less 60 s until the commit; raise message.timestamp" in error


def test_brokers_that_set_the_time_take_any(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1, message_timestamp_type="LogAppendTime")
    write(kafka, tmp_path, topic, [row_at(12)], timestamp="at").wait(60)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_needs_keys(policy: str, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1, cleanup_policy=policy)
    rows = [{"value": "x", "k": "a", "at": None}, {"value": "x", "k": None, "at": None}]
    error = refusal(kafka, tmp_path / "null", topic, rows, key="k")
    assert "a message has no key, because the column of key= is null" in error
    write(kafka, tmp_path / "fine", topic, rows[:1], key="k").wait(60)
    for options in ({}, {"format": "arrow"}, {"guarantee": "at-least-once"}):
        with pytest.raises(hg.PlanError, match="is compacted, so each message needs a key; give key="):
            write(kafka, tmp_path / "keyless", topic, rows, **options)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_batches_are_as_small_as_the_topic_needs(guarantee: str, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1, max_message_bytes="2000")
    rows = [{"value": "x" * (n % 1000), "k": "a", "at": None} for n in range(2000)]
    write(kafka, tmp_path, topic, rows, key="k", guarantee=guarantee).wait(60)
    assert len(values(kafka.messages(topic))) == 2000


def test_arrow_messages_fit_into_the_topic(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1, max_message_bytes="2000")
    rows = [{"value": "x" * 100, "k": "a", "at": None}] * 1000
    write(kafka, tmp_path, topic, rows, format="arrow").wait(60)
    sizes = list(map(len, values(kafka.messages(topic))))
    assert 1 < len(sizes)
    assert max(sizes) <= 1903


def test_the_largest_batch_is_one_that_the_user_and_the_topic_take(monkeypatch: pytest.MonkeyPatch) -> None:
    for takes, options, batch in (
        ("2000", {}, 2000),
        ("2000", {"batch.size": "500000"}, 2000),
        ("2000", {"batch.size": 300}, 300),
        ("1048588", {}, None),
        ("1048588", {"batch.size": 5_000_000}, 1_048_588),
    ):
        client = KafkaClient("localhost:1", options)
        monkeypatch.setattr(KafkaClient, "topic_options", lambda self, topic, takes=takes: {"max.message.bytes": takes})
        assert TopicLimits.ask(client, "t").applied(client).options.get("batch.size") == batch


def test_a_message_too_large_for_the_topic_is_refused_before_its_checkpoint(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1, max_message_bytes="2000")
    row = {"value": "x" * 1950, "k": "a", "at": None}
    error = refusal(kafka, tmp_path / "large", topic, [row])
    assert "is too large; raise max.message.bytes of the topic" in error
    write(kafka, tmp_path / "compressed", topic, [row], options={"compression.type": "zstd"}).wait(60)


# --- without a broker


def limits(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> TopicLimits:
    monkeypatch.setattr(KafkaClient, "topic_options", lambda self, topic: options)
    return TopicLimits.ask(KafkaClient("localhost:1", {}), "t")


def test_the_limits_of_older_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Kafka 3.6 there was one option for both. Until 4.0 it counts if the newer ones are not set."""
    old = {"message.timestamp.difference.max.ms": "5"}
    assert limits(old, monkeypatch) == TopicLimits(topic="t", ahead=5, behind=5)
    anything = {"message.timestamp.before.max.ms": str((1 << 63) - 1)}
    assert limits({**old, **anything, "message.timestamp.after.max.ms": "7"}, monkeypatch) == TopicLimits(
        topic="t", ahead=7, behind=5
    )
    assert limits({**old, "message.timestamp.type": "LogAppendTime"}, monkeypatch) == TopicLimits(topic="t")
    assert limits({"max.message.bytes": "5000"}, monkeypatch) == TopicLimits(topic="t", largest=4939, batch=5000)
    assert limits({}, monkeypatch) == limits(anything, monkeypatch) == TopicLimits(topic="t")


def test_without_an_answer_there_are_only_the_limits_of_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.connectors.kafka.kafka_client.ANSWER_TIMEOUT", 0.1)
    client = KafkaClient("localhost:1", {"message.max.bytes": 1000})
    assert TopicLimits.ask(client, "t") == TopicLimits(topic="t", largest=1000)


@pytest.mark.parametrize("distance", [-HOUR, -HOUR + MINUTE - 1, -HOUR + MINUTE, 0, HOUR, HOUR + 1])
@pytest.mark.parametrize("clock", [NOW, 1])
def test_times_at_the_limits(distance: int, clock: int) -> None:
    """The time 0 is that of producing, so it is never too far away."""
    taken = TopicLimits(topic="t", ahead=HOUR, behind=HOUR)
    times = [0, clock * 1000, clock * 1000 + distance]
    encoded = pa.record_batch({"value": [b""] * 3, "timestamp": times})
    if -HOUR + MINUTE <= distance <= HOUR:  # a message that is old enters Kafka at the commit, when it is older
        taken.check(encoded, clock)
        taken.check(encoded.slice(0, 0), clock)
    else:
        with pytest.raises(hg.SinkError, match="behind" if distance < 0 else "ahead of"):
            taken.check(encoded, clock)
    TopicLimits(topic="t").check(encoded, time.time())
