"""`TopicLimits`: which messages brokers take into a topic, as far as they say so.

An exactly-once sink produces messages when their checkpoint is complete. If brokers refuse a message then, each commit
of the checkpoint fails. So the sink refuses such a message before its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.errors import SinkError

#: The largest message that librdkafka takes by default, in bytes.
_LARGEST: Final = 1_000_000
#: The bytes of a batch of messages beside its messages, and the most bytes of a batch that librdkafka makes by default.
_BATCH_OWN_BYTES: Final = 61
_BATCH: Final = 1_000_000
_BATCH_SIZE: Final = "batch.size"
#: The most bytes that a message takes on the wire beside its key, value and headers, and that a header takes beside its
#: name and value. librdkafka counts them when it refuses a large message.
_OWN_BYTES: Final = 36
_HEADER_BYTES: Final = 10
#: The names of the producer's option for compression.
_COMPRESSION: Final = ("compression.type", "compression.codec")
#: The milliseconds with which a topic takes any time.
_ANY: Final = (1 << 63) - 1
#: The milliseconds that a message may wait for its commit. Brokers look at its time then.
_UNTIL_COMMIT: Final = 60_000
_AFTER: Final = "message.timestamp.after.max.ms"
_BEFORE: Final = "message.timestamp.before.max.ms"
#: The option for both, before Kafka 4.0. It counts if the other two are not set.
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """A topic, and the limits of its messages.

    A message has at most `largest` bytes, and a batch of several messages at most `batch` bytes. In a compacted topic,
    a message has a key. Its time is at most `ahead` milliseconds after the time at which brokers get it, and at most
    `behind` milliseconds before.
    """

    topic: str
    largest: int = _LARGEST
    batch: int = _BATCH
    is_compacted: bool = False
    ahead: int = _ANY
    behind: int = _ANY

    @staticmethod
    def ask(client: KafkaClient, topic: str) -> TopicLimits:
        """Ask the brokers. Without the right to ask, there are only the limits of the producer."""
        options = client.topic_options(topic)
        takes = int(options.get("max.message.bytes", _ANY))  # of a batch, as it is sent
        largest = int(client.options.get("message.max.bytes", _LARGEST))
        is_compressed = any(client.options.get(name, "none") != "none" for name in _COMPRESSION)
        brokers_set_time = options.get("message.timestamp.type") == "LogAppendTime"
        return TopicLimits(
            topic=topic,
            largest=largest if is_compressed else min(largest, takes - _BATCH_OWN_BYTES),
            batch=min(_batch_size(client), takes),
            is_compacted="compact" in options.get("cleanup.policy", ""),
            ahead=_ANY if brokers_set_time else _milliseconds(options, _AFTER),
            behind=_ANY if brokers_set_time else _milliseconds(options, _BEFORE),
        )

    @property
    def largest_value(self) -> int:
        """The most bytes of the value of a message without a key and headers."""
        return self.largest - _OWN_BYTES

    def applied(self, client: KafkaClient) -> KafkaClient:
        """Return a client whose producers make batches that brokers take, also if the user wants larger ones."""
        if _batch_size(client) <= self.batch:
            return client
        return replace(client, options={**client.options, _BATCH_SIZE: self.batch})

    def check(self, encoded: pa.RecordBatch, now: float) -> None:
        """Raise SinkError for a message that would be refused. `now` is the time in seconds since the epoch."""
        check_sizes(encoded, self.largest)
        if self.is_compacted and "key" in encoded.schema.names and encoded.column("key").null_count:
            raise SinkError(
                f"topic {self.topic!r}: a message has no key, because the column of key= is null. The topic is "
                "compacted, so each message needs one: filter these rows"
            )
        if "timestamp" in encoded.schema.names:
            self._check_times(encoded.column("timestamp"), round(now * 1000))

    def _check_times(self, times: pa.Array, now: int) -> None:
        """Raise SinkError for a time that is too far from `now`, in milliseconds. 0 is the time of producing."""
        if not len(times):
            return
        first, last = pc.min_max(pc.if_else(pc.equal(times, 0), now, times)).values()
        until_commit = min(_UNTIL_COMMIT, self.behind // 2)
        for distance, most, margin, where, option in (
            (last.as_py() - now, self.ahead, 0, "ahead of", _AFTER),
            (now - first.as_py(), self.behind, until_commit, "behind", _BEFORE),
        ):
            if distance > most - margin:
                less = f", less {margin / 1000:.0f} s until the commit" if margin else ""
                raise SinkError(
                    f"topic {self.topic!r}: the time of a message, from the column of timestamp=, is "
                    f"{distance / 1000:.0f} s {where} the clock, and brokers take {most / 1000:.0f} s{less}; raise "
                    f"{option} of the topic and resume, or leave timestamp= out"
                )


def _batch_size(client: KafkaClient) -> int:
    """Return the most bytes of a batch that a client's producer makes."""
    return int(client.options.get(_BATCH_SIZE, _BATCH))


def _milliseconds(options: Mapping[str, str], name: str) -> int:
    """Return the first of two options that is a limit."""
    values = (int(options[each]) for each in (name, _DIFFERENCE) if each in options)
    return next((value for value in values if value < _ANY), _ANY)


def check_sizes(encoded: pa.RecordBatch, largest: int) -> None:
    """Raise SinkError if librdkafka or brokers would refuse a message, because it is larger than `largest` bytes."""
    sizes = pc.add(_lengths(encoded.column("value")), _OWN_BYTES)
    if "key" in encoded.schema.names:
        sizes = pc.add(sizes, _lengths(encoded.column("key")))
    if "headers" in encoded.schema.names:
        sizes = pc.add(sizes, _header_bytes(encoded.column("headers")))
    found = pc.max(sizes).as_py() or 0
    if found > largest:
        raise SinkError(
            f"a message of {found} bytes is too large; raise max.message.bytes of the topic, and message.max.bytes in "
            "options="
        )


def _lengths(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(texts), 0)


def _header_bytes(headers: pa.Array) -> pa.Array:
    """Return the bytes of the headers of each message."""
    names, values = headers.flatten().flatten()
    each = np.asarray(pc.add(pc.add(_lengths(names), _lengths(values)), _HEADER_BYTES), np.int64)
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0), np.int64)
    messages = np.repeat(np.arange(len(headers)), counts)
    return pa.array(np.bincount(messages, each, len(headers)).astype(np.int64))
