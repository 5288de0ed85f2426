"""The Kafka sink: each subtask has a producer, which has delivered all its messages when a checkpoint completes."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.connectors.kafka.kafka_client import KafkaClient, failed, in_words, kafka_library
from headgate.connectors.kafka.kafka_offsets import partitions_of
from headgate.connectors.kafka.message_encoders import Messages
from headgate.errors import SinkError, SourceError

#: Options of librdkafka that the sink sets itself.
RESERVED: Final = ("enable.idempotence", "partitioner", "delivery.report.only.error", "transactional.id", "on_delivery")
#: The most kilobytes of messages that wait in a producer. Then `write` waits.
_QUEUE_KILOBYTES: Final = 32 << 10
#: Seconds of one wait for deliveries. Between two waits the task looks whether the job is cancelled.
_FLUSH_WAIT: Final = 0.05


class KafkaSink(Sink):
    """A sink of messages of a Kafka topic; see `hg.sinks.kafka`."""

    def __init__(self, client: KafkaClient, topic: str, messages: Messages) -> None:
        self.client = client
        self.topic = topic
        self.messages = messages
        client.producer(lambda error: None, **_settings())  # a wrong option is refused here

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check the rows, and that the topic exists. Raises PlanError and SinkError."""
        self.messages.check(schema)
        consumer = self.client.consumer(lambda error: None, group_id="headgate")
        try:
            partitions_of(consumer, [self.topic])
        except SourceError as error:
            raise SinkError(error.message.replace("topics=", "topic=")) from None
        except kafka_library().KafkaException as error:
            raise failed(SinkError, f"topic {self.topic!r}", error) from None
        finally:
            consumer.close()

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer with a producer of its own."""
        return _KafkaWriter(self, context)


class _KafkaWriter(SinkWriter):
    """Produces messages, and waits for their delivery at each checkpoint.

    While the producer's queue is full, `write` waits: this is the back-pressure of a slow broker.
    """

    def __init__(self, sink: KafkaSink, context: WriterContext) -> None:
        self._topic = sink.topic
        self._messages = sink.messages
        self._wait_until = context.wait_until
        self._failure: Any = None
        self._producer = sink.client.producer(self._fail, on_delivery=self._on_delivery, **_settings())

    def write(self, batch: pa.RecordBatch) -> None:
        for message in self._messages.of(batch):
            if not self._take(message):
                self._wait_until(partial(self._take, message))
        self._producer.poll(0)
        self._check()

    def _take(self, message: dict[str, Any]) -> bool:
        """Give a message to the producer. Return whether its queue had room."""
        try:
            self._producer.produce(self._topic, **message)
            return True
        except BufferError:
            self._producer.poll(0)
            self._check()
            return False
        except kafka_library().KafkaException as error:
            size = len(message["value"] or "")
            raise SinkError(f"topic {self._topic!r}: a message of {size} bytes: {in_words(error)}") from None

    def flush(self, checkpoint: int) -> None:
        """Wait until the brokers have all messages."""
        self._wait_until(self._is_delivered)

    def finish(self) -> None:
        """Wait until the brokers have all messages."""
        self._wait_until(self._is_delivered)

    def _is_delivered(self) -> bool:
        left = self._producer.flush(_FLUSH_WAIT)
        self._check()
        return left == 0

    def close(self) -> None:
        """Drop messages that are not delivered. After a checkpoint there are none."""
        if len(self._producer):
            self._producer.purge()
            self._producer.flush(_FLUSH_WAIT)

    def _fail(self, error: Any) -> None:
        self._failure = error

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise failed(SinkError, f"topic {self._topic!r}", self._failure)


def _settings() -> dict[str, Any]:
    """Return the options of a producer. Keys go to the same partitions as with Kafka's own producer."""
    return {
        "enable_idempotence": True,
        "partitioner": "murmur2_random",
        "delivery_report_only_error": True,
        "queue_buffering_max_kbytes": _QUEUE_KILOBYTES,
    }
