"""Faults of the input that no restart mends: the job restarts as its strategy says, then fails with one clear error."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from tests.kafka_broker import Broker, broker_or_skip
from tests.runtime.jobs import environment, error_of, eventually

N = pa.schema({"n": pa.int64()})
ROWS = 20


def following(kafka: Broker, topic: str, folder: Path) -> hg.JobHandle:
    """Start or resume a job that reads a topic for ever, and may restart twice."""
    env = environment(
        parallelism=1, checkpoint_dir=folder, checkpoint_interval="20 ms", restart=hg.restart.fixed(2, delay=0)
    )
    source = hg.sources.kafka(kafka.servers, topic, schema=N, discovery_interval="100 ms")
    env.from_source(source).sink_to(hg.sinks.null())
    return env.execute_async("following", resume="latest-if-any")


def fill(kafka: Broker, topic: str) -> None:
    kafka.produce(topic, [b'{"n": %d}' % n for n in range(ROWS)])


def asks_for_partitions() -> bool:
    """Return whether the thread of a reader waits for what brokers say of a topic."""
    frames = sys._current_frames()
    threads = [each for each in threading.enumerate() if each.name.startswith("headgate-fetcher-")]
    return any((frame := frames.get(each.ident or 0)) and frame.f_code.co_name == "_metadata" for each in threads)


def test_a_job_that_looks_for_partitions_is_cancelled_while_no_broker_answers(tmp_path: Path) -> None:
    """The question may take 30 s. The reader's thread ends without an answer."""
    broker = broker_or_skip()
    with broker:
        topic = broker.topic(1)
        fill(broker, topic)
        job = following(broker, topic, tmp_path)
        eventually(lambda: job.metrics()["rows_in"] == ROWS)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            eventually(asks_for_partitions)
            job.cancel()
            error = error_of(job)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert isinstance(error, hg.JobCancelled)
    assert "did not return" not in str(error)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("a bad message", f"[0]: the message at offset {ROWS} cannot be decoded: it is not a JSON object"),
        ("a deleted topic", "create the topic"),
        ("an expired position", f"[0]: the topic no longer has the message at offset {ROWS}"),
    ],
)
def test_a_fault_of_the_input(kafka: Broker, tmp_path: Path, fault: str, message: str) -> None:
    topic = kafka.topic(1)
    fill(kafka, topic)
    job = following(kafka, topic, tmp_path)
    eventually(lambda: job.metrics()["rows_in"] == ROWS)
    match fault:
        case "a bad message":
            kafka.produce(topic, [b"no JSON"])
        case "a deleted topic":
            kafka.delete_topic(topic)
        case _:
            job.stop()
            fill(kafka, topic)
            kafka.delete_records(topic, 0, ROWS + 1)
            job = following(kafka, topic, tmp_path)
    error = error_of(job)
    assert isinstance(error, hg.SourceError)
    assert topic in str(error)
    assert message in str(error)
    assert job.restarts == 2
