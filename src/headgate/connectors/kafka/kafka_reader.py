"""The part of the Kafka source that runs in one subtask: a thread fetches and decodes, the task takes the batches."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.connectors.connector import ReaderContext, SourceReader
from headgate.connectors.fetcher import Fetcher
from headgate.connectors.kafka.kafka_client import in_words, is_about_group, kafka_library
from headgate.connectors.kafka.kafka_offsets import SLICE, Partition, partitions_of
from headgate.connectors.kafka.message_columns import BAD, MessageColumns, as_bad
from headgate.connectors.kafka.message_decoders import MessageDecoder
from headgate.connectors.kafka.partition_ends import PartitionEnds
from headgate.errors import SourceError

log = logging.getLogger(__name__)

#: The most messages of a batch.
_MOST_MESSAGES: Final = 10_000
#: About the most bytes of a batch's values.
_MOST_BYTES: Final = 4 << 20
#: Seconds that the thread waits for a first message before it looks whether it must end.
_FIRST_WAIT: Final = 0.1
#: Seconds that a message waits for others of its batch.
_BATCH_TIME: Final = 0.005
#: Milliseconds between two looks of librdkafka whether its queue has room again. Its default is a second.
_QUEUE_LOOK: Final = 10
#: Milliseconds for which brokers may keep a request that they cannot answer yet.
_FETCH_WAIT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What readers read, and how. The driver has resolved where partitions start and stop.

    `consumer` makes a consumer. Its first argument is called with an error that no retry mends.
    """

    topics: Sequence[str]
    starts: Mapping[Partition, int]
    #: None: the topics are read without end.
    stops: Mapping[Partition, int] | None
    consumer: Callable[..., Any]
    ends: PartitionEnds
    decoder: MessageDecoder
    columns: MessageColumns
    #: The schema of the batches: the decoder's schema with `columns`.
    schema: pa.Schema
    commits_offsets: bool
    discovery_interval: float
    fetch_bytes: int


@dataclass(slots=True)
class _Fetched:
    """What one fetch brought: rows and bad messages, and how far it has read."""

    rows: pa.RecordBatch
    bad: pa.RecordBatch | None = None
    #: For each partition with news: the offset of the next message.
    offsets: dict[Partition, int] = field(default_factory=dict)
    rows_by_partition: Sequence[tuple[Partition, int]] = ()
    #: Partitions that are read to their `stop`.
    ended: Sequence[Partition] = ()

    @property
    def num_rows(self) -> int:
        return 1  # the fetcher drops items without rows, but news without rows count


