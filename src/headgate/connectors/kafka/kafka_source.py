"""The driver's part of the Kafka source: it finds the partitions, and the offsets where reading starts and stops."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.kafka.kafka_client import KafkaClient, cause, failed, in_words, kafka_library
from headgate.connectors.kafka.kafka_offsets import (
    OFFSETS,
    Offsets,
    Partition,
    Start,
    Stop,
    check_places,
    has_failed,
    partitions_of,
    starts_of,
    stops_of,
)
from headgate.connectors.kafka.kafka_reader import KafkaReader, Reading
from headgate.connectors.kafka.message_columns import BAD, BAD_MESSAGES, MessageColumns
from headgate.connectors.kafka.message_decoders import MessageDecoder
from headgate.connectors.kafka.partition_ends import PartitionEnds
from headgate.errors import SourceError
from headgate.state import shapes

log = logging.getLogger(__name__)

#: Options of librdkafka that the source sets itself.
RESERVED: Final = (
    "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "group.id",
    "isolation.level", "queued.max.messages.kbytes",
)  # fmt: skip
_PREPARED: Final = shapes.fields({"starts": OFFSETS, "stops": shapes.optional(OFFSETS)})


class KafkaSource(Source):
    """A source of the messages of Kafka topics; see `hg.sources.kafka`.

    The driver resolves `start` and `stop` once. All readers, in all attempts and in programs that resume the job, use
    the same offsets.
    """

    sides = MappingProxyType({BAD: BAD_MESSAGES})

    def __init__(
        self,
        client: KafkaClient,
        topics: Sequence[str],
        decoder: MessageDecoder,
        columns: MessageColumns,
        *,
        start: Start,
        stop: Stop | None,
        group: str | None,
        read_committed: bool,
        discovery_interval: float,
        fetch_bytes: int,
    ) -> None:
        check_places(start, stop, group)
        self.client = client
        self.topics = tuple(topics)
        self.decoder = decoder
        self.columns = columns
        self.schema = columns.added_to(decoder.schema)
        self.bounded = stop is not None
        self.group = group
        self.read_committed = read_committed
        self.discovery_interval = discovery_interval
        self.fetch_bytes = fetch_bytes
        self._start = start
        self._stop = stop
        self.starts: dict[Partition, int] = {}
        self.stops: dict[Partition, int] | None = None
        self._committer: Any = None
        self.consumer().close()  # a wrong option is refused here, before a job runs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_committer": None}

    def consumer(self, fail: Any = None, **own: Any) -> Any:
        """Return a consumer that takes its offsets only from the source."""
        return self.client.consumer(
            fail or (lambda error: None),
            group_id=self.group or f"headgate-{uuid.uuid4().hex[:12]}",
            auto_offset_reset="error",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            isolation_level="read_committed" if self.read_committed else "read_uncommitted",
            **own,
        )

    def prepare(self) -> None:
        """Find the partitions, and the offsets where reading starts and stops. Raises SourceError."""
        told: list[Any] = []
        offsets, consumer = Offsets(self.client, self.read_committed), self.consumer(told.append)
        try:
            partitions = self._partitions(consumer, told)
            self.starts = starts_of(offsets, consumer, partitions, self._start)
            self.stops = None if self._stop is None else stops_of(offsets, partitions, self._stop)
        finally:
            consumer.close()

    def _partitions(self, consumer: Any, told: Sequence[Any]) -> list[Partition]:
        try:
            return partitions_of(consumer, self.topics, has_failed(consumer, told))
        except kafka_library().KafkaException as error:
            raise failed(SourceError, f"topics {', '.join(self.topics)}", cause(error, consumer, told)) from None

    def prepared(self) -> Any:
        """Return the offsets where reading starts and stops."""
        return {"starts": rows_of(self.starts), "stops": None if self.stops is None else rows_of(self.stops)}

    def restore(self, prepared: Any) -> None:
        """Start and stop where the other program did. Raises SourceError if topics are gone, or are others."""
        _PREPARED(prepared, "what the source prepared")
        self._check_topics({topic for topic, *_ in prepared["starts"]}, is_endless=prepared["stops"] is None)
        told: list[Any] = []
        consumer = self.consumer(told.append)
        self.starts = offsets_of(prepared["starts"])
        known = {topic for topic, _ in self.starts}
        try:
            new = [place for place in self._partitions(consumer, told) if place[0] not in known]
            if new:  # topics that the job has not read before
                self.starts |= Offsets(self.client, self.read_committed).earliest(new)
        finally:
            consumer.close()
        if self.bounded and prepared["stops"] is None:
            raise SourceError("the job of the checkpoint reads without end; leave stop= out, or start without resume")
        self.stops = None if prepared["stops"] is None or not self.bounded else offsets_of(prepared["stops"])

    def _check_topics(self, before: Collection[str], is_endless: bool) -> None:
        """Refuse topics other than those of the job's first program. Only an endless job may get further topics."""
        left_out, new = sorted(set(before) - set(self.topics)), sorted(set(self.topics) - set(before))
        if left_out or (new and not is_endless):
            names = ", ".join(left_out or new)
            reads = "also reads" if left_out else "ends, and does not read"
            raise SourceError(
                f"the job of the checkpoint {reads} {names}; give topics={sorted(before)}, or start without resume"
            )

    def check_position(self, position: Any) -> None:
        """Raise ValueError if `position` is not a list of topics, partitions and offsets."""
        OFFSETS(position, "the position")

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's partitions."""
        reading = Reading(
            topics=self.topics,
            starts=self.starts,
            stops=self.stops,
            consumer=self.consumer,
            ends=PartitionEnds(self.client, self.read_committed),
            decoder=self.decoder,
            columns=self.columns,
            schema=self.schema,
            commits_offsets=self.group is not None,
            discovery_interval=self.discovery_interval,
            fetch_bytes=self.fetch_bytes,
        )
        return KafkaReader(reading, context)

    def commit(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Store the offsets of the group, for tools that show how far behind the group is. The job does not need them,
        so an error is only logged."""
        library = kafka_library()
        offsets = [library.TopicPartition(topic, number, offset) for rows in pending for topic, number, offset in rows]
        try:
            if self._committer is None:
                self._committer = self.consumer()
            for answer in self._committer.commit(offsets=offsets, asynchronous=False) or ():
                if answer.error is not None:
                    raise library.KafkaException(answer.error)
        except library.KafkaException as error:
            log.warning("the offsets of group %r are not stored: %s", self.group, in_words(error))

    def release(self) -> None:
        """Close the consumer that stores the offsets of the group."""
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.close()


def rows_of(offsets: Mapping[Partition, int]) -> list[list[Any]]:
    """Return offsets as rows of JSON values."""
    return [[topic, number, offset] for (topic, number), offset in offsets.items()]


def offsets_of(rows: Sequence[Sequence[Any]]) -> dict[Partition, int]:
    """Return the offsets that `rows_of` has made into rows."""
    return {(topic, number): offset for topic, number, offset in rows}
