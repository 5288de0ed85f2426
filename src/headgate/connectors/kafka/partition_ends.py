"""Where the partitions of a reader end now. Asking never waits, so any thread may do it, also while fetching pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_offsets import Offsets, Partition

#: Seconds between two questions.
_INTERVAL: Final = 2.0


class PartitionEnds:
    """The ends of partitions, as brokers told them last. `_lock` protects all fields."""

    def __init__(self, client: KafkaClient, read_committed: bool) -> None:
        self._client = client
        self._read_committed = read_committed
        self._lock = threading.Lock()
        self._offsets: Offsets | None = None
        self._answers: dict[Any, Future[Any]] = {}
        self._ask_at = 0.0
        self._ends: dict[Partition, int] = {}
        self._is_closed = False

    def of(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the known offsets after the last message of each partition, and ask the brokers again."""
        with self._lock:
            if partitions and not self._is_closed:
                self._take_answers()
                self._ask(partitions)
            return dict(self._ends)

    def _take_answers(self) -> None:
        for partition, answer in list(self._answers.items()):
            if answer.done():
                del self._answers[partition]
                if answer.exception() is None:
                    self._ends[partition.topic, partition.partition] = int(answer.result().offset)

    def _ask(self, partitions: Collection[Partition]) -> None:
        now = time.monotonic()
        if not self._answers and now >= self._ask_at:
            self._ask_at = now + _INTERVAL
            self._offsets = self._offsets or Offsets(self._client, self._read_committed)
            self._answers = self._offsets.asked(list(partitions))

    def close(self) -> None:
        """Ask no more."""
        with self._lock:
            self._is_closed, self._offsets, self._answers = True, None, {}
