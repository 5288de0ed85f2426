"""The Kafka sink, exactly once, with a real broker: crashes at each step of a commit, and restarts after them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.kafka import staged_messages, transactions
from headgate.connectors.kafka.commits_topic import Claimed, Marker
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_offsets import Offsets
from headgate.connectors.kafka.kafka_sink import KafkaSink
from headgate.connectors.kafka.staged_messages import StagedFile, StagedMessagesWriter, StagingFolder
from headgate.connectors.kafka.transactions import Transactions
from headgate.errors import ResultsGone
from headgate.testing import check_sink
from headgate.testing.sink_program import EPOCHS, SinkProgram, StoredJob
from tests.kafka.test_kafka_sink import Places
from tests.kafka_broker import Broker, values
from tests.runtime import jobs
from tests.runtime.jobs import counted, environment, error_of, eventually

ROWS = pa.table({"n": range(30), "s": [f"row {n}" for n in range(30)]})


def exact(broker: Broker, topic: str, **options: Any) -> hg.Sink:
    return hg.sinks.kafka(broker.servers, topic, key="s", guarantee="exactly-once", **options)


def numbers(broker: Broker, topic: str, partitions: int = 1) -> Counter[int]:
    """Return how often readers see each row, once no transaction is open."""
    assert_nothing_hidden(broker, topic, partitions)
    return Counter(json.loads(value)["n"] for value in values(broker.messages(topic, partitions)))


def program(
    broker: Broker, topic: str, stored: StoredJob, home: Path, subtasks: int = 2, **options: Any
) -> SinkProgram:
    started = SinkProgram(exact(broker, topic, **options), stored, ROWS, home=str(home), subtasks=subtasks)
    started.start()
    return started


def run_epochs(running: SinkProgram, count: int) -> None:
    for _ in range(count):
        for step in (running.write, running.flush, running.store, running.commit):
            step()


class ExactPlaces(Places):
    """Readers may come before the markers of a transaction that has ended; see `assert_nothing_hidden`."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, key="s", guarantee="exactly-once")

    def read(self, name: str) -> list[dict[str, Any]]:
        with suppress(AssertionError):  # a program that has ended may have left a transaction open
            assert_nothing_hidden(self._broker, self._topics[name], timeout=2.0)
        return super().read(name)


def assert_nothing_hidden(broker: Broker, topic: str, partitions: int = 1, timeout: float = 30.0) -> None:
    """No transaction stays open: readers with read_committed come to the end.

    The broker tells the producer that a transaction has ended, and then writes the markers that show it to readers.
    """
    client, places = KafkaClient(broker.servers, {}), [(topic, number) for number in range(partitions)]

    def nothing_is_hidden() -> bool:
        committed, everything = (Offsets(client, read_committed=flag).latest(places) for flag in (True, False))
        return committed == everything

    eventually(nothing_is_hidden, timeout)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_sink_keeps_the_contract_at_each_line(kafka: Broker) -> None:
    places = ExactPlaces(kafka)
    check_sink(places.make, places.read, broken=lambda: exact(kafka, "no-such-topic"), lines=1000)


