"""A folder has one owner: the program that claimed it last."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyarrow import fs

from headgate import filesystems, ownership
from headgate.errors import CheckpointError, ConfigError, Superseded
from headgate.filesystems import write_new
from headgate.ownership import Ownership, Program
from tests.s3_service import S3Service


def program(run: str) -> Program:
    return Program(run, "host", 7, 1700000000.0)


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a folder that does not exist yet, on each kind of filesystem that tests can run."""
    if request.param == "disk":
        return str(tmp_path / "owners")
    service: S3Service = request.getfixturevalue("s3")
    return f"{service.bucket()}/job/owners"


def owner(folder: str, run: str) -> Ownership:
    made = Ownership(folder, program(run))
    made.claim()
    return made


def test_the_last_to_claim_owns_and_the_others_find_out(folder: str) -> None:
    first = owner(folder, "a")
    first.check()
    second = owner(folder, "b")
    second.check()
    said = r"another program took over .*owners \(run b, process 7 on host, since 2023-11-14 22:13:20 UTC\)"
    with pytest.raises(Superseded, match=said):
        first.check()
    assert (first.epoch, second.epoch) == (1, 2)


def test_of_many_that_claim_at_once_each_has_an_epoch_of_its_own(folder: str) -> None:
    owners = [Ownership(folder, program(str(n))) for n in range(8)]
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


def test_a_program_that_slept_after_it_listed_gets_no_old_epoch(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile other programs claimed, and removed older claims. So the name that this program wants is free again."""
    owner(folder, "a")
    create = write_new

    def slept(path: str, content: bytes) -> bool:
        monkeypatch.setattr(ownership, "write_new", create)
        for run in "bcd":
            made = owner(folder, run)
            made.forget(made.epoch - 1)
        return create(path, content)

    monkeypatch.setattr(ownership, "write_new", slept)
    late = owner(folder, "late")
    late.check()
    assert late.epoch == 5


def test_a_removed_claim_does_not_count(folder: str) -> None:
    first = owner(folder, "a")
    filesystem, inside = filesystems.locate(f"{folder}/1")
    filesystem.delete_file(inside)
    with pytest.raises(Superseded, match="owners: was removed, by hand or by another job"):
        first.check()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"run": 1}', b'{"run": "", "host": "", "pid": 1, "since": 1e999}']
)
def test_an_unreadable_claim_counts(folder: str, content: bytes) -> None:
    first = owner(folder, "a")
    filesystems.write_whole(f"{folder}/2", content)
    with pytest.raises(Superseded, match=r"owners \(its claim cannot be read\)"):
        first.check()


def test_notes_are_replaced_and_forgotten(folder: str) -> None:
    first = owner(folder, "a")
    first.note({"n": 1})
    first.note({"n": 2})
    second = owner(folder, "b")
    second.note({"n": 3})
    assert second.notes() == {1: {"n": 2}, 2: {"n": 3}}
    second.forget(1)
    assert (second.notes(), second.epochs()) == ({2: {"n": 3}}, [2])
    first.forget(2)
    assert second.epochs() == [2], "no program removes the claim of a newer owner"


def test_a_file_is_created_once(folder: str) -> None:
    filesystem, inside = filesystems.locate(folder)
    filesystems.make_for_files(filesystem, inside)
    assert write_new(f"{folder}/x", b"first")
    assert not write_new(f"{folder}/x", b"second")
    with filesystem.open_input_file(f"{inside}/x") as stream:
        assert stream.read() == b"first"


def test_a_filesystem_that_cannot_create_a_file_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="mock cannot create a file only if it does not exist"):
        write_new("mock://x/y", b"")


def test_a_rename_does_not_replace_where_files_are_renamed(tmp_path: Path) -> None:
    """HDFS refuses to rename a file over another one, and so does this filesystem."""
    from pyarrow import fs

    class Renaming(fs.LocalFileSystem):
        def move(self, source: str, target: str) -> None:
            if Path(target).exists():
                raise OSError(f"rename {source}: destination exists")
            super().move(source, target)

    disk, path = Renaming(), str(tmp_path / "1")
    assert filesystems._rename_to_new(disk, path, b"first")
    assert not filesystems._rename_to_new(disk, path, b"second")
    assert [each.name for each in tmp_path.iterdir()] == ["1"]
    assert Path(path).read_bytes() == b"first"


class MadeMeanwhile(fs.LocalFileSystem):
    """A filesystem on which another program makes the folder between Arrow's two looks for it."""

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        if not Path(selector.base_dir).exists():
            Path(selector.base_dir).mkdir()
            raise FileNotFoundError(selector.base_dir)
        return list(super().get_file_info(selector))


def test_a_folder_that_is_made_while_it_is_listed_is_no_error(tmp_path: Path) -> None:
    """One of two programs that started at the same time once failed."""
    assert filesystems.listing(MadeMeanwhile(), str(tmp_path / "owners")) == []


def test_an_impossible_epoch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / "9999999999999999").touch()
    with pytest.raises(CheckpointError, match="9999999999999999 is not a program's claim: .*; remove that file"):
        Ownership(str(tmp_path / "owners"), program("1")).claim()
