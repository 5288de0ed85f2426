"""The Kafka sink: subtasks produce messages at least once, or stage them, and the driver commits them exactly once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from headgate.config import Config
from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.connectors.kafka.commits_topic import CommitsTopic
from headgate.connectors.kafka.delivery import SETTINGS, Delivery, wait_for
from headgate.connectors.kafka.kafka_client import KafkaClient, cause, failed, kafka_library
from headgate.connectors.kafka.kafka_offsets import has_failed, partitions_of
from headgate.connectors.kafka.message_encoders import Messages
from headgate.connectors.kafka.staged_messages import StagedFile, StagedMessagesWriter, StagingFolder, give_staged
from headgate.connectors.kafka.topic_limits import TopicLimits
from headgate.connectors.kafka.transactions import Transactions, forgotten, unknown
from headgate.errors import PlanError, SinkError, SourceError
from headgate.state import shapes

Guarantee: TypeAlias = Literal["exactly-once", "at-least-once"]
_PREPARED: Final = shapes.fields({"run": shapes.text, "partition": shapes.count})
_RUN: Final = re.compile("[A-Za-z0-9-]+")


class KafkaSink(Sink):
    """A sink of messages of a Kafka topic; see `hg.sinks.kafka`.

    For exactly-once results, the driver commits, not the subtasks. Readers see a checkpoint as one transaction, and
    there is nothing to hand over when the parallelism changes. All messages pass through the driver, at about the rate
    of one producer.

    `_run` names this run of the sink, for programs that resume it. If `guarantee` is None, checkpoints
    make the sink exactly-once.
    """

    def __init__(self, client: KafkaClient, topic: str, messages: Messages, guarantee: Guarantee | None) -> None:
        self.client = client
        self.topic = topic
        self.messages = messages
        self.upsert_key = None if messages.key is None else (messages.key,)
        self.takes_upserts = self.upsert_key is not None
        self._guarantee = guarantee
        self._set_guarantee(guarantee == "exactly-once")
        self._run: str | None = None
        self._partition = 0
        self._limits = TopicLimits(topic=topic)
        self._is_resumed = False
        self._folder: StagingFolder | None = None
        self._transactions: Transactions | None = None
        client.producer(lambda error: None, **SETTINGS)  # a wrong option is refused here

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transactions": None}

    def _set_guarantee(self, is_exact: bool) -> None:
        self.exactly_once = self.shows_at_commit = is_exact

    def configure(self, config: Config, spark: Any) -> None:
        """Decide the guarantee. Raises PlanError if the user wants exactly-once results without checkpoints."""
        has_checkpoints = config.checkpoint_dir is not None
        if self._guarantee == "exactly-once" and not has_checkpoints:
            raise PlanError("kafka: guarantee='exactly-once' needs checkpoints: set checkpoint_dir")
        self._set_guarantee(has_checkpoints if self._guarantee is None else self.exactly_once)

    # --- before the job starts

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check the rows, and that the topics exist. Raises PlanError and SinkError."""
        self._check(schema)
        self._run, self._is_resumed = None, False
        if self.exactly_once:
            self._run, self._partition = job, CommitsTopic(self.client).partition_for(job)

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Continue the run of another program that staged messages, also with at-least-once now."""
        _PREPARED(prepared, "what the sink prepared")
        if not _RUN.fullmatch(prepared["run"]):
            raise SinkError(f"kafka: {prepared['run']!r} is not a run of a sink; start from another checkpoint")
        self._check(schema)
        self._run, self._partition, self._is_resumed = prepared["run"], prepared["partition"], True

    def prepared(self) -> Any:
        """Return the run, and the partition of its records. Return None for at-least-once."""
        return {"run": self._run, "partition": self._partition} if self.exactly_once else None

    def _check(self, schema: pa.Schema) -> None:
        self.messages.check(schema)
        told: list[Any] = []
        consumer = self.client.consumer(told.append, group_id="headgate")
        try:
            partitions_of(consumer, [self.topic], has_failed(consumer, told))
        except SourceError as error:
            raise SinkError(error.message) from None
        except kafka_library().KafkaException as error:
            raise failed(SinkError, f"topic {self.topic!r}", cause(error, consumer, told)) from None
        finally:
            consumer.close()
        self._limits = TopicLimits.ask(self.client, self.topic)
        self.messages.limit(self._limits.largest_value)
        if self._limits.is_compacted and self.messages.key is None:
            raise PlanError(f"kafka: topic {self.topic!r} is compacted, so each message needs a key; give key=")

    def newest_owner(self) -> int:
        """Return the highest epoch with which a program has claimed the run."""
        if self._run is None or not self._is_resumed or not self.exactly_once:
            return 0
        marker = CommitsTopic(self.client).read(self._run, self._partition, wait=False)
        return 0 if marker is None or marker.newest is None else marker.newest.epoch

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint after this one whose messages are in Kafka, by the run's marker."""
        if self._run is None or not self._is_resumed or not self.exactly_once:
            return 0
        marker = CommitsTopic(self.client).read(self._run, self._partition, wait=self._transactions is not None)
        if marker is None:
            if self._transactions is None:
                return 0  # another job's transaction may hide it; `claim` waits, and refuses
            raise forgotten(self._run)
        try:
            return marker.after(run, checkpoint)
        except KeyError:
            raise unknown(self._run, run, checkpoint) from None

    def claim(self, claim: Claim) -> bool:
        """Fence older programs of the run."""
        if self._run is not None and claim.home is not None:
            self._folder = StagingFolder(claim.home, self._run, claim.epoch)
        if self._run is None or not self.exactly_once:
            return True
        self._drop()
        self._transactions = Transactions(self.client, self._limits, self._run, self._partition, claim)
        return self._transactions.claim(self._is_resumed)

    def begin(self, claim: Claim) -> None:
        """Remove the messages that lost programs of this job staged before their first checkpoint."""
        if self._folder is not None and claim.referenced is not None:
            runs = [each["run"] for each in claim.referenced if isinstance(each, dict) and "run" in each]
            claim.check()
            for folder in self._folder.abandoned([*runs, self._folder.run]):
                folder.clear()

    # --- while it runs

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that stages messages, or one with a producer of its own."""
        if not self.exactly_once:
            return _ProducingWriter(self, context)
        assert self._folder is not None  # `claim` comes first
        return StagedMessagesWriter(self.messages, self._folder, self._limits, context)

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Produce the staged messages of a checkpoint in one transaction, and remove their files."""
        run = self._run
        files = [] if run is None else [StagedFile.of(values, run) for values in pending if values]
        if not files:
            return
        if self._transactions is not None:
            assert self._folder is not None  # `claim` comes first
            with self._folder.committing():
                self._transactions.commit(files, checkpoint)
        elif self.exactly_once:
            raise SinkError(f"topic {self.topic!r}: the results of run {run} were not claimed: call claim() first")
        else:
            self._produce(files)
        for file in files:
            file.remove()

    def _produce(self, files: Sequence[StagedFile]) -> None:
        """Produce the messages that an exactly-once program staged, in a job that continues with at-least-once."""
        delivery = Delivery(self._limits.applied(self.client), self.topic, wait_for)
        try:
            give_staged(delivery, [file for file in files if file.exists()])  # a committed file was removed
        finally:
            delivery.close()

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Commit the checkpoint, and remove what was staged after it."""
        self.commit(pending, checkpoint)
        if self._folder is not None:
            self._folder.clear()

    def finish(self) -> None:
        """Remove what earlier attempts have staged."""
        if self._folder is not None:
            self._folder.clear()
        self._drop()

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """Commit the last checkpoint, and remove what was staged after it. Without a checkpoint, forget the run."""
        transactions, folder = self._transactions, self._folder
        try:
            if checkpoint and folder is not None:
                self.rollback(pending, checkpoint)
            elif transactions is not None and folder is not None and not self._is_resumed:
                transactions.forget()
                folder.clear()
        finally:
            self._folder = None
            self._drop()

    def _drop(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()


class _ProducingWriter(SinkWriter):
    """The writer of an at-least-once sink. Its producer has delivered all messages when a checkpoint completes."""

    def __init__(self, sink: KafkaSink, context: WriterContext) -> None:
        self._messages = sink.messages
        self._delivery = Delivery(sink._limits.applied(sink.client), sink.topic, context.wait_until)

    def write(self, batch: pa.RecordBatch) -> None:
        self._delivery.give(self._messages.encoded(batch))

    def flush(self, checkpoint: int) -> None:
        """Wait until the brokers have all messages."""
        self._delivery.wait()

    def finish(self) -> None:
        """Wait until the brokers have all messages."""
        self._delivery.wait()

    def close(self) -> None:
        """Drop messages that are not delivered. After a checkpoint there are none."""
        self._delivery.close()
