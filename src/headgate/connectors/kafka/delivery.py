"""`Delivery`: gives messages to a producer of librdkafka in order, and waits for room, and for the brokers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import length_hint
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
#: The most messages that are given to a producer between two looks for errors.
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
        #: The error of a message that was not delivered, or of the producer.
        self.failure: Any = None
        self.producer: Any = client.producer(self._fail, on_delivery=self._on_delivery, **SETTINGS, **own)

    def give(self, encoded: pa.RecordBatch) -> None:
        """Give the producer the messages of a batch that `Messages.encoded` made."""
        produce = self._produce_by(encoded.schema.names)
        for begin in range(0, encoded.num_rows, _MOST_GIVEN):
            left = [_objects(column) for column in encoded.slice(begin, _MOST_GIVEN).columns]
            take = partial(self._take, produce, left)
            if not take():
                self._wait_until(take)
        self._look()

    def _produce_by(self, names: list[str]) -> Callable[..., None]:
        """Return what produces a message from its values in the columns `names`."""
        produce: Callable[..., None] = partial(self.producer.produce, self.topic)
        if names in (["value"], ["value", "key"]):
            return produce
        return lambda *values: produce(**dict(zip(names, values, strict=True)))

    def _take(self, produce: Callable[..., None], left: list[list[Any]]) -> bool:
        """Give messages to the producer, and remove them from the columns `left`. Return whether its queue had room for
        all. There is no Python step per message without headers and a timestamp."""
        values = iter(left[0])
        try:
            deque(map(produce, values, *left[1:]), maxlen=0)
        except BufferError:
            given = len(left[0]) - length_hint(values) - 1
            left[:] = [column[given:] for column in left]
            self._look()
            return False
        except kafka_library().KafkaException as error:
            raise self._refused(left[0][-length_hint(values) - 1], error) from None
        return True

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

    def _refused(self, value: bytes | None, error: Any) -> SinkError:
        """Return the error of a message that the producer did not take. Raise the producer's own error, if it has one:
        then the message's error is only that the producer has failed."""
        if inner_of(error).code() == kafka_library().KafkaError._FATAL:
            self._look(_FLUSH_WAIT)
        return SinkError(f"topic {self.topic!r}: a message of {len(value or b'')} bytes: {in_words(error)}")

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


def _objects(column: pa.Array) -> list[Any]:
    """Return the values of a column as arguments of `Producer.produce`."""
    if pa.types.is_list(column.type):
        return [[(each["name"], each["value"]) for each in headers or ()] for headers in column.to_pylist()]
    # `to_pylist` takes several times as long, because it first makes a scalar of each value.
    objects: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return objects
