"""However programs of one job are paused and lost, each row is visible once, and the newest program runs to its end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from headgate.connectors.file_sinks.file_sink import FileSink, Mode
from headgate.connectors.file_sinks.uploaded_files import UploadedFiles
from headgate.errors import CheckpointError, JobCancelled, Superseded
from headgate.ownership import Ownership
from headgate.runtime.checkpointing.checkpoints import Checkpoints
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors
from headgate.runtime.checkpointing.resume import LATEST_IF_ANY
from headgate.runtime.checkpointing.resumption import Resumption
from headgate.runtime.checkpointing.stored_checkpoints import StoredCheckpoints
from headgate.spark.dataframe_sink import ForeachDataframeSink
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.memory.edits import always, constant, dropped, never, replaced
from tests.memory.places import call, choice, condition
from tests.memory.planting import PlantedBug
from tests.runtime.owner_driver import ROWS
from tests.runtime.owner_machine import OwnerMachine
from tests.runtime.owner_orders import (
    calls_meanwhile,
    completes_late,
    completes_late_afresh,
    hand_overs,
    hand_overs_afresh,
    hunt,
    looks_meanwhile,
    lost_while_replacing,
    named_while_replacing,
    notes_between,
    notes_late,
    run,
)

#: The most that all files of a test need, in bytes: those of ten thousand orders.
SPACE = 2 << 30


@pytest.fixture(name="tmp_path")
def folder_in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if there is room: the programs make thousands of small files."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > SPACE:
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            yield Path(folder)
    else:
        yield tmp_path


UPLOADS = pytest.mark.parametrize("uploads", [False, True], ids=["files", "uploads"])


@UPLOADS
def test_one_program_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: bool) -> None:
    machine = OwnerMachine(tmp_path, monkeypatch, uploads=uploads)
    machine.start().step(100_000)
    machine.check(machine.newest)
    assert machine.hidden() == []
    assert machine.newest.epoch == 1


#: The operations between two that are tried. The normal run tries a third of them.
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])


@pytest.mark.turns(2)
@UPLOADS
@EVERY
def test_a_program_is_lost_before_each_operation(tmp_path: Path, every: int, uploads: bool) -> None:
    """And the next one goes on."""
    at, is_over = 0, False
    while not is_over:
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(tmp_path / str(at), patch, uploads=uploads)
            first = machine.start()
            first.step(at)
            is_over = first.has_ended
            if not is_over:
                first.lose()
            second = machine.start()
            second.step(100_000)
            machine.check(second)
            assert machine.hidden() == []
        at += every
    assert at > 70


@pytest.mark.turns(2)
@UPLOADS
@EVERY
def test_a_program_is_paused_before_each_operation_and_replaced(tmp_path: Path, every: int, uploads: bool) -> None:
    """It wakes up when its successor has ended, or is in the midst of the job."""
    at, superseded, is_over = 0, 0, False
    while not is_over:
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(tmp_path / str(at), patch, uploads=uploads)
            first = machine.start()
            first.step(at)
            is_over = first.has_ended
            second = machine.start()
            second.step(at * 7 % 200)
            first.step(100_000)
            second.step(100_000)
            machine.check(machine.newest)
            assert machine.hidden() == []
            superseded += isinstance(first.error, Superseded)
        at += every
    assert superseded > 40 / every


@pytest.mark.turns(2)
@UPLOADS
@pytest.mark.parametrize(("apart", "most"), [(20, 70), pytest.param(8, 140, marks=pytest.mark.soak)])
def test_a_program_sleeps_while_its_successor_takes_over(tmp_path: Path, apart: int, most: int, uploads: bool) -> None:
    assert hand_overs(tmp_path, apart, uploads=uploads) > most


@pytest.mark.turns(2)
@UPLOADS
@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_program_sleeps_while_it_shows_rows_and_another_starts_afresh(
    tmp_path: Path, mode: Mode, uploads: bool
) -> None:
    hand_overs_afresh(tmp_path, mode, uploads=uploads)


def test_a_program_is_lost_that_has_replaced_results(tmp_path: Path) -> None:
    lost_while_replacing(tmp_path)


def test_a_checkpoint_is_named_whose_rows_another_program_replaces(tmp_path: Path) -> None:
    assert named_while_replacing(tmp_path) > 20


def test_a_job_runs_while_another_program_looks_for_its_newest_checkpoint(tmp_path: Path) -> None:
    looks_meanwhile(tmp_path)


def test_a_program_sleeps_while_its_function_is_called(tmp_path: Path) -> None:
    calls_meanwhile(tmp_path)


def test_a_program_notes_what_it_shows_when_the_job_is_over(tmp_path: Path) -> None:
    notes_late(tmp_path)


@pytest.mark.parametrize("order", [completes_late, notes_between, completes_late_afresh])
def test_a_checkpoint_is_complete_while_others_take_over(tmp_path: Path, order: Callable[[Path], None]) -> None:
    order(tmp_path)


def test_a_program_resumes_from_a_savepoint_and_is_replaced(tmp_path: Path) -> None:
    """Before each third operation; the savepoint is gone once there is a newer checkpoint."""
    at, exact, is_over = 1, 0, False
    while not is_over:
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(tmp_path / str(at), patch, {("is saved", 0, 1), ("is cancelled late", 0, 1)})
            machine.start().step(100_000)
            [savepoint] = machine.saved()
            second = machine.start(savepoint)
            second.step(at)
            is_over = second.has_ended
            if len(machine.complete()) > 1:
                machine.delete(savepoint)
            third = machine.start()
            third.step(at * 7 % 200)
            second.step(100_000)
            third.step(100_000)
            machine.check(machine.newest)
            exact += machine.newest.error is None
        at += 3
    assert exact > 20


def test_three_programs_in_any_order(tmp_path: Path) -> None:
    ended = [run(tmp_path / str(seed), seed) for seed in range(80)]
    drivers = [driver for machine in ended for driver in machine.drivers]
    assert len(drivers) > 210
    assert sum(machine.rows() == list(range(ROWS)) for machine in ended if machine.mode != "append") > 40
    for mode in get_args(Mode):
        afresh = [
            driver for machine in ended if machine.mode == mode for driver in machine.drivers if not driver.resume
        ]
        assert {type(None), Superseded} <= {type(driver.error) for driver in afresh}, mode
    named = [driver for driver in drivers if driver.resume not in (None, LATEST_IF_ANY)]
    assert {type(driver.error) for driver in named} > {CheckpointError}, "some were refused, others were not"
    assert any(machine.has_deleted and machine.newest.error is None for machine in ended)
    assert any(isinstance(driver.error, JobCancelled) for driver in drivers)
    assert sum(machine.calls is not None for machine in ended) > 15


BUGS = [
    PlantedBug("the names of files do not contain their owner's epoch", FileSink.claim,
               constant(call("replace").keyword(1), 1)),
    PlantedBug("a program that claims the results late gets a newer epoch for them", FileSink.claim,
               replaced(call("claim").argument(1), "max(THIS, 1 + ledger.newest_owner())")),
    PlantedBug("a new owner does not record the checkpoint that it starts from", CheckpointStorage.start,
               dropped(call("note"))),
    PlantedBug("a program that resumes does not check for newer published rows", DriverConnectors.refuse_repeats,
               always(condition(1, of=2))),
    PlantedBug("a fresh start still counts the checkpoints whose results it removes", CheckpointStorage.start,
               replaced(choice().condition, "False")),
    PlantedBug("a fresh start lists the results only once before it removes them", FileSink._remove_all,
               replaced(call("range").argument(1), "1")),
    PlantedBug("a fresh start ignores the hidden files of an existing checkpoint", FileSink.begin,
               dropped(call("_check_hidden"))),
    PlantedBug("a program does not notice that the ledger of its published rows is gone", FileSink.published_after,
               never(condition(1, of=2))),
    PlantedBug("a fresh start removes the rows before the ledger that lists them", FileSink._remove_others,
               replaced(call("sorted", 1, of=2), "sorted(others, key=lambda entry: entry.path, reverse=True)")),
    PlantedBug("a program looks for a newer checkpoint only once", Checkpoints._is_outrun, always(condition())),
    PlantedBug("a program that has not recorded its start removes files", Checkpoints.abort, never(condition(1, of=2))),
    PlantedBug("a note counts although its claim is gone", Ownership.notes,
               replaced(call("intersection").argument(1), "noted")),
    PlantedBug("a call of the function fails because another program has removed the files",
               ForeachDataframeSink._hand_over, always(condition())),
    PlantedBug("the function gets the wrong run for the rows of a resumed checkpoint", ForeachDataframeSink._run_of,
               never(choice().condition)),
    PlantedBug("a savepoint is not listed among the job's own checkpoints", StoredCheckpoints.store,
               replaced(condition(2, of=2), "THIS and savepoint is None")),
    PlantedBug("a new owner does not look for a newer checkpoint", Resumption.find_again, dropped(call("find"))),
    PlantedBug("a new owner does not find the uploads of an older program", UploadedFiles.entries,
               replaced(call("open_uploads"), "[]")),
    PlantedBug("a file that was shown before counts as gone", UploadedFiles.show, replaced(call("bool"), "False")),
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug, tmp_path: Path) -> None:
    with bug.planted(), pytest.raises(AssertionError):
        hunt(tmp_path)


@pytest.mark.soak
def test_ten_thousand_orders(tmp_path: Path) -> None:
    first, count = int(os.environ.get("SEED", "10000")), int(os.environ.get("COUNT", "10000"))
    for seed in range(first, first + count):
        run(tmp_path / str(seed), seed)
