"""Bare loops of confluent_kafka, the measuring stick of `kafka`. Each runs in a process of its own.

One loop reads messages as a program without Headgate would: `consume(10000)`, join, `pyarrow.json`. Another loop
produces messages that were made before. The third one produces messages at a fixed rate, as the input of latencies.

The first two give librdkafka the options that Headgate's source and sink give it. With librdkafka's own options a
consumer whose queue is full does not fetch for a second, so the first loop would mostly wait.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from headgate.bench.conversation import ChildProcess, serve
from headgate.connectors.kafka.delivery import SETTINGS
from headgate.connectors.kafka.kafka_reader import fetch_options
from headgate.quantities import size

TIMEOUT = 300.0
#: The due time of the messages, in microseconds, if no measurement depends on it.
DUE = b"1714557600000"
#: Seconds for which the paced loop sleeps at most.
_PACE = 0.002
SCHEMA = pa.schema({"id": pa.int64(), "city": pa.string(), "price": pa.float64(), "due": pa.int64()})


class BareLoops:
    """The process of the loops. Use it as a context manager. Methods return seconds."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        program = [sys.executable, "-P", "-m", "headgate.bench.kafka_messages.kafka_loops"]
        self._process = ChildProcess("the bare loop", program)

    def source(self, topic: str, messages: int) -> float:
        """Read and parse `messages` messages of partition 0."""
        return self._ask(do="source", topic=topic, messages=messages)

    def sink(self, topic: str, messages: int) -> float:
        """Produce `messages` messages, and wait until the broker has them."""
        return self._ask(do="sink", topic=topic, messages=messages)

    @contextmanager
    def paced(self, topic: str, rate: float, seconds: float) -> Iterator[None]:
        """While the block runs, produce `rate` messages/s for some seconds, each with its due time."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self._ask, do="pace", topic=topic, rate=rate, messages=round(rate * seconds))
            yield
            done.result()

    def _ask(self, **request: Any) -> float:
        return float(self._process.ask({"servers": self.servers, **request}, TIMEOUT)["seconds"])

    def __enter__(self) -> BareLoops:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()


def texts(messages: int) -> list[bytes]:
    """Return the messages of all measurements: JSON objects of about 70 bytes."""
    cities = ("Rome", "Oslo", "Lima", "Bern")
    return [b'{"id": %d, "city": "%s", "price": %d.25, "due": %s}' % (n, cities[n % 4].encode(), n % 1000, DUE)
            for n in range(messages)]  # fmt: skip


def source_options() -> dict[str, Any]:
    """Return the options that `hg.sources.kafka` sets without arguments, with `_` for the dots of their names."""
    return {
        "auto_offset_reset": "error",
        "enable_auto_commit": False,
        "enable_auto_offset_store": False,
        "enable_partition_eof": True,
        "isolation_level": "read_committed",
        **fetch_options(size("16 mb")),
    }


def _dotted(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in options.items()}


def _source(servers: str, topic: str, messages: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", **_dotted(source_options())})
    consumer.assign([TopicPartition(topic, 0, 0)])
    options, parse = pj.ReadOptions(use_threads=False), pj.ParseOptions(explicit_schema=SCHEMA)
    began, seen = time.perf_counter(), 0
    while seen < messages:
        values = [message.value() or b"" for message in consumer.consume(10_000, 0.1) if message.error() is None]
        if values:
            seen += pj.read_json(io.BytesIO(b"\n".join(values)), options, parse).num_rows
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def _sink(servers: str, topic: str, messages: int) -> float:
    from confluent_kafka import Producer

    ready = texts(messages)
    producer = Producer({"bootstrap.servers": servers, **_dotted(SETTINGS)})
    began = time.perf_counter()
    for text in ready:
        while True:
            try:
                producer.produce(topic, text)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    return time.perf_counter() - began


def _pace(servers: str, topic: str, rate: float, messages: int) -> float:
    from confluent_kafka import Producer

    ready = texts(messages)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 10_000_000})
    began = time.time()
    for number, text in enumerate(ready):
        due = began + number / rate
        while (wait := due - time.time()) > 0:
            time.sleep(min(wait, _PACE))
        producer.produce(topic, text.replace(DUE, b"%d" % (due * 1e6)))
        producer.poll(0)
    producer.flush()
    return time.time() - began


if __name__ == "__main__":
    loops: dict[str, Callable[..., float]] = {"source": _source, "sink": _sink, "pace": _pace}
    serve(lambda request: {"seconds": loops[request.pop("do")](**request)})