class KafkaReader(SourceReader):
    """The reader of one subtask's partitions. All of them are open at the same time.

    A topic's first partition goes to a subtask that depends on the topic's name, and the next ones to the subtasks
    after it. So every subtask knows its partitions without asking the others, also partitions that are found later.
    """

    def __init__(self, reading: Reading, context: ReaderContext) -> None:
        self._context = context
        self._has_bad_output = BAD in context.sides
        positions = {(topic, number): offset for rows in context.positions or () for topic, number, offset in rows}
        begin = reading.starts if context.positions is None else {**reading.starts, **positions}
        self._offsets = {each: offset for each, offset in begin.items() if is_mine(each, context)}
        self._commits_offsets = reading.commits_offsets
        self._ends = reading.ends
        self._stops = reading.stops
        self._numbers: dict[Partition, int] = {}
        stops = reading.stops
        self._open = {each for each, at in self._offsets.items() if stops is None or at < stops.get(each, 0)}
        self._is_bounded = stops is not None
        self._update()
        open_offsets = {each: self._offsets[each] for each in self._open}
        fetching = _Fetching(reading, context, open_offsets, dict(self._offsets))
        self._fetching = fetching
        name = f"headgate-fetcher-{context.operator}[{context.subtask}]"
        self._fetcher = Fetcher(name, fetching.fetches, context.wake)

    def read(self) -> pa.RecordBatch | None:
        fetched = self._fetcher.take()
        if fetched is None:
            self.finished = self._is_bounded and not self._open
            return None
        if fetched.bad is not None:
            self._context.sides[BAD](fetched.bad)
        self._open |= fetched.offsets.keys() - self._offsets.keys()
        self._open -= set(fetched.ended)
        self._offsets |= fetched.offsets
        self._update()
        self.rows_by_split = [(self._numbers[each], rows) for each, rows in fetched.rows_by_partition]
        return fetched.rows

    def _update(self) -> None:
        for partition in self._offsets:
            self._numbers.setdefault(partition, len(self._numbers))
        self.open_splits = [self._numbers[each] for each in self._open]
        self.has_split = bool(self._open)

    def pause_splits(self, splits: Collection[int]) -> None:
        """Let the consumer pause these partitions. Batches that it has already returned are still read."""
        partitions = list(self._numbers)
        self._fetching.paused = frozenset(partitions[split] for split in splits)

    def split_key(self, split: int) -> str:
        """Return the topic and the number of a partition."""
        topic, number = list(self._numbers)[split]
        return f"{topic}[{number}]"

    def position(self) -> Any:
        """Return the offset of the next message of each partition."""
        return [[topic, number, offset] for (topic, number), offset in self._offsets.items()]

    def to_commit(self) -> Any:
        """Return the position, as the group's offsets. Return None if there is no group."""
        return self.position() if self._commits_offsets and self._offsets else None

    def unread(self) -> Mapping[str, int]:
        """Return the end of each partition minus the position. Transactions end with a message that readers never see,
        which counts until it is passed."""
        positions, ends = dict(self._offsets), self._ends.of(self._offsets)
        found = {}
        for (topic, number), end in ends.items():
            last = end if self._stops is None else min(end, self._stops.get((topic, number), end))
            found[f"{topic}[{number}]"] = max(0, last - positions.get((topic, number), last))
        return found

    def split_name(self) -> str:
        """Return the partitions that are open."""
        return ", ".join(f"{topic}[{number}]" for topic, number in sorted(self._open)) or "no partition"

    def close(self) -> None:
        """End the thread, which closes the consumer."""
        self._ends.close()
        self._fetching.is_closing.set()
        self._fetcher.close()

    def is_stuck(self) -> bool:
        return self._fetcher.is_stuck


