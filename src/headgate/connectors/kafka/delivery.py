"""`Delivery`: gives messages to a producer of librdkafka in order, and waits for room, and for the brokers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.connectors.kafka.kafka_client import KafkaClient, failed, in_words, inner_of, kafka_library
from headgate.errors import SinkError

#: Waits until a condition is true.
WaitUntil: TypeAlias = Callable[[Callable[[], bool]], None]
#: Options of librdkafka that the sink sets itself.
RESERVED: Final = (
    "auto.offset.reset", "delivery.report.only.error", "enable.auto.commit", "enable.idempotence",
    "enable.partition.eof", "group.id", "isolation.level", "on_delivery", "partitioner", "transactional.id",
)  # fmt: skip
#: The most kilobytes of messages that wait in a producer. While it has so many, `give` waits.
_QUEUE_KILOBYTES: Final = 32 << 10
#: librdkafka's option for the most messages that wait in a producer, and its default.
_MOST_QUEUED_OPTION: Final = "queue.buffering.max.messages"
_MOST_QUEUED: Final = 100_000
#: The most messages that a producer takes in one call.
_MOST_GIVEN: Final = 5_000
#: Seconds between two looks for room in the queue.
_LOOK: Final = 0.001
#: Seconds of one wait for deliveries or errors. Between two waits the caller looks whether it must end.
_FLUSH_WAIT: Final = 0.05


class Delivery:
    """A producer of messages of one topic. `own` are further options, with `_` for the dots of their names.

    Keys go to the same partitions as with Kafka's own producer. While the producer's queue is full, `give` waits: this
    is the back-pressure of slow brokers. Methods raise SinkError for a message that is not delivered.
    """

    def __init__(self, client: KafkaClient, topic: str, wait_until: WaitUntil, **own: Any) -> None:
        self.topic = topic
        self._wait_until = wait_until
        #: The most messages that wait in the producer. 0 in the options: any number.
        self._most_queued = int(client.options.get(_MOST_QUEUED_OPTION, _MOST_QUEUED)) or sys.maxsize
        #: The error of a message that was not delivered, or of the producer.
        self.failure: Any = None
        self.producer: Any = client.producer(self._fail, on_delivery=self._on_delivery, **SETTINGS, **own)

    def give(self, encoded: pa.RecordBatch) -> None:
        """Give the producer the messages of a batch that `Messages.encoded` made."""
        is_single = "headers" in encoded.schema.names or "timestamp" in encoded.schema.names
        produce = self._produce_singly if is_single else self._produce
        for begin in range(0, encoded.num_rows, _MOST_GIVEN):
            left = _as_arguments(encoded.slice(begin, _MOST_GIVEN))
            take = partial(self._take, produce, left)
            if not take():
                self._wait_until(take)
        self._look()

    def _take(self, produce: Callable[[list[dict[str, Any]]], int], left: list[dict[str, Any]]) -> bool:
        """Give messages to the producer, and remove them from `left`. Return whether its queue had room for all.

        The library makes an error object for each message for which there is no room. So the producer gets no more
        messages than fit by their number; it may refuse some because of their bytes.
        """
        if (room := self._most_queued - len(self.producer)) > 0:
            del left[: produce(left[:room])]
        if not left:
            return True
        self._look()
        return False

    def _look(self, wait: float = 0.0) -> None:
        """Let the producer run its callbacks, and wait up to `wait` seconds for one. Raise the error that one of them
        reports."""
        with self._fatal_errors():
            self.producer.poll(wait)
        self.check()

    @contextmanager
    def _fatal_errors(self) -> Iterator[None]:
        """Record an error after which the producer cannot continue. The library raises it in the next call."""
        try:
            yield
        except kafka_library().KafkaException as error:
            self._fail(error.args[0])

    def _produce(self, messages: list[dict[str, Any]]) -> int:
        """Produce messages, and return how many the producer took before its queue was full."""
        if self.producer.produce_batch(self.topic, messages) == len(messages):
            return len(messages)
        errors = [message.pop("_error", None) for message in messages]
        for number, error in enumerate(errors):
            if error is not None:
                if error.code() != kafka_library().KafkaError._QUEUE_FULL:
                    raise self._refused(messages[number], error)
                return number
        return len(messages)

    def _produce_singly(self, messages: list[dict[str, Any]]) -> int:
        """Do the same as `_produce` for messages with headers or timestamps, which go only one by one."""
        for number, message in enumerate(messages):
            try:
                self.producer.produce(self.topic, **message)
            except BufferError:
                return number
            except kafka_library().KafkaException as error:
                raise self._refused(message, error) from None
        return len(messages)

    def _refused(self, message: dict[str, Any], error: Any) -> SinkError:
        """Return the error of a message that the producer did not take. Raise the producer's own error, if it has one:
        then the message's error is only that the producer has failed."""
        if inner_of(error).code() == kafka_library().KafkaError._FATAL:
            self._look(_FLUSH_WAIT)
        size = len(message["value"] or "")
        return SinkError(f"topic {self.topic!r}: a message of {size} bytes: {in_words(error)}")

    def wait(self) -> None:
        """Wait until the brokers have all messages."""
        self._wait_until(self._is_delivered)

    def _is_delivered(self) -> bool:
        left = 0
        with self._fatal_errors():
            left = self.producer.flush(_FLUSH_WAIT)
        self.check()
        return bool(left == 0)

    def close(self) -> None:
        """Drop messages that are not delivered, and the producer."""
        producer, self.producer = self.producer, None
        if producer is not None and len(producer):
            with self._fatal_errors():
                producer.purge()
                producer.flush(_FLUSH_WAIT)

    def check(self) -> None:
        """Raise the error of a message that was not delivered, or of the producer."""
        if self.failure is not None:
            raise failed(SinkError, f"topic {self.topic!r}", self.failure)

    def _fail(self, error: Any) -> None:
        self.failure = error

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None and self.failure is None:
            self.failure = error


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for a condition of a producer. The wait ends, because the producer fails messages that take too long."""
    while not condition():
        time.sleep(_LOOK)


#: The options of each producer.
SETTINGS: Final = {
    "enable_idempotence": True,
    "partitioner": "murmur2_random",
    "delivery_report_only_error": True,
    "queue_buffering_max_kbytes": _QUEUE_KILOBYTES,
}


def _as_arguments(encoded: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the arguments of `Producer.produce` for each message."""
    names = encoded.schema.names
    columns = [_objects(column) for column in encoded.columns]
    if names == ["value"]:
        return [{"value": value} for value in columns[0]]
    if names == ["value", "key"]:
        return [{"value": value, "key": key} for value, key in zip(*columns, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _objects(column: pa.Array) -> list[Any]:
    """Return the values of a column as arguments of `Producer.produce`."""
    if pa.types.is_list(column.type):
        return [[(each["name"], each["value"]) for each in headers or ()] for headers in column.to_pylist()]
    # `to_pylist` takes several times as long, because it first makes a scalar of each value.
    objects: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return objects
