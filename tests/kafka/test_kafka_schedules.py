"""Random faults between Kafka, keyed windows and Kafka: the results have each window once, whatever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_offsets import Offsets
from tests.kafka_broker import Broker, broker_or_skip, values
from tests.runtime.jobs import eventually, pids

SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("ms", "UTC")})
#: The rows of a piece, the milliseconds between two rows, and the length of a window in milliseconds.
PIECE, STEP, WINDOW = 2_000, 1, 500
KEYS, PARTITIONS = 7, 3
START = 1_714_557_600
FAULTS = ("taskmanager", "driver", "pause", "kill broker", "restart broker")

PROGRAM = """
import sys
from tests.kafka.test_kafka_schedules import build
build(*sys.argv[1:]).execute("windows", resume="latest-if-any")
"""


def build(servers: str, given: str, results: str, folder: str, parallelism: str) -> hg.StreamEnvironment:
    config = hg.Config(checkpoint_dir=folder, checkpoint_interval="50 ms", restart=hg.restart.fixed(1000, "0.1 s"))
    deployment = hg.LocalDeployment(taskmanagers=2, processes=True)
    env = hg.StreamEnvironment(parallelism=int(parallelism), config=config, deployment=deployment)
    rows = env.from_source(hg.sources.kafka(servers, given, schema=SCHEMA), watermark=hg.Watermark("at"))
    counts = rows.key_by("key").window(hg.tumble(WINDOW / 1000)).aggregate(rows=hg.count())
    options = {"transaction.timeout.ms": 10_000}
    counts.sink_to(hg.sinks.kafka(servers, results, key="key", guarantee="exactly-once", options=options))
    return env


class Schedule:
    """One run of the job, with faults that a seed chooses."""

    def __init__(self, broker: Broker, folder: Path, seed: int) -> None:
        self._broker = broker
        self._folder = folder
        self._chance = random.Random(seed)
        self.topics = broker.topic(PARTITIONS), broker.topic(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._pieces = 0
        self.faults: list[str] = []

    def run(self, faults: int) -> None:
        """Produce the input piece by piece, with a fault after each piece."""
        try:
            self._start()
            for _ in range(faults):
                self._produce()
                time.sleep(self._chance.uniform(0, 1.0))  # not a wait: the moment of the fault
                self.faults.append(self._chance.choice(FAULTS))
                getattr(self, "_" + self.faults[-1].replace(" ", "_"))()
            self._produce()
            self._end_input()
            eventually(self._is_complete, timeout=120)
        finally:
            self._end_driver()

    def _produce(self) -> None:
        rows: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for n in range(self._pieces * PIECE, (self._pieces + 1) * PIECE):
            rows[n % PARTITIONS].append(json.dumps({"key": n % KEYS, "at": _time(n * STEP)}).encode())
        self._pieces += 1
        for partition in range(PARTITIONS):
            self._broker.produce(self.topics[0], rows[partition], partition)

    def _end_input(self) -> None:
        """Move the watermark of each partition past all windows."""
        last = json.dumps({"key": 0, "at": _time(10**9)}).encode()
        for partition in range(PARTITIONS):
            self._broker.produce(self.topics[0], [last], partition)

    def _is_complete(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
        return self.seen().total() >= len(self.expected())

    def expected(self) -> Counter[tuple[int, int, int]]:
        """Return the windows: key, start and number of rows."""
        found = Counter((n % KEYS, n * STEP // WINDOW * WINDOW) for n in range(self._pieces * PIECE))
        return Counter({(key, start, rows): 1 for (key, start), rows in found.items()})

    def seen(self) -> Counter[tuple[int, int, int]]:
        """Return the windows that readers see, and how often."""
        rows = [json.loads(value) for value in values(self._broker.messages(self.topics[1], 2))]
        return Counter((row["key"], _milliseconds(row["window_start"]), row["rows"]) for row in rows)

    def is_open(self) -> bool:
        """Return whether a transaction hides messages from readers."""
        client, places = KafkaClient(self._broker.servers, {}), [(self.topics[1], number) for number in range(2)]
        ends = [Offsets(client, read_committed=flag).latest(places) for flag in (True, False)]
        return ends[0] != ends[1]

    # --- faults

    def _start(self) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADGATE_WEB": "off"}
        arguments = [self._broker.servers, *self.topics, str(self._folder / "checkpoints"),
                     str(self._chance.choice((1, 2, 3)))]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env=environ, stdout=log,
                                            stderr=log)  # fmt: skip

    def _taskmanager(self) -> None:
        assert self._process is not None
        driver = self._process.pid
        members = eventually(lambda: pids(driver), timeout=60)
        with suppress(ProcessLookupError):  # a restart may end it meanwhile
            os.kill(members[self._chance.choice(sorted(members))], signal.SIGKILL)

    def _driver(self) -> None:
        self._end_driver()
        self._start()

    def _pause(self) -> None:
        os.kill(self._broker.pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.1, 2.0))
        os.kill(self._broker.pid, signal.SIGCONT)

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _restart_broker(self) -> None:
        self._broker.stop()
        self._broker.start()

    def _end_driver(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(START + milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _milliseconds(time: str) -> int:
    return round((datetime.fromisoformat(time).timestamp() - START) * 1000)


def check(broker: Broker, folder: Path, seed: int, faults: int) -> list[str]:
    schedule = Schedule(broker, folder, seed)
    schedule.run(faults)
    assert schedule.seen() == schedule.expected(), (seed, schedule.faults)
    eventually(lambda: not schedule.is_open(), timeout=30)
    return schedule.faults


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [104, 113])
def test_some_schedules(kafka: Broker, tmp_path: Path, seed: int) -> None:
    """Two in which no broker restarts: that takes longer."""
    check(kafka, tmp_path, seed, faults=3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_schedules(tmp_path: Path) -> None:
    broker, faults = broker_or_skip(), Counter[str]()
    try:
        for seed in range(100, 150):
            (tmp_path / str(seed)).mkdir()
            began = time.monotonic()
            found = check(broker, tmp_path / str(seed), seed, faults=3)
            faults.update(found)
            print(f"seed {seed}: {', '.join(found)}: {time.monotonic() - began:.1f} s", flush=True)
    finally:
        broker.close()
    print(dict(faults))
