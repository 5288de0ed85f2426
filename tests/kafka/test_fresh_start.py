"""A job starts anew, without its checkpoints, and writes where an earlier run has written many."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from tests.kafka.kafka_schedule import START
from tests.kafka.result_places import PLACES, Place
from tests.kafka.window_job import sink_of
from tests.kafka_broker import Broker
from tests.runtime.jobs import eventually

EPOCHS, RATE = 57, 2000.0
COLUMNS = pa.schema({"key": pa.int64(), "window_start": pa.timestamp("us", "UTC"), "rows": pa.int64()})


def made(start: int, count: int) -> pa.RecordBatch:
    return rows_of(range(start, start + count))


def rows_of(numbers: Sequence[int]) -> pa.RecordBatch:
    times = pa.array([datetime.fromtimestamp(START / 1000, UTC)] * len(numbers), COLUMNS.field("window_start").type)
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), times, pa.array(numbers, pa.int64())],
                                      schema=COLUMNS)  # fmt: skip


@contextmanager
def running(place: Place, folder: Path, source: hg.Source) -> Iterator[hg.JobHandle]:
    config = hg.Config(checkpoint_dir=folder, checkpoint_interval="10 ms")
    env = hg.StreamEnvironment(parallelism=2, config=config, deployment=hg.LocalDeployment(processes=False))
    env.from_source(source).rebalance().sink_to(sink_of(place.spec))
    job = env.execute_async("fresh")
    try:
        yield job
    finally:
        job.cancel()


def newest(folder: Path) -> int:
    """Return the number of the newest complete checkpoint."""
    return max((int(path.parent.name.split("-")[1]) for path in folder.glob("*/chk-*/_metadata")), default=0)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("into", ["Kafka", *(pytest.param(name, marks=pytest.mark.soak) for name in PLACES
                                             if name != "Kafka")])  # fmt: skip
def test_a_fresh_start_writes_all_rows_again(kafka: Broker, tmp_path: Path, into: str) -> None:
    """The numbers of its checkpoints begin at 1, and the results have higher ones. Nothing takes them for done."""
    place, folder = PLACES[into](kafka, kafka.servers, tmp_path), tmp_path / "checkpoints"
    try:
        with running(place, folder, hg.sources.generate(made, rate=RATE, batch_time="10 ms")) as job:
            eventually(lambda: newest(folder) >= EPOCHS or job.status() not in ("CREATED", "RUNNING"), 120)
            job.stop(drain=True)
        assert newest(folder) >= EPOCHS
        old = place.seen()
        assert set(old.values()) == {1}, "the first run alone: each row once"
        shutil.rmtree(folder)
        numbers = sorted(key for key, _, _ in old)
        source = hg.sources.generate(
            lambda start, count: rows_of(numbers[start : start + count]), rows=len(numbers), rate=5 * RATE,
            batch_time="10 ms",
        )  # fmt: skip
        with running(place, folder, source) as job:
            job.wait(120)
        assert 1 < newest(folder) < EPOCHS, "some of its checkpoints have rows, with numbers that the first run had"
        assert place.seen() == Counter(dict.fromkeys(old, 2)), "all rows twice"
    finally:
        place.close()
