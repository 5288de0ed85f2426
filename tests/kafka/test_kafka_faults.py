"""Jobs that read and write Kafka while their processes are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg
from tests.kafka_broker import Broker, values
from tests.runtime.jobs import environment, eventually, pids

N = pa.schema({"n": pa.int64()})
ROWS = 3000


def fill(kafka: Broker, topic: str, first: int, count: int) -> None:
    for partition in range(3):
        kafka.produce(topic, [b'{"n": %d}' % n for n in range(first + partition, first + count, 3)], partition)


def build(env: hg.StreamEnvironment, servers: str, topics: tuple[str, str], out: Path) -> None:
    rows = env.from_source(hg.sources.kafka(servers, topics[0], schema=N, group=topics[0], discovery_interval="1 s"))
    rows.rebalance().sink_to(hg.sinks.parquet(out))
    rows.sink_to(hg.sinks.kafka(servers, topics[1]))


def has_more_than(out: Path, rows: int) -> bool:
    return len(written(out)) > rows


def written(out: Path) -> list[int]:
    paths = [path for path in out.rglob("*.parquet") if not path.name.startswith("_")]
    return sorted(n for path in paths for n in pq.read_table(path)["n"].to_pylist())


def delivered(kafka: Broker, topic: str) -> list[int]:
    return sorted(json.loads(value)["n"] for value in values(kafka.messages(topic, 2)))


def all_is_written(kafka: Broker, topic: str, out: Path) -> bool:
    """Return whether both sinks have all rows. They commit one after the other, so one may lack the last ones."""
    return len(written(out)) >= 3 * ROWS and len(delivered(kafka, topic)) >= 3 * ROWS


@pytest.mark.timeout(240)
def test_killed_taskmanagers_cost_no_message(kafka: Broker, tmp_path: Path) -> None:
    topics, out = (kafka.topic(3), kafka.topic(2)), tmp_path / "out"
    env = environment(
        True, checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="100 ms",
        restart=hg.restart.fixed(100, "0 s"),
    )  # fmt: skip
    build(env, kafka.servers, topics, out)
    job = env.execute_async()
    for number in range(3):
        fill(kafka, topics[0], number * ROWS, ROWS)
        eventually(partial(has_more_than, out, number * ROWS), timeout=60)
        os.kill(pids()[number % 2], signal.SIGKILL)
    eventually(lambda: all_is_written(kafka, topics[1], out), timeout=90)
    job.cancel()
    assert written(out) == list(range(3 * ROWS)), "each message once"
    assert delivered(kafka, topics[1]) == list(range(3 * ROWS))


PROGRAM = """
import sys
from pathlib import Path
import headgate as hg
from tests.kafka.test_kafka_faults import build
servers, given, results, folder = sys.argv[1:]
config = hg.Config(checkpoint_dir=f"{folder}/checkpoints", checkpoint_interval="50 ms")
env = hg.StreamEnvironment(parallelism=2, config=config, deployment=hg.LocalDeployment(processes=False))
build(env, servers, (given, results), Path(folder, "out"))
env.execute("killed", resume="latest-if-any")
"""


@pytest.mark.timeout(240)
def test_killed_drivers_cost_no_message(kafka: Broker, tmp_path: Path) -> None:
    """Each is killed at another moment of its checkpoints, and the next one resumes."""
    topics, out = (kafka.topic(3), kafka.topic(2)), tmp_path / "out"
    command = [sys.executable, "-c", PROGRAM, kafka.servers, *topics, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADGATE_WEB": "off"}
    expected = 0
    for number in range(3):
        fill(kafka, topics[0], expected, ROWS)
        expected += ROWS
        with (tmp_path / "log").open("w") as log:
            driver = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        eventually(partial(has_more_than, out, len(written(out))), timeout=90)
        if number == 2:
            eventually(lambda: all_is_written(kafka, topics[1], out), timeout=60)
        else:
            time.sleep(0.013 * number)  # not a wait: the moment of the fault
        driver.kill()
        driver.wait()
    assert written(out) == list(range(expected)), "each message once"
    assert delivered(kafka, topics[1]) == list(range(expected))
