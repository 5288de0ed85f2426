"""Where the reading of a topic starts and stops: from what the user says to an offset for each partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

from headgate.connectors.kafka.kafka_client import (
    ANSWER_TIMEOUT,
    KafkaClient,
    failed,
    in_words,
    kafka_library,
    passes,
)
from headgate.errors import ConfigError, SourceError
from headgate.state import shapes

#: A topic and a partition.
Partition: TypeAlias = tuple[str, int]
Start: TypeAlias = Literal["earliest", "latest", "group"] | datetime | Mapping[Partition, int]
Stop: TypeAlias = Literal["latest"] | datetime | Mapping[Partition, int]
#: Seconds that brokers have for one question. A client that has lost the leader of a partition finds the new
#: leader only for the next question.
_QUESTION: Final = 5.0
#: Seconds to wait for an answer, until the next look for a reason to give up. Less than a reader has to close.
SLICE: Final = 0.5
#: Seconds until a question is asked again.
_LOOK: Final = 0.05
#: The shape of offsets in a checkpoint: rows of topic, partition and offset.
OFFSETS: Final = shapes.items(shapes.row(shapes.text, shapes.count, shapes.count))


def check_places(start: Start, stop: Stop | None, group: str | None) -> None:
    """Check the arguments `start` and `stop`. Raises ConfigError."""
    if start == "group" and group is None:
        raise ConfigError("kafka: start='group' needs group=, the consumer group whose offsets count")
    for name, place, words in (("start", start, ("earliest", "latest", "group")), ("stop", stop, ("latest",))):
        if place is None or isinstance(place, datetime) or place in words:
            continue
        if not isinstance(place, Mapping) or not all(_is_place(*entry) for entry in place.items()):
            shown = ", ".join(map(repr, words))
            raise ConfigError(
                f"kafka: {name}={place!r} must be {shown}, a datetime, or offsets by partition, such as "
                "{('orders', 0): 17}"
            )


def _is_place(partition: Any, offset: Any) -> bool:
    match partition, offset:
        case (str(), int()), int():
            return bool(partition[1] >= 0 and offset >= 0)
    return False


def partitions_of(consumer: Any, topics: Sequence[str], given_up: Callable[[], object]) -> list[Partition]:
    """Return the partitions of the topics. Raises SourceError for a topic that does not exist, and KafkaException
    without an answer. It asks again until `given_up()`, which pauses a little, is true.

    Only a consumer can ask: other clients would create a missing topic.
    """
    found = []
    for topic in topics:
        metadata = _metadata(consumer, topic, given_up).topics[topic]
        if metadata.error is not None:
            raise failed(SourceError, f"topic {topic!r}", metadata.error)
        found += [(topic, number) for number in sorted(metadata.partitions)]
    return found


def _metadata(consumer: Any, topic: str, given_up: Callable[[], object]) -> Any:
    """Return what brokers say of a topic. Raises KafkaException without an answer."""
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while True:
        try:
            return consumer.list_topics(topic, timeout=SLICE)
        except kafka_library().KafkaException:
            if given_up() or time.monotonic() > deadline:
                raise


def has_failed(consumer: Any, told: Sequence[Any]) -> Callable[[], object]:
    """Return a function that says whether a consumer that reads nothing has had a final error.

    `told` is the list to which the consumer's callback adds such errors, for example a wrong password.
    """

    def is_told() -> object:
        consumer.poll(SLICE / 10)  # serves the callback
        return told

    return is_told


class Offsets:
    """Asks the brokers for offsets. Raises SourceError if they do not answer."""

    def __init__(self, client: KafkaClient, read_committed: bool) -> None:
        self._admin = client.admin()
        self._library = import_module("confluent_kafka.admin")
        level = kafka_library().IsolationLevel
        self._isolation = level.READ_COMMITTED if read_committed else level.READ_UNCOMMITTED

    def earliest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offset of the first message that each partition still has."""
        return self._ask(partitions, self._library.OffsetSpec.earliest())

    def latest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return, for each partition, the offset after the last message that readers see."""
        return self._ask(partitions, self._library.OffsetSpec.latest())

    def at(self, partitions: Sequence[Partition], moment: datetime) -> dict[Partition, int]:
        """Return the offset of the first message with this timestamp or a later one, or the end if there is none."""
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        spec = self._library.OffsetSpec.for_timestamp(round(moment.timestamp() * 1000))
        found = self._ask(partitions, spec)
        return {**self.latest([each for each, offset in found.items() if offset < 0]), **_known(found)}

    def asked(self, partitions: Sequence[Partition], spec: Any = None) -> dict[Any, Future[Any]]:
        """Ask for the offsets that `spec` describes, by default the latest. Return the futures of the answers."""
        library, latest = kafka_library(), self._library.OffsetSpec.latest()
        wanted = {library.TopicPartition(topic, number): spec or latest for topic, number in partitions}
        futures: dict[Any, Future[Any]] = self._admin.list_offsets(
            wanted, isolation_level=self._isolation, request_timeout=_QUESTION
        )
        return futures

    def _ask(self, partitions: Sequence[Partition], spec: Any) -> dict[Partition, int]:
        """Ask, and ask again about partitions whose leader has just started or changed."""
        library, found, left = kafka_library(), {}, list(partitions)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while left:
            answers, left = self.asked(left, spec), []
            for partition, answer in answers.items():
                place = partition.topic, partition.partition
                try:
                    found[place] = int(answer.result(ANSWER_TIMEOUT).offset)
                except (library.KafkaException, TimeoutError) as error:
                    if not passes(error) or time.monotonic() > deadline:
                        raise SourceError(f"{place[0]}[{place[1]}]: {in_words(error)}") from None
                    left.append(place)
            if left:
                time.sleep(_LOOK)
        return found


def starts_of(offsets: Offsets, consumer: Any, partitions: Sequence[Partition], start: Start) -> dict[Partition, int]:
    """Return the offset of the first message to read in each partition.

    Partitions that `start` says nothing about begin at their first message.
    """
    if start == "latest":
        return offsets.latest(partitions)
    if isinstance(start, datetime):
        return offsets.at(partitions, start)
    if start == "group":
        return {**offsets.earliest(partitions), **_group_offsets(consumer, partitions)}
    given = dict(start) if isinstance(start, Mapping) else {}
    _refuse_unknown("start", given, partitions)
    return {**offsets.earliest(partitions), **given}


def stops_of(offsets: Offsets, partitions: Sequence[Partition], stop: Stop) -> dict[Partition, int]:
    """Return the offset before which reading ends in each partition: by default the partition's present end."""
    if isinstance(stop, datetime):
        return offsets.at(partitions, stop)
    given = dict(stop) if isinstance(stop, Mapping) else {}
    _refuse_unknown("stop", given, partitions)
    return {**offsets.latest(partitions), **given}


def _group_offsets(consumer: Any, partitions: Sequence[Partition]) -> dict[Partition, int]:
    library = kafka_library()
    wanted = [library.TopicPartition(topic, number) for topic, number in partitions]
    try:
        found = consumer.committed(wanted, timeout=ANSWER_TIMEOUT)
    except library.KafkaException as error:
        raise failed(SourceError, "the offsets of the group", error) from None
    return _known({(each.topic, each.partition): each.offset for each in found})


def _known(offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    return {partition: offset for partition, offset in offsets.items() if offset >= 0}


def _refuse_unknown(name: str, given: Mapping[Partition, int], partitions: Sequence[Partition]) -> None:
    for topic, number in given.keys() - set(partitions):
        raise SourceError(
            f"kafka: {name}= names partition {number} of {topic!r}, and the topics have no such partition"
        )
