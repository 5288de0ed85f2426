"""The case `kafka` on a real broker, with small sizes: it measures what it claims. Speed is not tested."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.kafka_messages import kafka_case as case
from headgate.bench.kafka_messages import kafka_jobs
from headgate.bench.kafka_messages.kafka_jobs import copy_paced, read_seconds, write_paced, write_seconds
from headgate.bench.kafka_messages.kafka_loops import SCHEMA, BareLoops, source_options, texts
from headgate.bench.peers.kafka_broker import NoBroker
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_reader import fetch_options
from headgate.connectors.kafka.kafka_source import KafkaSource
from tests.kafka_broker import Broker, values

COUNT = 2_000


@pytest.mark.soak
def test_loops_and_jobs_read_and_write_the_same_messages(kafka: Broker) -> None:
    given, bare, ours = (kafka.topic() for _ in range(3))
    kafka.produce(given, texts(COUNT))
    with BareLoops(kafka.servers) as loops:
        assert loops.source(given, COUNT) > 0
        assert loops.sink(bare, COUNT) > 0
    assert read_seconds(kafka.servers, given, COUNT) > 0  # raises if it reads more or fewer
    assert write_seconds(kafka.servers, ours, COUNT, "exactly-once") > 0
    seen = [[json.loads(value) for value in values(kafka.messages(topic))] for topic in (given, bare, ours)]
    assert seen[0] == seen[1] == seen[2]
    assert [row["id"] for row in seen[0]] == list(range(COUNT))


def test_the_bare_loop_fetches_with_the_options_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the ratio of both compares options of librdkafka."""
    pytest.importorskip("confluent_kafka")
    given: list[dict[str, Any]] = []

    def consumer(_client: KafkaClient, _fail: Any, **own: Any) -> SimpleNamespace:
        given.append(own)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(KafkaClient, "consumer", consumer)
    source = hg.sources.kafka("localhost:1", "t", schema=SCHEMA)
    assert isinstance(source, KafkaSource)
    source.consumer(**fetch_options(source.fetch_bytes))
    assert given[-1].pop("group_id") != given[0]["group_id"]
    assert given[-1] == source_options()


def test_the_latency_counts_each_message_once(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jobs, "WARM_UP", 0.0)
    found = write_paced(kafka.servers, kafka.topic(), 10_000.0, 0.3, "at-least-once")
    assert found.get_total_count() == 3_000
    assert 0 < found.get_max_value() < 60_000_000


def test_the_latency_of_a_copy_counts_each_message_once(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jobs, "WARM_UP", 0.0)
    topics = kafka.topic(), kafka.topic()
    with BareLoops(kafka.servers) as bare:
        found = copy_paced(bare, topics, 10_000.0, 0.3, "exactly-once")
    assert found.get_total_count() == 3_000
    assert 0 < found.get_max_value() < 60_000_000
    given, copied = ([json.loads(value) for value in values(kafka.messages(topic))] for topic in topics)
    assert given == copied
    assert round(given[-1]["due"] - given[0]["due"], -3) == 300_000, "microseconds"


def test_without_a_broker_the_case_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_broker() -> None:
        raise NoBroker("there is no java")

    monkeypatch.setattr(case, "KafkaBroker", no_broker)
    result = case.run(Options(quick=True, say=lambda text: None))
    assert not result.passed
    assert result.skipped[0].reason == "there is no java"
