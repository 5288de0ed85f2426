"""Back-pressure and lag: a slow sink with a full topic behind it."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import headgate as hg
from tests.kafka.test_kafka_source import received
from tests.kafka_broker import Broker
from tests.runtime.jobs import environment, eventually

MESSAGE = b"x" * 1000
#: The bytes that the process may grow by while a topic with more waits: queues, batches, and what the allocator keeps.
MOST_GROWTH = 60 << 20


class SlowJob:
    """A job that reads a topic of two partitions in this process, at `rate` messages per second until released.

    The time of a batch depends on its messages: a busy machine cannot empty the topic before a test looks.
    """

    def __init__(self, kafka: Broker, folder: Path, messages: int, rate: float) -> None:
        self._kafka = kafka
        self.topic = kafka.topic(2)
        self.messages = messages
        self._subtask_rate = rate / 2
        for partition in range(2):
            kafka.produce(self.topic, [MESSAGE] * (messages // 2), partition)
        self.released = threading.Event()
        self._env = environment(checkpoint_dir=folder, checkpoint_interval="50 ms")
        source = hg.sources.kafka(kafka.servers, self.topic, format="raw", group=self.topic, fetch_bytes="1 mb")
        self._env.from_source(source).sink_to(hg.sinks.for_each_batch(self._take))
        self.job = self._env.execute_async()

    def _take(self, batch: pa.RecordBatch, info: hg.BatchInfo) -> None:
        self.released.wait(batch.num_rows / self._subtask_rate)

    def unread(self) -> dict[str, int]:
        return self._source()["unread"] or {}

    def read(self) -> int:
        return int(self._source()["rows_in"])

    def _source(self) -> dict[str, Any]:
        operators = self.job.metrics().get("operators", {})
        found = [each for each in operators.values() if each["kind"] == "source"]
        return found[0] if found else {"unread": None, "rows_in": 0}

    def committed(self) -> int:
        """Return the offsets of the group, added up."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._kafka.servers, "group.id": self.topic})
        places = consumer.committed([TopicPartition(self.topic, number) for number in range(2)], timeout=30)
        consumer.close()
        return sum(max(0, place.offset) for place in places)

    def check(self) -> None:
        """Check that the lag and the committed offsets are true, and that no member of the group can be rebalanced."""
        before, unread, after = self.read(), sum(self.unread().values()), self.read()
        assert self.messages - after - 10_000 <= unread <= self.messages - before + 10_000, "the lag is true"
        assert self.committed() <= self.read() + 10_000
        assert self.members() == [], "partitions are assigned, not subscribed to"

    def members(self) -> list[object]:
        admin = self._kafka.admin()
        return list(admin.describe_consumer_groups([self.topic])[self.topic].result(30).members)


@pytest.mark.timeout(120)
def test_a_slow_sink_with_a_full_topic_behind_it(kafka: Broker, tmp_path: Path) -> None:
    slow = SlowJob(kafka, tmp_path, 100_000, rate=2_000)
    process = psutil.Process()
    try:
        eventually(lambda: len(slow.unread()) == 2)
        begin, peak = process.memory_info().rss, 0
        first = slow.unread()
        eventually(lambda: sum(slow.unread().values()) < sum(first.values()))
        peak = process.memory_info().rss
        slow.check()
        assert sum(slow.unread().values()) > 10_000, "the job is slow"
        assert peak - begin < MOST_GROWTH
        assert set(slow.unread()) == {f"{slow.topic}[0]", f"{slow.topic}[1]"}
        eventually(lambda: slow.committed() > 0)
        slow.check()
        slow.released.set()
        eventually(lambda: sum(slow.unread().values()) == 0 and slow.read() == slow.messages)
        kafka.produce(slow.topic, [MESSAGE], 0)
        eventually(lambda: slow.committed() == slow.messages + 1)
    finally:
        slow.job.cancel()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_memory_stays_flat_for_ten_minutes(kafka: Broker, tmp_path: Path) -> None:
    slow, process = SlowJob(kafka, tmp_path, 1_000_000, rate=1_500), psutil.Process()
    try:
        eventually(lambda: len(slow.unread()) == 2)
        sizes, committed, fetched = [], [slow.committed()], [received(kafka.port)]
        for _ in range(600):
            time.sleep(1.0)  # not a wait: the length of the measurement
            sizes.append(process.memory_info().rss)
            if len(sizes) % 60 == 0:
                slow.check()
                committed.append(slow.committed())
                fetched.append(received(kafka.port))
        print(f"after 1 min {sizes[60] >> 20} MiB, at most {max(sizes[60:]) >> 20} MiB, unread {slow.unread()}")
        assert max(sizes) - sizes[0] < MOST_GROWTH
        assert sorted(set(committed)) == committed, "each minute commits further offsets"
        each_minute = [(after - before) / 60 for before, after in pairwise(fetched[1:])]
        print(f"committed {committed}, fetched {[round(each / 1e6, 2) for each in each_minute]} MB/s")
        assert max(each_minute) < 3 * 1_500 * len(MESSAGE), "fetching pauses: a topic is read at over 100 MB/s"
        assert sum(slow.unread().values()) > 0
    finally:
        slow.released.set()
        slow.job.cancel()
