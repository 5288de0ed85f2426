"""The topic `headgate-commits`: it records which checkpoints of which runs have their messages in Kafka.

The record of a run of a sink, its *marker*, is written in the same transaction as the messages. So it is there exactly
if they are. The topic is compacted: Kafka keeps the newest record of each key, and the key contains the run.
"""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from headgate.connectors.kafka.kafka_client import (
    ANSWER_TIMEOUT,
    KafkaClient,
    cause,
    failed,
    in_words,
    is_about_group,
    kafka_library,
)
from headgate.connectors.kafka.kafka_offsets import Offsets, has_failed, partitions_of
from headgate.errors import SinkError, SourceError
from headgate.state import shapes

TOPIC: Final = "headgate-commits"
#: Small segments: Kafka compacts only those that are full, and a program that resumes reads the whole partition.
_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20), "segment.ms": str(3_600_000)}
#: The partitions of a topic that Headgate makes.
PARTITIONS: Final = 4
#: The most programs of a run that a marker remembers.
_MOST_CLAIMS: Final = 100
#: Seconds between two looks for the new topic.
_LOOK: Final = 0.05
#: Seconds to wait for the end of other jobs' transactions: above the usual transaction.timeout.ms of one minute.
_OTHERS_TIMEOUT: Final = 90.0
_MARKER: Final = shapes.fields({"claims": shapes.items(shapes.row(shapes.count, shapes.text, shapes.count))})


@dataclass(frozen=True, slots=True)
class Claimed:
    """A program that has claimed the run: its epoch, its own run, and its last checkpoint whose messages are in Kafka,
    or 0."""

    epoch: int
    run: str
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Marker:
    """What Kafka has of one run of a sink: the programs that claimed it, in order.

    Checkpoints of one program are in the order of their numbers. A later program continued from a checkpoint of an
    earlier one, and only the newest program produces.
    """

    claims: tuple[Claimed, ...] = ()

    @property
    def newest(self) -> Claimed | None:
        """The program that owns the run."""
        return self.claims[-1] if self.claims else None

    def claimed(self, epoch: int, run: str, resumed: str = "") -> Marker:
        """Return the marker after a program's claim. `resumed` is the run of the program that took the checkpoint from
        which this one continues: the marker keeps its claim, although other claims may follow it."""
        dropped = self.claims[: 1 - _MOST_CLAIMS]
        kept = [each for each in dropped if each.run == resumed]
        return Marker((*kept, *self.claims[len(dropped) :], Claimed(epoch, run)))

    def with_checkpoint(self, run: str, checkpoint: int) -> Marker:
        """Return the marker after the commit of a checkpoint that the program `run` took."""
        return Marker(tuple(replace(each, checkpoint=checkpoint) if each.run == run else each for each in self.claims))

    def has(self, run: str, checkpoint: int) -> bool:
        """Return whether the messages of a checkpoint of the program `run` are in Kafka. Raises KeyError if the marker
        cannot tell."""
        return self._of(run)[1].checkpoint >= checkpoint

    def after(self, run: str, checkpoint: int) -> int:
        """Return the last checkpoint in Kafka after `checkpoint` of the program `run`, or 0. Raises KeyError if the
        marker cannot tell."""
        place, claim = self._of(run)
        later = [each.checkpoint for each in self.claims[place + 1 :] if each.checkpoint]
        return later[-1] if later else claim.checkpoint if claim.checkpoint > checkpoint else 0

    def _of(self, run: str) -> tuple[int, Claimed]:
        return {each.run: (place, each) for place, each in enumerate(self.claims)}[run]

    def as_bytes(self) -> bytes:
        """Return the marker as the value of a record."""
        claims = [[each.epoch, each.run, each.checkpoint] for each in self.claims]
        return json.dumps({"claims": claims}, separators=(",", ":")).encode()

    @staticmethod
    def of(value: bytes | None) -> Marker | None:
        """Return the marker in the value of a record; None for a deleted one. Raises ValueError."""
        if value is None:
            return None
        values = json.loads(value)
        _MARKER(values, "the marker")
        return Marker(tuple(Claimed(*claim) for claim in values["claims"]))


