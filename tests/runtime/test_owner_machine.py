"""However programs of one job are paused and lost, each row is visible once, and the newest program runs to its end."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.errors import CheckpointError, Superseded
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors
from headgate.runtime.checkpointing.resume import LATEST_IF_ANY
from headgate.runtime.checkpointing.resumption import Resumption
from headgate.runtime.checkpointing.stored_checkpoints import StoredCheckpoints
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.memory.edits import always, constant, dropped, replaced
from tests.memory.places import call, condition
from tests.memory.planting import PlantedBug
from tests.runtime.owner_driver import ROWS, Event
from tests.runtime.owner_machine import OwnerMachine


def run(folder: Path, seed: int) -> OwnerMachine:
    """Up to three programs and one that ends the job; what happens is drawn. Some name a checkpoint to resume from."""
    chance = random.Random(seed)
    failures: set[tuple[Event, int, int]] = {
        ("fails", driver, chance.randint(1, 5)) for driver in range(4) if chance.random() < 0.4
    }
    with pytest.MonkeyPatch.context() as patch:
        machine = OwnerMachine(folder, patch, failures, keep=1 + seed % 3)
        try:
            for _ in range(chance.randint(1, 3)):
                complete = machine.complete() if chance.random() < 0.4 else []
                machine.start(chance.choice(complete) if complete else LATEST_IF_ANY)
                for _ in range(chance.randint(1, 6)):
                    chance.choice(machine.drivers).step(chance.choice([1, 2, 5, 20, 60, 200]))
                if chance.random() < 0.3:
                    chance.choice(machine.drivers).lose()
            favourite = chance.random()
            machine.end(lambda drivers: drivers[-1] if chance.random() < favourite else chance.choice(drivers))
        finally:
            machine.close()
    return machine


def hand_over(folder: Path, first_steps: int, second_steps: int) -> bool:
    """A program sleeps while its successor takes over, goes on to its end, and then the successor does. Whether the
    first one slept at all."""
    with pytest.MonkeyPatch.context() as patch:
        machine = OwnerMachine(folder, patch)
        try:
            first = machine.start()
            first.step(first_steps)
            slept = not first.has_ended
            second = machine.start()
            second.step(second_steps)
            first.step(100_000)
            second.step(100_000)
            machine.check(machine.newest)
        finally:
            machine.close()
    return slept


def hand_overs(folder: Path) -> int:
    """A grid of them: the least window in which a planted bug shows is 3 steps of the first by 9 of the second. Returns
    how many there were."""
    count, first_steps, slept = 0, 1, True
    while slept:
        for second_steps in range(5, 50, 8):
            slept = hand_over(folder / f"{first_steps}-{second_steps}", first_steps, second_steps)
            count += 1
        first_steps += 3
    return count


def test_one_program_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = OwnerMachine(tmp_path, monkeypatch)
    machine.start().step(100_000)
    machine.check(machine.newest)
    assert machine.hidden() == []
    assert machine.newest.epoch == 1


def test_a_program_is_lost_before_each_operation(tmp_path: Path) -> None:
    """And the next one goes on."""
    at, is_over = 0, False
    while not is_over:
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(tmp_path / str(at), patch)
            first = machine.start()
            first.step(at)
            is_over = first.has_ended
            if not is_over:
                first.lose()
            second = machine.start()
            second.step(100_000)
            machine.check(second)
            assert machine.hidden() == []
        at += 1
    assert at > 80


def test_a_program_is_paused_before_each_operation_and_replaced(tmp_path: Path) -> None:
    """It wakes up when its successor has ended, or is in the midst of the job."""
    at, superseded, is_over = 0, 0, False
    while not is_over:
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(tmp_path / str(at), patch)
            first = machine.start()
            first.step(at)
            is_over = first.has_ended
            second = machine.start()
            second.step(at * 7 % 200)
            first.step(100_000)
            second.step(100_000)
            machine.check(machine.newest)
            superseded += isinstance(first.error, Superseded)
        at += 1
    assert superseded > 40


def test_a_program_sleeps_while_its_successor_takes_over(tmp_path: Path) -> None:
    assert hand_overs(tmp_path) > 150


def test_three_programs_in_any_order(tmp_path: Path) -> None:
    ended = [run(tmp_path / str(seed), seed) for seed in range(60)]
    assert sum(len(machine.drivers) for machine in ended) > 150
    assert any(isinstance(driver.error, Superseded) for machine in ended for driver in machine.drivers)
    assert sum(machine.rows() == list(range(ROWS)) for machine in ended) > 50
    named = [driver for machine in ended for driver in machine.drivers if driver.resume != LATEST_IF_ANY]
    assert {type(driver.error) for driver in named} > {CheckpointError}, "some were refused, others were not"


BUGS = [
    PlantedBug("files do not carry their owner", FileSink.claim, constant(call("replace").keyword(1), 1)),
    PlantedBug("results are claimed by arrival", FileSink.claim,
               replaced(call("claim").argument(1), "max(THIS, 1 + ledger.newest_owner())")),
    PlantedBug("nobody looks whose the job is before a commit", StoredCheckpoints.commit,
               dropped(call("require_owner"))),
    PlantedBug("an owner does not note what it started from", CheckpointStorage.start, dropped(call("note"))),
    PlantedBug("results are not asked what they have shown", DriverConnectors.refuse_repeats,
               always(condition(1, of=2))),
    PlantedBug("a new owner looks for no newer checkpoint", Resumption.find_again, dropped(call("find"))),
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug, tmp_path: Path) -> None:
    with bug.planted(), pytest.raises(AssertionError):
        hunt(tmp_path)


def hunt(folder: Path) -> None:
    """Drawn orders and the grid of hand-overs, the quick ones first."""
    for seed in range(10):
        run(folder / str(seed), seed)
    hand_overs(folder)
    for seed in range(10, 1000):
        run(folder / str(seed), seed)


@pytest.mark.soak
def test_ten_thousand_orders(tmp_path: Path) -> None:
    first, count = int(os.environ.get("SEED", "10000")), int(os.environ.get("COUNT", "10000"))
    for seed in range(first, first + count):
        run(tmp_path / str(seed), seed)
