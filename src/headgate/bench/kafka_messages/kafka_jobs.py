"""The jobs of `kafka`: reading, writing, and writing and copying at a fixed rate beside a reader that measures the
latency.
"""

from __future__ import annotations

import io
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from hdrh.histogram import HdrHistogram

import headgate as hg
from headgate.bench.idle_timer import LONGEST, new_histogram
from headgate.bench.kafka_messages.kafka_loops import SCHEMA, BareLoops

CHECKPOINT_INTERVAL = "1 s"
#: The first seconds of a latency measurement, whose messages do not count: the job starts then.
WARM_UP = 3.0


def read_seconds(servers: str, topic: str, messages: int) -> float:
    """Return the seconds of a job that reads `messages` messages of partition 0, its start-up included."""
    env = _environment()
    env.from_source(hg.sources.kafka(servers, topic, schema=SCHEMA, stop={(topic, 0): messages})).sink_to(
        hg.sinks.null()
    )
    return _seconds(env, messages)


def write_seconds(servers: str, topic: str, messages: int, guarantee: Any) -> float:
    """Return the seconds of a job that writes `messages` messages, its start-up included."""
    with tempfile.TemporaryDirectory() as folder:
        env = _environment(checkpoint_dir=folder, checkpoint_interval=CHECKPOINT_INTERVAL)
        source = hg.sources.generate(_rows, rows=messages, batch_rows=8192)
        env.from_source(source).sink_to(hg.sinks.kafka(servers, topic, guarantee=guarantee))
        return _seconds(env, messages)


def write_paced(servers: str, topic: str, rate: float, seconds: float, guarantee: Any) -> HdrHistogram:
    """Write at `rate` messages/s. Return the microseconds from each message's due time to a reader that sees it."""
    with tempfile.TemporaryDirectory() as folder, seen_after(servers, topic, round(rate * seconds)) as histogram:
        env = _environment(checkpoint_dir=folder, checkpoint_interval=CHECKPOINT_INTERVAL)
        source = hg.sources.generate(_ids, rows=round(rate * seconds), rate=rate, time="due", batch_time="5 ms")
        rows = env.from_source(source).map_batches(_with_due, schema=SCHEMA)
        rows.sink_to(hg.sinks.kafka(servers, topic, guarantee=guarantee))
        env.execute("kafka-latency")
    return histogram


def copy_paced(bare: BareLoops, topics: tuple[str, str], rate: float, seconds: float, guarantee: Any) -> HdrHistogram:
    """Copy the messages of one topic into another, while they come at `rate` messages/s. Return as `write_paced`."""
    (given, topic), servers, messages = topics, bare.servers, round(rate * seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        seen_after(servers, topic, messages) as histogram,
        bare.paced(given, rate, seconds),
    ):
        env = _environment(checkpoint_dir=folder, checkpoint_interval=CHECKPOINT_INTERVAL)
        source = hg.sources.kafka(servers, given, schema=SCHEMA, stop={(given, 0): messages})
        env.from_source(source).sink_to(hg.sinks.kafka(servers, topic, guarantee=guarantee))
        env.execute("kafka-copy")
    return histogram


@contextmanager
def seen_after(servers: str, topic: str, messages: int, patience: float = 30.0) -> Iterator[HdrHistogram]:
    """Read a topic with read_committed while the block runs, until `messages` messages have come.

    The member `due` of a message is its due time in microseconds. Yield a histogram: the microseconds from due time to
    reading, for messages due after WARM_UP. After the block, wait at most `patience` seconds for missing messages.
    """
    from confluent_kafka import Consumer, TopicPartition

    histogram = new_histogram()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "latency", "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(topic, 0, 0)])
    parse = pj.ParseOptions(explicit_schema=pa.schema({"due": pa.int64()}), unexpected_field_behavior="ignore")
    has_ended, begin = threading.Event(), (time.time() + WARM_UP) * 1e6

    def read() -> None:
        seen = 0
        while seen < messages and not has_ended.is_set():
            values = [message.value() or b"" for message in consumer.consume(10_000, 0.005) if message.error() is None]
            now = time.time() * 1e6
            if values:
                due = pj.read_json(io.BytesIO(b"\n".join(values)), parse_options=parse)["due"].to_numpy()
                late = np.clip(now - due[due >= begin], 1, LONGEST).astype(np.int64)
                for value, count in zip(*np.unique(late, return_counts=True), strict=True):
                    histogram.record_value(int(value), int(count))
                seen += len(values)

    reader = threading.Thread(target=read, name="headgate-bench-reader")
    reader.start()
    try:
        yield histogram
        reader.join(patience)
    finally:
        has_ended.set()
        reader.join()
        consumer.close()


def _environment(**options: Any) -> hg.StreamEnvironment:
    deployment = hg.LocalDeployment(taskmanagers=1, processes=True)
    return hg.StreamEnvironment(parallelism=1, config=hg.Config(**options), deployment=deployment)


def _seconds(env: hg.StreamEnvironment, messages: int) -> float:
    began = time.perf_counter()
    result = env.execute("kafka")
    seconds = time.perf_counter() - began
    assert result.rows_in == messages, (result.rows_in, messages)
    return seconds


def _ids(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch({"id": np.arange(start, start + n)})


def _with_due(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages whose due time is a number of microseconds."""
    return _messages(batch["id"].to_numpy(), batch["due"].cast(pa.int64()))


def _rows(start: int, n: int) -> pa.RecordBatch:
    return _messages(np.arange(start, start + n), pa.array(np.full(n, 1714557600000)))


def _messages(numbers: np.ndarray, due: pa.Array) -> pa.RecordBatch:
    cities = pa.array(["Rome", "Oslo", "Lima", "Bern"]).take(pa.array(numbers % 4))
    columns = [pa.array(numbers), cities, pa.array(numbers % 1000 + 0.25), due]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
