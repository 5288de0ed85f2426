"""`Transactions`: the driver's part of an exactly-once sink. Each commit is one Kafka transaction with a marker.

librdkafka cannot continue a transaction of another process. After an interruption, the sink therefore looks whether the
commit is in Kafka, and produces it again if it is not:

1. `init_transactions` fences older programs, and ends the transaction that one of them left open.
2. The marker then says which checkpoints are in Kafka.
3. A checkpoint that is not there is produced: its messages, the marker, the end of the transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from headgate.connectors.connector import Claim
from headgate.connectors.kafka.commits_topic import TOPIC, CommitsTopic, Marker
from headgate.connectors.kafka.delivery import Delivery, wait_for
from headgate.connectors.kafka.kafka_client import ANSWER_TIMEOUT, KafkaClient, failed, in_words, kafka_library
from headgate.connectors.kafka.staged_messages import StagedFile, give_staged
from headgate.connectors.kafka.topic_limits import TopicLimits
from headgate.errors import SinkError, Superseded

log = logging.getLogger(__name__)

#: Milliseconds after which brokers abort an open transaction, if the user gives no other.
_TRANSACTION_TIMEOUT: Final = 60_000
_TIMEOUT_OPTION: Final = "transaction.timeout.ms"
#: Errors that say that another producer has the transactional id, or that the transaction took too long.
_FENCED: Final = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING",
                            "INVALID_TXN_STATE"))  # fmt: skip
#: How often a claim and a commit are tried. A paused older program that continues may fence this one before it ends
#: itself.
_TRIES: Final = 5
#: Seconds for the abort of a failed transaction. If it takes longer, the next `init_transactions` ends it.
_ABORT_TIMEOUT: Final = 5.0


class _Fenced(Exception):
    """Another producer has the transactional id, or brokers have aborted the transaction."""


class Transactions:
    """The transactions of one run of a sink. Other programs may continue the run. Methods raise SinkError.

    One producer commits for all subtasks. One thread at a time uses the object.
    """

    def __init__(self, client: KafkaClient, limits: TopicLimits, run: str, partition: int, claim: Claim) -> None:
        self._client = client
        self._topic = limits.topic
        self._limits = limits
        self._run = run
        self._partition = partition
        self._claim = claim
        self._commits = CommitsTopic(client)
        self._marker = Marker()
        self._delivery: Delivery | None = None
        self._timeout = float(client.options.get(_TIMEOUT_OPTION, _TRANSACTION_TIMEOUT)) / 1000

    def claim(self, is_resumed: bool) -> bool:
        """Make this program the one that commits, and fence older ones. Return False if another program has claimed
        the run with the same epoch or a higher one."""
        for _ in range(_TRIES):
            try:
                return self._claim_once(is_resumed)
            except _Fenced as error:
                self.close()
                failure = error
        raise SinkError(f"topic {self._topic!r}: the run {self._run} was claimed {_TRIES} times in vain: {failure}")

    def _claim_once(self, is_resumed: bool) -> bool:
        self._open()
        newest = self._marker.newest
        if is_resumed and newest is None:
            raise forgotten(self._run)
        claim = self._claim
        if newest is not None and newest.epoch >= claim.epoch and newest.run != claim.program.run:
            self.close()
            return False
        self._write(self._marker.claimed(claim.epoch, claim.program.run, claim.resumed_run), lambda: None)
        return True

    def commit(self, files: Sequence[StagedFile], checkpoint: int) -> None:
        """Produce the messages of a checkpoint, unless they are in Kafka. Raises Superseded if a newer program has
        claimed the run."""
        run = self._claim.resumed_run if checkpoint == self._claim.resumed else self._claim.program.run
        for is_last in [False] * (_TRIES - 1) + [True]:
            began = time.monotonic()
            try:
                if self._delivery is None:
                    self._open()
                    self._require_owner()
                if not self._has(run, checkpoint):
                    self._write(self._marker.with_checkpoint(run, checkpoint), lambda: self._produce(files))
                return
            except _Fenced as error:
                self.close()
                self._require_newest()
                took = time.monotonic() - began
                if took >= self._timeout:
                    raise self._too_slow(files, took) from None
                if is_last:
                    raise SinkError(f"topic {self._topic!r}: the transaction was aborted {_TRIES} times: {error}"
                                    ) from None  # fmt: skip

    def forget(self) -> None:
        """Delete the marker: the run has nothing that a program could resume."""
        if self._delivery is not None:
            try:
                self._write(None, lambda: None)
            except _Fenced:
                log.debug("run %s: a newer program has claimed it", self._run)

    def close(self) -> None:
        """Drop the producer. If a transaction is open, the next `init_transactions` ends it."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            delivery.close()

    # --- one transaction

    def _open(self) -> None:
        """Fence other producers, end their transactions, and read the run's marker, which says what is in Kafka."""
        self.close()
        delivery = Delivery(
            self._limits.applied(self._client), self._topic, wait_for, transactional_id=f"headgate-{self._run}",
            **({} if _TIMEOUT_OPTION in self._client.options else {"transaction_timeout_ms": _TRANSACTION_TIMEOUT}),
        )  # fmt: skip
        self._call(delivery.producer.init_transactions, self._timeout + ANSWER_TIMEOUT)
        self._marker = self._commits.read(self._run, self._partition, wait=True) or Marker()
        self._delivery = delivery

    def _write(self, marker: Marker | None, produce: Callable[[], None]) -> None:
        """Call `produce` in a transaction whose last record is the marker. A `marker` of None deletes it."""
        delivery = self._delivery
        assert delivery is not None
        try:
            self._call(delivery.producer.begin_transaction)
            produce()
            value = None if marker is None else marker.as_bytes()
            delivery.producer.produce(TOPIC, value, self._run.encode(), partition=self._partition)
            delivery.wait()
            self._end(delivery)
        except Exception as error:
            self._abort(delivery)
            raise self._reason(error, delivery) from None
        self._marker = marker or Marker()

    def _reason(self, error: Exception, delivery: Delivery) -> Exception:
        """Return why a transaction failed. If the producer is fenced, return that: other errors only follow from it."""
        is_kafkas = isinstance(error, kafka_library().KafkaException)
        inner = error.args[0] if is_kafkas else delivery.failure
        if inner is not None and inner.name() in _FENCED:
            return _Fenced(in_words(inner))
        return failed(SinkError, f"topic {self._topic!r}", error) if is_kafkas else error

    def _produce(self, files: Sequence[StagedFile]) -> None:
        assert self._delivery is not None
        give_staged(self._delivery, files)

    def _end(self, delivery: Delivery) -> None:
        self._call(delivery.producer.commit_transaction, self._timeout + ANSWER_TIMEOUT)

    def _call(self, call: Callable[..., Any], timeout: float | None = None) -> None:
        """Call the producer. With `timeout`, repeat the call while this may help. Raises _Fenced and SinkError."""
        library = kafka_library()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                call() if deadline is None else call(max(1.0, deadline - time.monotonic()))
                return
            except library.KafkaException as error:
                inner = error.args[0]
                if inner.name() in _FENCED:
                    raise _Fenced(in_words(inner)) from None
                if not inner.retriable() or deadline is None or time.monotonic() > deadline:
                    raise failed(SinkError, f"topic {self._topic!r}", error) from None

    def _abort(self, delivery: Delivery) -> None:
        """End the transaction now, so that readers need not wait for its timeout. Then drop the producer."""
        library = kafka_library()
        try:
            delivery.producer.abort_transaction(_ABORT_TIMEOUT)
        except library.KafkaException as error:
            log.debug("run %s: the transaction is left to brokers: %s", self._run, in_words(error))
        self.close()

    # --- who owns the run, and what is there

    def _has(self, run: str, checkpoint: int) -> bool:
        try:
            return self._marker.has(run, checkpoint)
        except KeyError:
            raise unknown(self._run, run, checkpoint) from None

    def _require_newest(self) -> None:
        """Read the marker, and raise Superseded if a newer program has claimed the run."""
        self._marker = self._commits.read(self._run, self._partition, wait=False) or self._marker
        self._require_owner()

    def _require_owner(self) -> None:
        newest = self._marker.newest
        if newest is None:
            raise forgotten(self._run)
        if newest.run != self._claim.program.run:
            raise Superseded(
                f"topic {self._topic!r}: another program (run {newest.run}) took over the results; this one has ended "
                "and left them to it"
            )

    def _too_slow(self, files: Sequence[StagedFile], took: float) -> SinkError:
        messages, size = sum(file.messages for file in files), sum(file.size for file in files)
        return SinkError(
            f"topic {self._topic!r}: the transaction with {messages} messages ({size} bytes) took {took:.0f} s, and "
            f"brokers abort it after {self._timeout:g} s; raise {_TIMEOUT_OPTION} in options=, up to the brokers' "
            "transaction.max.timeout.ms, or take checkpoints more often"
        )


def forgotten(run: str) -> SinkError:
    """Return the refusal of a resumed job whose marker is gone."""
    return SinkError(
        f"topic {TOPIC!r}: has no record of run {run}, which the checkpoint names: the topic was deleted, or forgets "
        "old records. So nobody can tell whether the rows of the checkpoint are in Kafka. Resume once with "
        "guarantee='at-least-once', which writes them (again), or start without resume"
    )


def unknown(run: str, program: str, checkpoint: int) -> SinkError:
    """Return the refusal of a checkpoint about which the marker says nothing."""
    return SinkError(
        f"topic {TOPIC!r}: the record of run {run} does not name the program {program or '(unknown)'}, which took "
        f"checkpoint {checkpoint}. So nobody can tell whether its rows are in Kafka. Resume from a newer checkpoint, "
        "or once with guarantee='at-least-once', which writes them (again)"
    )
