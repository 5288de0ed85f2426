"""The ledger: what the programs of a job, one after the other, record about visible results."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.connectors.file_sinks.ledger import Ledger, abandoned
from headgate.errors import Superseded
from headgate.ownership import Program


def owned(root: Path, run: str, resumed: tuple[int, str] = (0, ""), of: str = "results") -> Ledger:
    """Return the ledger of a program that has just claimed the results."""
    ledger = Ledger(str(root), of, "/home", Program(run, "host", 1, 0.0), resumed)
    assert ledger.claim(1 + ledger.newest_owner())
    return ledger


def test_a_checkpoint_of_an_older_program_lacks_the_rows_of_a_newer_one(tmp_path: Path) -> None:
    """Also if its numbers are higher: the newer program started from an early checkpoint."""
    older = owned(tmp_path, "1")
    older.show(2)
    newer = owned(tmp_path, "2", resumed=(2, "1"))
    newer.show(3)
    assert newer.published_after(160, "1") == 3
    assert [newer.published_after(number, "2") for number in (2, 3, 4)] == [3, 0, 0]
    assert newer.published_after(160, "a program whose claim is gone") == 3
    assert [newer.published_after(number, "") for number in (2, 3)] == [3, 0], "checkpoints of version 1 have no run"


def test_a_checkpoint_of_a_newer_program_has_the_rows_of_older_ones(tmp_path: Path) -> None:
    owned(tmp_path, "1").show(160)
    newer = owned(tmp_path, "2", resumed=(2, "1"))  # as with allow_duplicates
    newer.show(3)
    assert [newer.published_after(number, "2") for number in (2, 3)] == [3, 0]
    newest = owned(tmp_path, "3", resumed=(3, "2"))
    assert newest.published_after(1, "3") == 0


def test_a_resumed_checkpoint_is_recorded_under_the_run_that_took_it(tmp_path: Path) -> None:
    owned(tmp_path, "1")
    newer = owned(tmp_path, "2", resumed=(2, "1"))
    newer.show(2)
    assert [newer.published_after(number, "1") for number in (1, 2, 3)] == [2, 0, 0]


def test_the_last_programs_note_contains_what_older_ones_noted(tmp_path: Path) -> None:
    owned(tmp_path, "1").show(2)
    newer = owned(tmp_path, "2", resumed=(2, "1"))
    newer.show(3)
    newer.close(keep=False)
    assert newer.published_after(160, "1") == 3
    newest = owned(tmp_path, "3", resumed=(3, "2"))
    newest.close(keep=False)
    assert newest.published_after(160, "1") == 3
    assert [newest.published_after(number, "2") for number in (2, 3)] == [3, 0]


def test_a_run_stays_given_up_until_the_next_claim(tmp_path: Path) -> None:
    lost = owned(tmp_path, "1", of="lost")
    for is_known in (False, True):
        ((run, ledger),) = abandoned(str(tmp_path), "/home", ["results"], Program("2", "host", 2, 0.0))
        assert run == "lost"
        assert ledger.claim(1 + ledger.newest_owner())
        assert lost.is_given_up() is is_known
        assert ledger.give_up() is is_known
    with pytest.raises(Superseded):
        lost.check()


def test_a_run_that_another_job_resumed_is_not_abandoned(tmp_path: Path) -> None:
    owned(tmp_path, "1", of="run")
    other = Ledger(str(tmp_path), "run", "/home/of/another", Program("2", "host", 2, 0.0), (1, "1"))
    assert other.claim(1 + other.newest_owner())
    assert list(abandoned(str(tmp_path), "/home", [], Program("3", "host", 3, 0.0))) == []
    assert [run for run, _ in abandoned(str(tmp_path), "/home/of/another", [], Program("3", "host", 3, 0.0))] == ["run"]