class CommitsTopic:
    """The topic on the brokers of a sink. Methods raise SinkError."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    def partition_for(self, run: str) -> int:
        """Return the partition for the records of a new run. Make the topic if it is missing.

        The checkpoints keep this number, since the topic may get more partitions later.
        """
        count = self._partitions()
        if not count:
            self._make()
            deadline = time.monotonic() + ANSWER_TIMEOUT
            while not (count := self._partitions()):
                if time.monotonic() > deadline:
                    raise SinkError(f"topic {TOPIC!r}: was made, but brokers do not show it after {ANSWER_TIMEOUT:g} s")
                time.sleep(_LOOK)
        else:
            self._check_policy()
        return zlib.crc32(run.encode()) % count

    def _partitions(self) -> int:
        """Return the number of partitions, or 0 if there is no topic."""
        told: list[Any] = []
        consumer = self._client.consumer(told.append, group_id="headgate")
        try:
            return len(partitions_of(consumer, [TOPIC], has_failed(consumer, told)))
        except SourceError as error:
            if "UNKNOWN_TOPIC" in error.message:
                return 0
            raise SinkError(error.message) from None
        except kafka_library().KafkaException as error:
            raise failed(SinkError, f"topic {TOPIC!r}", cause(error, consumer, told)) from None
        finally:
            consumer.close()

    def _make(self) -> None:
        library = kafka_library()
        new = import_module("confluent_kafka.admin").NewTopic(TOPIC, PARTITIONS, config=_CONFIG)
        client = self._client.admin()  # without a reference, it would end before the answer
        try:
            client.create_topics([new], request_timeout=ANSWER_TIMEOUT)[TOPIC].result(ANSWER_TIMEOUT)
        except library.KafkaException as error:
            if error.args[0].code() != library.KafkaError.TOPIC_ALREADY_EXISTS:  # another job made it meanwhile
                raise SinkError(
                    f"topic {TOPIC!r}, which exactly-once results need, cannot be made: {in_words(error)}. Make it "
                    "with cleanup.policy=compact, or give guarantee='at-least-once'"
                ) from None

    def _check_policy(self) -> None:
        """Raise SinkError if Kafka removes old records of the topic. Without the right to ask, trust the topic."""
        policy = self._client.topic_options(TOPIC).get("cleanup.policy", "")
        if "delete" in policy:
            raise SinkError(
                f"topic {TOPIC!r}: has cleanup.policy={policy}, so Kafka would forget what is committed; set "
                "cleanup.policy=compact"
            )

    def read(self, run: str, partition: int, wait: bool) -> Marker | None:
        """Return the newest marker of a run, or None if there is none.

        Records behind another job's open transaction cannot be read. With `wait`, wait for the end of that transaction.
        """
        offsets = Offsets(self._client, read_committed=False)
        try:
            end = offsets.latest([(TOPIC, partition)])[TOPIC, partition]
        except SourceError as error:
            raise SinkError(error.message) from None
        if not end:
            return None
        try:
            return Marker.of(self._last_value(run.encode(), partition, end, wait))
        except ValueError as error:
            raise SinkError(f"topic {TOPIC!r}[{partition}]: the record of run {run} is damaged: {error}") from None

    def _last_value(self, key: bytes, partition: int, end: int, wait: bool) -> bytes | None:
        """Return the value of the last record with a key before the offset `end`."""
        library = kafka_library()
        consumer = self._client.consumer(
            lambda error: None, group_id="headgate", enable_auto_commit=False, enable_partition_eof=True,
            fetch_wait_max_ms=10, isolation_level="read_committed", auto_offset_reset="earliest",
        )  # fmt: skip
        found: bytes | None = None
        deadline = time.monotonic() + _OTHERS_TIMEOUT
        try:
            consumer.assign([library.TopicPartition(TOPIC, partition, 0)])  # OFFSET_BEGINNING takes 0.5 s more
            while time.monotonic() < deadline:
                for message in consumer.consume(1000, _LOOK):
                    error = message.error()
                    if error is None:
                        found = message.value() if message.key() == key else found
                    elif error.code() == library.KafkaError._PARTITION_EOF:
                        if not wait or (message.offset() or 0) >= end:
                            return found
                    elif not is_about_group(error):
                        raise failed(SinkError, f"topic {TOPIC!r}[{partition}]", error)
        except library.KafkaException as error:
            raise failed(SinkError, f"topic {TOPIC!r}[{partition}]", error) from None
        finally:
            consumer.close()
        raise SinkError(
            f"topic {TOPIC!r}[{partition}]: cannot be read to its end at offset {end} within {_OTHERS_TIMEOUT:g} s: "
            "another job left a transaction open there. Its transaction.timeout.ms ends it"
        )
