"""A folder has one owner, the program that claimed it last."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headgate import filesystems, ownership
from headgate.errors import ConfigError, Superseded
from headgate.filesystems import write_new
from headgate.ownership import Ownership, Program


def program(run: str) -> Program:
    return Program(run, "host", 7, 1700000000.0)


def owner(folder: Path, run: str) -> Ownership:
    made = Ownership(str(folder), program(run))
    made.claim()
    return made


def test_the_last_to_claim_owns_and_the_others_find_out(tmp_path: Path) -> None:
    first = owner(tmp_path / "owners", "a")
    first.check()
    second = owner(tmp_path / "owners", "b")
    second.check()
    said = r"another program took over .*owners \(run b, process 7 on host, since 2023-11-14 22:13:20 UTC\)"
    with pytest.raises(Superseded, match=said):
        first.check()
    assert (first.epoch, second.epoch) == (1, 2)


def test_of_many_that_claim_at_once_each_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    owners = [Ownership(str(tmp_path / "owners"), program(str(n))) for n in range(8)]
    threads = [threading.Thread(target=each.claim) for each in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    epochs = sorted(each.epoch for each in owners)
    assert len(set(epochs)) == 8
    newest = max(owners, key=lambda each: each.epoch)
    newest.check()
    for each in owners:
        if each is not newest:
            with pytest.raises(Superseded):
                each.check()


def test_a_program_that_slept_after_it_listed_gets_no_old_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have claimed, and removed the claims before theirs, so that the name it wants is free again."""
    folder = tmp_path / "owners"
    owner(folder, "a")
    create = write_new

    def slept(path: str, content: bytes) -> bool:
        monkeypatch.setattr(ownership, "write_new", create)
        for run in "bcd":
            owner(folder, run).forget(100)
        return create(path, content)

    monkeypatch.setattr(ownership, "write_new", slept)
    late = owner(folder, "late")
    late.check()
    assert late.epoch == 5


def test_a_claim_that_was_removed_is_none(tmp_path: Path) -> None:
    first = owner(tmp_path / "owners", "a")
    (tmp_path / "owners" / "1").unlink()
    with pytest.raises(Superseded, match="its claim is gone"):
        first.check()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"run": 1}', b'{"run": "", "host": "", "pid": 1, "since": 1e999}']
)
def test_a_claim_that_says_nothing_counts_all_the_same(tmp_path: Path, content: bytes) -> None:
    first = owner(tmp_path / "owners", "a")
    (tmp_path / "owners" / "2").write_bytes(content)
    with pytest.raises(Superseded, match=r"owners \(its claim"):
        first.check()


def test_notes_are_replaced_and_forgotten(tmp_path: Path) -> None:
    first = owner(tmp_path / "owners", "a")
    first.note({"n": 1})
    first.note({"n": 2})
    second = owner(tmp_path / "owners", "b")
    second.note({"n": 3})
    assert second.notes() == {1: {"n": 2}, 2: {"n": 3}}
    second.forget(2)
    assert (second.notes(), second.epochs()) == ({2: {"n": 3}}, [2])
    first.forget(2)
    assert second.epochs() == [2], "nobody removes the claim of a newer owner"


def test_a_file_is_created_once(tmp_path: Path) -> None:
    assert write_new(str(tmp_path / "x"), b"first")
    assert not write_new(str(tmp_path / "x"), b"second")
    assert (tmp_path / "x").read_bytes() == b"first"


def test_a_filesystem_that_cannot_create_a_file_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="mock cannot create a file only if it is not there"):
        write_new("mock://x/y", b"")


def test_a_rename_does_not_replace_where_files_are_renamed(tmp_path: Path) -> None:
    """As HDFS does it, on a filesystem that refuses to rename over a file."""
    from pyarrow import fs

    class Renaming(fs.LocalFileSystem):  # type: ignore[misc]
        def move(self, source: str, target: str) -> None:
            if Path(target).exists():
                raise OSError(f"rename {source}: destination exists")
            super().move(source, target)

    disk, path = Renaming(), str(tmp_path / "1")
    assert filesystems._rename_to_new(disk, path, b"first")
    assert not filesystems._rename_to_new(disk, path, b"second")
    assert [each.name for each in tmp_path.iterdir()] == ["1"]
    assert Path(path).read_bytes() == b"first"
