"""Random faults between Kafka, keyed windows and each sink: the results have each window once, whatever dies.

SEED=1234 in the environment lets the soak begin with that seed, and COUNT=3 run so many schedules. The seed also says
at which lines a process is killed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kafka.kafka_schedule import Schedule, relayed_broker
from tests.kafka.result_places import PLACES
from tests.kafka_broker import Broker

#: The faults of a schedule, and how many schedules make at least fifty.
FAULTS, COUNT = 5, 11
SEED = int(os.environ.get("SEED", "100"))
#: At how many lines of a call a process is killed.
LINES = 12


@pytest.mark.turns(2)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("faults", [
    [("a TaskManager is killed", False), ("the driver is killed", True), ("the disk is full", False)],
    [("the broker is paused", True), ("the driver is killed", False)],
], ids=["killed", "paused"])  # fmt: skip
def test_some_faults(kafka: Broker, tmp_path: Path, faults: list[tuple[str, bool]]) -> None:
    """None restarts a broker: that takes longer."""
    Schedule(kafka, tmp_path, 1, "Kafka").run_faults(faults)


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("into", PLACES)
def test_fifty_faults(tmp_path: Path, into: str, capsys: pytest.CaptureFixture[str]) -> None:
    count = int(os.environ.get("COUNT", COUNT))
    struck: Counter[str] = Counter()
    with relayed_broker() as (broker, relay):
        for seed in range(SEED, SEED + count):
            folder, began = tmp_path / str(seed), time.monotonic()
            folder.mkdir()
            schedule = Schedule(broker, folder, seed, into, relay)
            try:
                schedule.run(FAULTS)
            except BaseException as error:
                error.add_note(f"into {into}, seed {seed}: {schedule.struck}; log: {folder / 'log'}")
                raise
            struck.update(schedule.struck)
            shutil.rmtree(folder)
            with capsys.disabled():
                print(
                    f"{into}, seed {seed}: {'; '.join(schedule.struck)}: {time.monotonic() - began:.1f} s", flush=True
                )
    with capsys.disabled():
        print(into, struck.total(), dict(sorted(struck.items())), flush=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("where", ["a commit", "a rollback", "a claim", "a flush"])
@pytest.mark.parametrize("into", PLACES)
def test_a_process_is_killed_at_lines_all_over_a_call(
    kafka: Broker, tmp_path: Path, into: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver in its calls of the sink, and a TaskManager in a flush. At the end readers see each window once."""
    began, schedule = time.monotonic(), Schedule(kafka, tmp_path, SEED, into)
    try:
        lines = schedule.kill_at_lines(where, LINES)
    except BaseException as error:
        error.add_note(f"into {into}, seed {SEED}: {schedule.struck}; log: {tmp_path / 'log'}")
        raise
    assert len(schedule.struck) == LINES
    with capsys.disabled():
        print(f"{into}, seed {SEED}: {LINES} of {lines} lines of {where}: {time.monotonic() - began:.1f} s", flush=True)