class _Fetching:
    """What the fetcher's thread does. Only this thread uses the consumer.

    Back-pressure: while the task takes no batch, the thread waits for room, and calls the consumer no more. Then
    librdkafka's queue fills up to `fetch_bytes`, and it sends no more fetch requests.
    """

    def __init__(self, reading: Reading, context: ReaderContext, offsets: dict[Partition, int],
                 known: dict[Partition, int]) -> None:  # fmt: skip
        self.is_closing = threading.Event()
        #: The partitions that the consumer must not read now. The task's thread sets it.
        self.paused: frozenset[Partition] = frozenset()
        self._are_paused: frozenset[Partition] = frozenset()
        self._reading = reading
        self._context = context
        self._offsets = offsets
        self._known = known
        self._has_bad_output = BAD in context.sides
        self._no_rows = pa.RecordBatch.from_pylist([], reading.schema)
        self._error: Any = None
        self._value_bytes = 100.0  # of the last batch, on average
        self._topics = {topic: number for number, topic in enumerate(reading.topics)}

    def fetches(self) -> Iterator[_Fetched]:
        """Yield what the consumer brings until the reader is closed, or all partitions are read to their stop."""
        library = kafka_library()
        if self._reading.stops is not None and not self._offsets:
            return
        consumer = self._reading.consumer(self._fail, **fetch_options(self._reading.fetch_bytes))
        try:
            self._assign(consumer, self._offsets)
            discover_at = time.monotonic() + self._reading.discovery_interval
            while not self.is_closing.is_set() and (self._offsets or self._reading.stops is None):
                if time.monotonic() >= discover_at:
                    yield from self._discover(consumer)
                    discover_at = time.monotonic() + self._reading.discovery_interval
                self._pause(consumer)
                messages = self._consume(consumer)
                if self._error is not None:
                    raise SourceError(in_words(self._error))
                if messages:
                    yield self._fetched(consumer, messages)
        except library.KafkaException as error:
            raise SourceError(in_words(error)) from None
        finally:
            consumer.close()

    def _fail(self, error: Any) -> None:
        self._error = error

    def _assign(self, consumer: Any, offsets: dict[Partition, int]) -> None:
        library = kafka_library()
        consumer.assign([library.TopicPartition(topic, number, at) for (topic, number), at in offsets.items()])

    def _pause(self, consumer: Any) -> None:
        """Let the consumer pause the partitions in `paused`, and read the others."""
        before, self._are_paused = self._are_paused, self.paused & self._offsets.keys()
        for change, partitions in (
            (consumer.pause, self._are_paused - before),
            (consumer.resume, (before - self._are_paused) & self._offsets.keys()),
        ):
            if partitions:
                change([kafka_library().TopicPartition(*each) for each in partitions])

    def _consume(self, consumer: Any) -> list[Any]:
        """Wait for a message, and take it with those that have come, or come within the batch time."""
        first = consumer.poll(_FIRST_WAIT)
        if first is None:
            return []
        most = int(min(_MOST_MESSAGES, max(1, _MOST_BYTES // self._value_bytes)))
        return [first, *consumer.consume(most - 1, _BATCH_TIME)] if most > 1 else [first]

    def _fetched(self, consumer: Any, messages: list[Any]) -> _Fetched:
        events = [message for message in messages if message.error() is not None]
        if events:
            messages = [message for message in messages if message.error() is None]
        offsets, runs = self._places(messages)
        stops = self._reading.stops
        if stops is not None and any(at > stops[each] for each, at in offsets.items()):
            messages = [each for each in messages if each.offset() < stops[_place(each)]]
            _, runs = self._places(messages)
        values = [message.value() for message in messages]
        if values:
            self._value_bytes = max(1.0, sum(map(len, filter(None, values))) / len(values))
        rows, counts, bad = self._decode(messages, values)
        for event in events:
            self._take_event(event, offsets)
        if stops is not None:  # what lies behind the stop is unread, also for the group
            offsets = {each: min(at, stops[each]) for each, at in offsets.items()}
        self._offsets |= {each: at for each, at in offsets.items() if each in self._offsets}
        ended = self._end_partitions(consumer)
        by_partition, begin = [], 0
        for partition, count in runs:
            total = count if counts is None else int(counts[begin : begin + count].sum())
            begin += count
            by_partition.append((partition, total))
        return _Fetched(rows, bad, offsets, by_partition, ended)

    def _places(self, messages: list[Any]) -> tuple[dict[Partition, int], list[tuple[Partition, int]]]:
        """Return the next offset of each partition, and the runs of messages of one partition, in order."""
        if not messages:
            return {}, []
        first, place = _place(messages[0]), _place(messages[-1])
        if len(self._offsets) == 1 and first == place:  # no other partition is read
            return {place: messages[-1].offset() + 1}, [(place, len(messages))]
        numbers = np.fromiter((message.partition() for message in messages), np.int64, len(messages))
        if len(self._topics) > 1:
            topics = self._topics
            numbers += np.fromiter((topics[message.topic()] for message in messages), np.int64, len(messages)) << 32
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(messages)]
        offsets, runs, begin = {}, [], 0
        for end in ends:
            partition = _place(messages[end - 1])
            offsets[partition] = messages[end - 1].offset() + 1
            runs.append((partition, end - begin))
            begin = end
        return offsets, runs

    def _decode(self, messages: list[Any], values: list[Any]) -> tuple[pa.RecordBatch, Any, pa.RecordBatch | None]:
        if not messages:
            return self._no_rows, None, None
        decoded = self._reading.decoder.decode(values)
        if decoded.bad and not self._has_bad_output:
            number, reason = decoded.bad[0]
            message = messages[number]
            raise SourceError(
                f"{message.topic()}[{message.partition()}]: the message at offset {message.offset()} cannot be decoded"
                f": {reason}. Give a schema= that fits, or read such messages with side_output({BAD!r})"
            )
        rows = self._reading.columns.add(decoded.rows, messages, decoded.counts, self._reading.schema)
        return rows, decoded.counts, as_bad(messages, decoded.bad) if decoded.bad else None

    def _take_event(self, event: Any, offsets: dict[Partition, int]) -> None:
        """Add the position that an event tells to the positions after the messages that came with it.

        Raises SourceError for an event that is an error.
        """
        library, error = kafka_library(), event.error()
        if is_about_group(error) and not self._reading.commits_offsets:
            return
        partition = _place(event)
        if error.code() == library.KafkaError._PARTITION_EOF:  # a message may have come after it
            offsets[partition] = max(event.offset(), offsets.get(partition, self._offsets.get(partition, 0)))
            return
        place = f"{partition[0]}[{partition[1]}]"
        if error.code() == library.KafkaError._AUTO_OFFSET_RESET:
            raise SourceError(
                f"{place}: the topic no longer has the message at offset {self._offsets.get(partition)}, where reading "
                f"should continue ({error.str()}): it was deleted before the job read it. Raise retention.ms of the "
                "topic, or start without resume, from start='earliest'"
            )
        raise SourceError(f"{place}: {in_words(error)}")

    def _end_partitions(self, consumer: Any) -> list[Partition]:
        """Stop reading the partitions that are read to their stop, and return them."""
        stops = self._reading.stops
        ended = [] if stops is None else [each for each, at in self._offsets.items() if at >= stops[each]]
        if ended:
            library = kafka_library()
            for partition in ended:
                del self._offsets[partition]
            consumer.incremental_unassign([library.TopicPartition(*partition) for partition in ended])
        return ended

    def _pause_unless_closing(self) -> bool:
        """Pause a little between two questions, and return whether the reader is being closed."""
        return self.is_closing.wait(SLICE / 10)

    def _discover(self, consumer: Any) -> Iterator[_Fetched]:
        """Read new partitions from their first message on. Raises SourceError if a topic was deleted."""
        library, new = kafka_library(), {}
        try:
            for topic, number in partitions_of(consumer, self._reading.topics, self._pause_unless_closing):
                if (topic, number) not in self._known and is_mine((topic, number), self._context):
                    partition = library.TopicPartition(topic, number)
                    new[topic, number], _ = consumer.get_watermark_offsets(partition, timeout=SLICE)
        except library.KafkaException as error:
            log.warning("%s: new partitions are looked for later: %s", self._context.operator, in_words(error))
            return
        if new and self._reading.stops is None:
            self._known |= new
            self._offsets |= new
            consumer.incremental_assign([library.TopicPartition(*each, at) for each, at in new.items()])
            yield _Fetched(self._no_rows, offsets=new)


def _place(message: Any) -> Partition:
    return message.topic(), message.partition()


def fetch_options(fetch_bytes: int) -> dict[str, int]:
    """Return librdkafka's options for how a consumer fetches, with `_` for the dots of their names."""
    return {
        "queued_max_messages_kbytes": max(1, fetch_bytes >> 10),
        "fetch_queue_backoff_ms": _QUEUE_LOOK,
        "fetch_wait_max_ms": _FETCH_WAIT,
    }


def is_mine(partition: Partition, context: ReaderContext) -> bool:
    """Return whether the reader of this subtask has the partition."""
    topic, number = partition
    return (zlib.crc32(topic.encode()) + number) % context.parallelism == context.subtask