def test_the_sink_keeps_the_contract(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the same: crashes at the steps of one checkpoint, and at a line of its commit.

    A writer with much more than the rows of the kit waits for a driver that commits and commits.
    """
    monkeypatch.setattr(StagingFolder, "is_committing", lambda folder: True)
    monkeypatch.setattr(staged_messages, "MOST_STAGED", 1 << 16)
    places = ExactPlaces(kafka)
    broken = lambda: exact(kafka, "no-such-topic")  # noqa: E731
    stalled = lambda: exact(kafka, kafka.topic(1))  # noqa: E731
    check_sink(places.make, places.read, rows=ROWS, broken=broken, stalled=stalled, checkpoints=[2], lines=1)


# --- whole jobs, whose driver is killed

PROGRAM = """
import os, signal, sys
from tests.kafka.test_kafka_exactly_once import die_at, job
servers, topic, folder, step, count = sys.argv[1:]
die_at(step, int(count))
job(servers, topic, folder, parallelism=2).execute("killed")
"""
#: By step: a call after which the program dies, or before it.
STEPS = {
    "before staging": ("before", StagedMessagesWriter, "write"),
    "after staging": ("after", StagedMessagesWriter, "flush"),
    "in the transaction": ("after", Transactions, "_produce"),
    "before the end of the transaction": ("before", Transactions, "_end"),
    "after the end of the transaction": ("after", Transactions, "_end"),
    "after the commit": ("after", KafkaSink, "commit"),
}
JOB_ROWS = 15_000


def die_at(step: str, count: int) -> None:
    """Let the process be killed at a step, the `count`-th time."""
    when, kind, name = STEPS[step]
    inner, calls = getattr(kind, name), iter(range(1, 1000))

    def call(*arguments: Any) -> Any:
        is_last = next(calls) == count
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        value = inner(*arguments)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    setattr(kind, name, call)


def job(servers: str, topic: str, folder: str | Path, parallelism: int) -> hg.StreamEnvironment:
    env = environment(parallelism=parallelism, checkpoint_dir=folder, checkpoint_interval="50 ms")
    rows = env.from_source(hg.sources.generate(jobs.numbers, rows=JOB_ROWS, rate=5_000, batch_time="20 ms"))
    # Brokers must not abort a transaction that is only slow, but those of killed drivers while `numbers` waits.
    rows.rebalance().sink_to(hg.sinks.kafka(servers, topic, options={"transaction.timeout.ms": 20_000}))
    return env


@pytest.mark.timeout(240)
@pytest.mark.parametrize("steps", [
    ["before the end of the transaction", "after the end of the transaction"],
    pytest.param([*STEPS], marks=pytest.mark.soak),
], ids=["some", "all"])  # fmt: skip
def test_drivers_that_are_killed_at_each_step(kafka: Broker, tmp_path: Path, steps: list[str]) -> None:
    """Another program resumes with more subtasks. Readers see each row once, and no transaction stays open."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADGATE_WEB": "off"}
    killed = {}
    for number, step in enumerate(steps):
        topic, folder = kafka.topic(2), str(tmp_path / str(number))
        arguments = [kafka.servers, topic, folder, step, str(2 + number % 2)]
        with (tmp_path / f"log-{number}").open("w") as log:
            killed[step] = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env=environ, stdout=log,
                                            stderr=log), topic, folder  # fmt: skip
    for number, (step, (process, topic, folder)) in enumerate(killed.items()):
        assert process.wait(120) == -signal.SIGKILL, (step, (tmp_path / f"log-{number}").read_text())
        handle = job(kafka.servers, topic, folder, parallelism=3).execute_async("killed", resume="latest-if-any")
        assert handle.guarantee == "exactly-once"
        handle.wait(60)
        assert numbers(kafka, topic, 2) == Counter(range(JOB_ROWS)), step
        assert not list(Path(folder).rglob("*.arrow")), "what was staged is removed"


# --- markers


def test_a_marker_knows_the_checkpoints_of_each_program() -> None:
    marker = Marker().claimed(1, "a").with_checkpoint("a", 3).claimed(2, "b").with_checkpoint("b", 5)
    assert Marker.of(marker.as_bytes()) == marker
    assert (marker.has("a", 3), marker.has("a", 4), marker.has("b", 5)) == (True, False, True)
    assert (marker.after("a", 2), marker.after("a", 3), marker.after("b", 4), marker.after("b", 5)) == (5, 5, 5, 0)
    assert marker.claimed(3, "c").after("b", 5) == 0
    with pytest.raises(KeyError):
        marker.has("c", 1)


def test_a_marker_keeps_the_program_that_took_the_checkpoint() -> None:
    """A hundred programs start from the same checkpoint, and take none."""
    marker = Marker().claimed(1, "a").claimed(2, "b").with_checkpoint("b", 7)
    for epoch in range(3, 203):
        marker = marker.claimed(epoch, f"run {epoch}", resumed="b")
    assert marker.has("b", 7)
    assert len(marker.claims) == 101
    assert marker.newest == Claimed(202, "run 202")
    assert [claim.epoch for claim in marker.claims] == sorted(claim.epoch for claim in marker.claims)


