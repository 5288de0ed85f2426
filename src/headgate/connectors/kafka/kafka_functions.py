"""The functions `hg.sources.kafka` and `hg.sinks.kafka`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.connectors.arguments import FLAG, TEXT, TEXT_OR_NONE, check, check_texts
from headgate.connectors.connector import Sink, Source
from headgate.connectors.kafka.delivery import RESERVED as SINK_RESERVED
from headgate.connectors.kafka.formats import Avro, Format, decoder, encoder
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_offsets import Start, Stop
from headgate.connectors.kafka.kafka_sink import Guarantee, KafkaSink
from headgate.connectors.kafka.kafka_source import RESERVED, KafkaSource
from headgate.connectors.kafka.message_columns import MessageColumns
from headgate.connectors.kafka.message_encoders import Messages
from headgate.errors import ConfigError
from headgate.quantities import seconds, size


def source(
    servers: str,
    topics: str | Sequence[str],
    *,
    schema: pa.Schema | None = None,
    format: Format = "json",
    avro: Avro = None,
    registry: Avro = None,
    start: Start = "earliest",
    stop: Stop | None = None,
    group: str | None = None,
    metadata: Sequence[str] | Mapping[str, str] = (),
    read_committed: bool = True,
    discovery_interval: float | str = "1 min",
    fetch_bytes: int | str = "16 mb",
    options: Mapping[str, Any] | None = None,
) -> Source:
    """Read the messages of Kafka topics. See docs/how-to/kafka.md.

    `servers` are brokers as `host:port`, separated by commas. In `format` "json", each message is one JSON object,
    whose members are columns of `schema`. In "avro", each message is one record. Its schema is `avro` (a dict or JSON
    text), or one in the schema `registry`. `registry` is a URL, or a dict of the options of
    `confluent_kafka.schema_registry.SchemaRegistryClient`. In "arrow", a message is an Arrow IPC stream of rows of
    `schema`. In "raw", rows have the message's value in the column `value binary`. `metadata` adds columns: a list of
    some of `key`, `timestamp`, `headers`, `topic`, `partition` and `offset`, or a dict of these with the names of the
    columns.

    Partitions are divided among the subtasks. Each partition has its own watermark. Positions are kept in checkpoints,
    so each message is read once, also after a failure. `start` counts only if the job does not resume: "earliest",
    "latest", "group" (the offsets of `group`), a datetime, or offsets such as `{("orders", 0): 17}`. A partition about
    which `start` says nothing begins at its first message, as do partitions that are added later: the source looks for
    them every `discovery_interval`. With `stop` ("latest", a datetime or offsets), the input is bounded: each partition
    ends there. A partition about which `stop` says nothing is read to the end that it has when the job starts. With
    `group`, offsets are committed after each checkpoint, for tools that show the lag.

    With `read_committed`, messages of open or aborted transactions are not read. Fetching stops when `fetch_bytes` of
    a subtask wait. `options` are those of librdkafka, for example for TLS and SASL.

    If the job reads the stream's `side_output("bad")`, messages that cannot be decoded go there and do not fail the
    job. They have the columns `topic, partition, offset, key, value, error`.

    Raises ConfigError for impossible arguments, and without the package confluent-kafka. When the job starts, raises
    SourceError if no broker answers, or a topic does not exist. While it runs, raises SourceError for a message that
    cannot be decoded, for a deleted topic, and if a topic no longer has the message at a position.

    >>> orders = hg.sources.kafka("localhost:9092", "orders", schema=pa.schema({"id": pa.int64()}), metadata=["key"])
    >>> orders.schema.names
    ['id', 'key']
    """
    names = [topics] if isinstance(topics, str) else topics
    check_texts(topics=names)
    if not names or not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"kafka: topics={topics!r} must name one or more topics, none twice")
    check(FLAG, read_committed=read_committed)
    check(TEXT_OR_NONE, group=group)
    if group == "":
        raise ConfigError("kafka: group='' must be a name, or None")
    interval, most = _limits(discovery_interval, fetch_bytes)
    return KafkaSource(
        KafkaClient.checked("kafka", servers, options, RESERVED),
        names,
        decoder(format, schema, avro, registry),
        MessageColumns(metadata),
        start=start,
        stop=stop,
        group=group,
        read_committed=read_committed,
        discovery_interval=interval,
        fetch_bytes=most,
    )


def _limits(discovery_interval: float | str, fetch_bytes: int | str) -> tuple[float, int]:
    """Return the arguments as seconds and bytes. Raises ConfigError."""
    try:
        interval, most = seconds(discovery_interval), size(fetch_bytes)
    except ConfigError as error:
        raise ConfigError(f"kafka: {error.message}") from None
    if interval <= 0 or most < 1024:
        raise ConfigError("kafka: discovery_interval= must be above 0, and fetch_bytes= at least '1 kb'")
    return interval, most


def sink(
    servers: str,
    topic: str,
    *,
    format: Format = "json",
    avro: Avro = None,
    registry: Avro = None,
    key: str | None = None,
    headers: str | None = None,
    timestamp: str | None = None,
    guarantee: Guarantee | None = None,
    options: Mapping[str, Any] | None = None,
) -> Sink:
    """Write rows as messages of a Kafka topic, each exactly once in jobs with checkpoints. See docs/how-to/kafka.md.

    In `format` "json", each row becomes a JSON object. In "avro", it becomes a record of the schema `avro`, which the
    job registers in the schema `registry`, if there is one, as `topic-value`. In "raw", the column `value` is the
    message's value. In "arrow", the rows of a batch become an Arrow IPC stream of at most about 500 kB. `key`,
    `headers` and `timestamp` name columns. Messages with the same key go to the same partition, the one that Kafka's
    own producer chooses. A key is text, binary, or a whole number, which becomes text. `headers` is a list of structs
    of `name` and `value`, as in the source's `metadata`. Without `timestamp`, a message has the time at which it was
    produced. Its value leaves out the columns of `headers` and `timestamp`.

    With `guarantee` "exactly-once", the default in jobs with checkpoints, readers with `read_committed` see each row
    once. The rows of a checkpoint are staged beside the checkpoint. When it is complete, the driver writes them in one
    Kafka transaction, with a record in the topic `headgate-commits`, which the sink makes if it is missing. So a row is
    visible after the next checkpoint. With "at-least-once", the default without checkpoints, messages are visible at
    once. At each checkpoint, the sink waits until the brokers have all messages before it. So no row is lost, but after
    a failure the rows after the last checkpoint are written again.

    The producer is idempotent: a lost connection repeats no message. If the brokers are slower than the job, at most
    32 MiB of a subtask wait, then the job waits. With "exactly-once", each subtask stages at most 64 MiB while the
    driver writes the rows before, then the job waits. `options` are those of librdkafka, for example
    `{"compression.type": "zstd"}`.

    Raises ConfigError for impossible arguments, and without the package confluent-kafka. When the job starts, raises
    PlanError for columns that cannot be written and for a compacted topic without `key`, and SinkError if no broker
    answers or the topic does not exist. While it runs, raises SinkError for a message that is too large, for one whose
    time is too far from the clock for the topic, and for one without a key in a compacted topic. Also raises it for a
    message that is not delivered within `message.timeout.ms` (5 minutes by default), and for a transaction that takes
    longer than `transaction.timeout.ms` (one minute by default).

    >>> env = hg.StreamEnvironment()
    >>> rows = env.from_source(hg.sources.iterable([{"city": "Rome", "km": 7}]))
    >>> sink = rows.sink_to(hg.sinks.kafka("localhost:9092", "trips", key="city"))
    """
    check(TEXT, topic=topic)
    check(TEXT_OR_NONE, key=key, headers=headers, timestamp=timestamp)
    if not topic:
        raise ConfigError("kafka: topic='' must be a name")
    if guarantee not in (None, "exactly-once", "at-least-once"):
        raise ConfigError(f"kafka: guarantee={guarantee!r} is not one of 'exactly-once', 'at-least-once'")
    client = KafkaClient.checked("kafka", servers, options, SINK_RESERVED)
    messages = Messages(encoder(format, topic, avro, registry), key, headers, timestamp)
    return KafkaSink(client, topic, messages, guarantee)