def test_a_claim_that_another_producer_interrupts_is_repeated(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused older program wakes up, and takes the transactional id, before it ends itself."""
    topic, stored = kafka.topic(1), StoredJob()
    run_epochs(program(kafka, topic, stored, tmp_path), 1)
    client, write = KafkaClient(kafka.servers, {}), Transactions._write
    older: list[Any] = []

    def interrupted(self: Transactions, *arguments: Any) -> None:
        if not older:
            older.append(client.producer(lambda error: None, transactional_id=f"headgate-{self._run}"))
            older[0].init_transactions(30)
        write(self, *arguments)

    monkeypatch.setattr(Transactions, "_write", interrupted)
    program(kafka, topic, stored, tmp_path).go_on()
    assert older
    assert numbers(kafka, topic) == Counter(range(30))


def test_a_fresh_start_does_not_believe_an_old_run(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(1)
    run_epochs(program(kafka, topic, StoredJob(), tmp_path / "old"), EPOCHS)
    program(kafka, topic, StoredJob(), tmp_path / "new").go_on()
    assert numbers(kafka, topic) == Counter([*range(30), *range(30)])


def test_a_deleted_topic_loses_only_what_was_in_it(kafka: Broker, tmp_path: Path) -> None:
    topic, stored = kafka.topic(1), StoredJob()
    run_epochs(program(kafka, topic, stored, tmp_path), 1)
    kafka.delete_topic(topic)
    kafka.make_topic(topic, 1)
    program(kafka, topic, stored, tmp_path).go_on()
    assert numbers(kafka, topic) == Counter(n for n in range(30) if n % EPOCHS)


def test_what_the_marker_cannot_tell_is_refused(kafka: Broker, tmp_path: Path) -> None:
    topic, stored = kafka.topic(1), StoredJob()
    running = program(kafka, topic, stored, tmp_path)
    run_epochs(running, 1)
    for step in (running.write, running.flush, running.store):
        step()
    running.close()
    unknown = StoredJob(**{**vars(stored), "run": "another"})
    with pytest.raises(hg.SinkError, match="does not name the program another, which took checkpoint 2"):
        program(kafka, topic, unknown, tmp_path)
    forgotten = StoredJob(**{**vars(stored), "prepared": {**stored.prepared, "run": "another-1"}})
    with pytest.raises(hg.SinkError, match="has no record of run another-1"):
        program(kafka, topic, forgotten, tmp_path)
    program(kafka, topic, stored, tmp_path).go_on()
    assert numbers(kafka, topic) == Counter(range(30))


def test_a_job_goes_on_at_least_once_without_the_marker(kafka: Broker, tmp_path: Path) -> None:
    topic, stored = kafka.topic(1), StoredJob()
    running = program(kafka, topic, stored, tmp_path)
    run_epochs(running, 1)
    for step in (running.write, running.flush, running.store):
        step()
    sink = hg.sinks.kafka(kafka.servers, topic, guarantee="at-least-once")
    SinkProgram(sink, stored, ROWS, home=str(tmp_path), subtasks=1).start()
    assert numbers(kafka, topic) == Counter(n for n in range(30) if n % EPOCHS < 2)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_staged_messages_go_to_no_other_topic(guarantee: Any, kafka: Broker, tmp_path: Path) -> None:
    """The driver dies before the commit, and the next program has another topic, such as that of another sink."""
    topic, other, stored = kafka.topic(1), kafka.topic(1), StoredJob()
    running = program(kafka, topic, stored, tmp_path)
    for step in (running.write, running.flush, running.store):
        step()
    running.close()
    sink = hg.sinks.kafka(kafka.servers, other, key="s", guarantee=guarantee)
    wrong = SinkProgram(sink, stored, ROWS, home=str(tmp_path), subtasks=2)
    for refused in (wrong.start, lambda: sink.abort(stored.pending, stored.checkpoint)):
        with pytest.raises(hg.SinkError, match=f"10 messages up to the checkpoint belong in topic '{topic}'"):
            refused()
    program(kafka, topic, stored, tmp_path).go_on()
    assert numbers(kafka, topic) == Counter(range(30))
    assert not numbers(kafka, other)


def test_the_topic_may_change_when_nothing_is_staged(kafka: Broker, tmp_path: Path) -> None:
    topic, other, stored = kafka.topic(1), kafka.topic(1), StoredJob()
    running = program(kafka, topic, stored, tmp_path)
    run_epochs(running, 1)
    running.sink.abort(stored.pending, stored.checkpoint)
    program(kafka, other, stored, tmp_path).go_on()
    assert numbers(kafka, topic) == Counter(range(0, 30, EPOCHS))
    assert numbers(kafka, other) == Counter(n for n in range(30) if n % EPOCHS)


def test_staged_files_of_earlier_versions_name_no_topic(kafka: Broker, tmp_path: Path) -> None:
    topic, stored = kafka.topic(1), StoredJob()
    running = program(kafka, topic, stored, tmp_path)
    for step in (running.write, running.flush, running.store):
        step()
    running.close()
    for file in stored.pending:
        assert file.pop("topic") == topic
    program(kafka, topic, stored, tmp_path).go_on()
    assert numbers(kafka, topic) == Counter(range(30))


def test_staged_messages_that_are_gone_or_changed_are_refused(kafka: Broker, tmp_path: Path) -> None:
    topic, stored = kafka.topic(1), StoredJob()
    running = program(kafka, topic, stored, tmp_path)
    for step in (running.write, running.flush, running.store):
        step()
    file = Path(stored.pending[0]["path"])
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(hg.CheckpointError, match=file.name):
        running.commit()
    file.unlink()
    with pytest.raises(ResultsGone, match="is gone, with .* messages of a checkpoint"):
        running.commit()
    file.write_bytes(content)
    running.commit()
    assert sum(numbers(kafka, topic).values()) == 10


@pytest.mark.parametrize("path", ["/etc/passwd", "{folder}/../kafka-x/1-0-0-1.arrow", "{folder}/notes.txt"])
def test_a_forged_checkpoint_touches_no_other_file(path: str, tmp_path: Path) -> None:
    values = {"path": path.format(folder=tmp_path / "kafka-x"), "size": 1, "checksum": "", "messages": 1}
    with pytest.raises(hg.SinkError, match="is no file of this sink"):
        StagedFile.of(values, "x")


def test_a_transaction_that_takes_too_long(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, stored = kafka.topic(1), StoredJob()
    # The later commits must end in this time, also on a slow machine.
    running = program(kafka, topic, stored, tmp_path, options={"transaction.timeout.ms": 3000})
    for step in (running.write, running.flush, running.store):
        step()

    def slowly(delivery: Any, files: Any) -> None:
        staged_messages.give_staged(delivery, files)
        jobs.eventually(lambda: is_aborted(kafka, topic))

    monkeypatch.setattr(transactions, "give_staged", slowly)
    with pytest.raises(hg.SinkError, match="brokers abort it after 3 s; raise transaction.timeout.ms in options="):
        running.commit()
    monkeypatch.undo()
    running.commit()
    running.go_on()
    assert numbers(kafka, topic) == Counter(range(30))


def test_subtasks_wait_while_the_driver_is_behind(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next checkpoint does not grow while the driver writes the one before it. Then the job goes on."""
    topic, has_begun, may_end = kafka.topic(1), threading.Event(), threading.Event()
    end = Transactions._end

    def end_later(self: Transactions, delivery: Any) -> None:
        if self._marker.newest is not None:  # not the claim
            has_begun.set()
            may_end.wait(60)
        end(self, delivery)

    monkeypatch.setattr(Transactions, "_end", end_later)
    monkeypatch.setattr(staged_messages, "MOST_STAGED", 1 << 16)
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="50 ms")
    rows = env.from_source(hg.sources.generate(jobs.numbers, rows=60_000, rate=20_000, batch_time="5 ms"))
    rows.sink_to(hg.sinks.kafka(kafka.servers, topic))
    job = env.execute_async()
    try:
        assert has_begun.wait(60)
        eventually(lambda: sum(task["hard_backpressured_s"] for task in job.metrics()["tasks"].values()) > 0.5)
    finally:
        may_end.set()
    assert job.wait(60).restarts == 0
    assert numbers(kafka, topic) == Counter(range(60_000))


def is_aborted(broker: Broker, topic: str) -> bool:
    """Whether brokers have aborted the transaction with the first messages of the topic."""
    client, place = KafkaClient(broker.servers, {}), [(topic, 0)]
    return Offsets(client, read_committed=True).latest(place)[topic, 0] > 0


def test_a_message_that_is_too_large_is_refused_before_its_checkpoint(kafka: Broker, tmp_path: Path) -> None:
    env = environment(checkpoint_dir=tmp_path, restart=hg.restart.none())
    env.from_source(hg.sources.iterable([{"s": "x" * 2_000_000}])).sink_to(
        hg.sinks.kafka(kafka.servers, kafka.topic(1))
    )
    error = error_of(env.execute_async())
    assert isinstance(error, hg.SinkError)
    assert "a message of 2000045 bytes is too large; raise max.message.bytes" in str(error)


def test_exactly_once_needs_checkpoints(kafka: Broker) -> None:
    with pytest.raises(hg.PlanError, match="needs checkpoints: set checkpoint_dir"):
        counted(environment()).sink_to(exact(kafka, "x"))
