"""Checkpoint storage in real folders: checkpoints are complete or do not exist, are verified, and survive failures."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import pickle
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from headgate import filesystems
from headgate.errors import CheckpointError, StorageError, Superseded
from headgate.ownership import Ownership, Program
from headgate.state import checkpoint_files, checkpoint_storage
from headgate.state.checkpoint_files import listed, read_state
from headgate.state.checkpoint_metadata import CheckpointMetadata, Finished, StateFile
from headgate.state.checkpoint_storage import (
    CheckpointStorage,
    discard,
    find_checkpoints,
    load_checkpoint,
    savepoint_folder,
    store,
    verify_checkpoint,
    write_part,
)
from tests.s3_service import S3Service
from tests.state.checkpoints import FullDisk, make_checkpoint, metadata_of, sealed


def ids(storage: CheckpointStorage) -> list[int]:
    """Return the numbers of the checkpoints that count, the newest first."""
    return [int(folder.rpartition("chk-")[2]) for folder in storage.completed()]


def discard_own(storage: CheckpointStorage, checkpoint: int) -> None:
    discard(storage.folder_of(checkpoint))


def usable(storage: CheckpointStorage) -> CheckpointMetadata | None:
    folder = storage.latest_usable()
    return None if folder is None else storage.load(folder)


def names(folder: str) -> list[str]:
    return sorted(each.base_name for each in listed(folder))


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(tmp_path / "checkpoints", "delays")


@pytest.fixture(params=["disk", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    """Return a storage on each kind of filesystem that tests can run."""
    if request.param == "disk":
        return CheckpointStorage(tmp_path / "checkpoints", "delays")
    service: S3Service = request.getfixturevalue("s3")
    return CheckpointStorage(f"{service.bucket()}/checkpoints", "delays")


def another(storage: CheckpointStorage, run: str) -> CheckpointStorage:
    """Return the same storage, claimed by another program."""
    claimed = CheckpointStorage(storage.folder.rpartition("/")[0], storage.job)
    claimed.claim(Program(run, "host", 7, 1700000000.0))
    return claimed


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path, scheme: str) -> None:
    storage = pickle.loads(pickle.dumps(CheckpointStorage(f"{scheme}{tmp_path}/a b", "delays")))
    storage.check()
    assert ids(storage) == []
    assert usable(storage) is None
    assert storage.next_id() == 1
    metadata = make_checkpoint(storage, 1)
    assert storage.load(storage.folder_of(1)) == usable(storage) == load_checkpoint(storage.folder_of(1)) == metadata
    file, finished = metadata.vertices[0].tasks
    assert isinstance(file, StateFile)
    assert read_state(file).to_pybytes() == b"state!"
    assert finished == Finished({"read#0": 7})
    assert metadata.size == 6
    assert (ids(storage), storage.next_id()) == ([1], 2)
    names = sorted(os.listdir(tmp_path / "a b" / "delays" / "chk-1"))
    assert len(names) == 2
    assert names[1] == "_metadata"
    assert re.fullmatch(r"0-read-write-0-\w{12}\.state", names[0])


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_nobody_else_reads_or_writes_what_is_made(tmp_path: Path) -> None:
    above = tmp_path / "above"
    make_checkpoint(CheckpointStorage(above / "checkpoints", "delays"), 1)
    write_part(savepoint_folder(f"file://{above}/savepoints", "delays", 2, "ab"), 0, "t", [b"state"])
    made = modes(above)
    files = {name: mode for name, mode in made.items() if (above / name).is_file()}
    assert len(files) == 3
    assert set(files.values()) == {0o600}
    assert {mode for name, mode in made.items() if name not in files} == {0o700}
    assert {"checkpoints/delays/chk-1", "savepoints/delays/sp-2-ab"} < made.keys() - files


@pytest.mark.usefixtures("open_umask")
def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o775)
    storage = CheckpointStorage(tmp_path / "shared", "delays")
    storage.check()
    make_checkpoint(storage, 1)
    found = modes(tmp_path / "shared")
    assert (found["."], found["delays"]) == (0o775, 0o700)


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_file_is_refused(storage: CheckpointStorage) -> None:
    metadata = make_checkpoint(storage, 1)
    [file] = metadata.files
    os.unlink(file.path)
    os.mkfifo(file.path)
    with pytest.raises(CheckpointError, match=f"{re.escape(file.path)}: cannot be read, it is not a regular file"):
        verify_checkpoint(metadata)
    os.unlink(f"{storage.folder_of(1)}/_metadata")
    os.mkfifo(f"{storage.folder_of(1)}/_metadata")
    assert storage.completed() == []


def test_the_files_of_a_checkpoint_reach_the_disk_before_its_metadata(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert not os.path.exists(f"{storage.folder_of(1)}/_metadata") or os.path.isdir(synced[-1])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files = [file.path for file in make_checkpoint(storage, 1).files]
    *written, _, metadata, folder, above = synced
    assert written == files
    assert metadata.startswith(f"{storage.folder_of(1)}/._metadata-")
    assert (folder, above) == (storage.folder_of(1), storage.folder)


def test_a_new_folder_is_on_the_disk_with_those_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    storage = CheckpointStorage(tmp_path / "a" / "b", "delays")
    storage.check()
    assert synced[:3] == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]


def test_a_checkpoint_can_be_moved(storage: CheckpointStorage, tmp_path: Path) -> None:
    make_checkpoint(storage, 4)
    shutil.move(storage.folder_of(4), tmp_path / "kept")
    moved = load_checkpoint(tmp_path / "kept")
    verify_checkpoint(moved)
    assert [file.path.rpartition("/")[0] for file in moved.files] == [str(tmp_path / "kept")]
    assert load_checkpoint(tmp_path / "kept" / "_metadata") == moved


def test_the_newest_checkpoints_are_retained_and_abandoned_ones_removed(anywhere: CheckpointStorage) -> None:
    for checkpoint in range(1, 12):
        if checkpoint % 2:
            make_checkpoint(anywhere, checkpoint)
        else:
            write_part(anywhere.folder_of(checkpoint), 0, "t", [b"aborted"])
    write_part(anywhere.folder_of(12), 0, "t", [b"in the making"])
    anywhere.retain(2)
    assert ids(anywhere) == [11, 9]
    assert anywhere.next_id() == 13
    assert names(anywhere.folder) == ["chk-11", "chk-12", "chk-9"]
    discard_own(anywhere, 11)
    discard_own(anywhere, 11)
    assert ids(anywhere) == [9]


def test_savepoints_are_not_among_the_retained_checkpoints(anywhere: CheckpointStorage) -> None:
    """The user may remove a savepoint, and the job must then still have checkpoints to resume from."""
    for checkpoint in (1, 2, 4):
        make_checkpoint(anywhere, checkpoint)
    for savepoint in (3, 5, 6, 7):
        kind: Any = {"kind": "savepoint", "folder": f"{anywhere.folder}/sp-{savepoint}-ab"}
        anywhere.complete(dataclasses.replace(metadata_of(anywhere, savepoint, (Finished(),)), **kind))
    anywhere.retain(2)
    assert ids(anywhere) == [7, 6, 5, 4, 3, 2]
    make_checkpoint(anywhere, 8)
    anywhere.retain(2)
    assert ids(anywhere) == [8, 7, 6, 5, 4]


def test_a_folder_that_cannot_be_listed_does_not_fail_a_complete_checkpoint(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for checkpoint in (1, 2):
        make_checkpoint(storage, checkpoint)

    def broken(folder: str) -> Any:
        raise StorageError(f"{folder}: cannot be listed")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_storage, "listed", broken)
        storage.retain(1)
    assert f"old checkpoints are left: {storage.folder}: cannot be listed" in caplog.text
    assert ids(storage) == [2, 1]


def test_a_folder_can_be_used_and_has_nothing_at_first(anywhere: CheckpointStorage) -> None:
    assert find_checkpoints(anywhere.folder) == anywhere.completed() == []
    anywhere.check()
    anywhere.remove_incomplete(9)
    anywhere.retain()
    assert find_checkpoints(anywhere.folder) == anywhere.completed() == []
    assert anywhere.latest_usable() is None
    assert [name for name in names(anywhere.folder) if name.startswith(".probe")] == []


def test_what_is_removed_leaves_no_checkpoint(anywhere: CheckpointStorage) -> None:
    """S3 has no folders; empty objects that stand for them may remain."""
    make_checkpoint(anywhere, 1)
    discard_own(anywhere, 1)
    assert (find_checkpoints(anywhere.folder), anywhere.completed(), anywhere.next_id()) == ([], [], 1)
    write_part(anywhere.folder_of(2), 0, "t", [b"given up"])
    anywhere.remove_incomplete(2)
    assert (find_checkpoints(anywhere.folder), anywhere.next_id()) == ([], 1)


def test_a_program_that_dies_between_its_claim_and_its_start_changes_nothing(anywhere: CheckpointStorage) -> None:
    first = another(anywhere, "first")
    first.start(None)
    for checkpoint in (1, 2):
        make_checkpoint(first, checkpoint)
    counting = first.completed()
    another(anywhere, "died")
    with pytest.raises(Superseded, match="run died"):
        make_checkpoint(first, 3)
    assert anywhere.completed() == counting
    last = another(anywhere, "last")
    assert last.completed() == counting
    assert last.next_id() == 4, "the number of what has no metadata is taken"
    last.start(counting[0])
    last.remove_incomplete(9)
    make_checkpoint(last, 4)
    assert anywhere.completed() == [last.folder_of(4), *counting]
    assert find_checkpoints(anywhere.folder) == anywhere.completed()


def test_what_older_owners_noted_is_removed_once_none_of_their_checkpoints_is_kept(anywhere: CheckpointStorage) -> None:
    """Otherwise each start of a job would leave two files for ever."""
    owners = [another(anywhere, "0")]
    owners[0].start(None)
    make_checkpoint(owners[0], 1)
    for number in range(1, 4):
        owners.append(another(anywhere, str(number)))
        owners[-1].start(owners[-2].completed()[0])
        make_checkpoint(owners[-1], number + 1)
        owners[-1].retain()
    assert notes_of(anywhere) == {1, 2, 3, 4}, "a checkpoint of the second is kept"
    for checkpoint in (5, 6):
        make_checkpoint(owners[-1], checkpoint)
        owners[-1].retain()
    assert notes_of(anywhere) == {4}
    counting = [owners[-1].folder_of(checkpoint) for checkpoint in (6, 5, 4)]
    for owner in owners[:-1]:  # each was paused before it completed this one, and wakes up only now
        store(owner.folder_of(9), metadata_of(owner, 9, (Finished(),)))
    assert owners[-1].completed() == counting
    last = another(anywhere, "last")
    assert last.completed() == counting
    last.start(counting[1])
    assert last.completed() == counting[1:]
    with pytest.raises(Superseded, match="run last"):
        owners[0].retain()


def test_the_note_of_a_start_from_elsewhere_is_not_removed(anywhere: CheckpointStorage) -> None:
    another(anywhere, "first").start(None)
    owner = another(anywhere, "second")
    owner.start("/elsewhere/job/sp-7-0a")
    for checkpoint in (1, 2, 3):
        make_checkpoint(owner, checkpoint)
        owner.retain()
    assert notes_of(anywhere) == {2}
    assert another(anywhere, "third").completed()[-1] == "/elsewhere/job/sp-7-0a"


def test_notes_that_cannot_be_removed_are_tried_again(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    another(storage, "first").start(None)
    owner = another(storage, "second")
    owner.start(None)
    with monkeypatch.context() as patch:
        patch.setattr(Ownership, "forget", lambda self, last: os.rmdir(storage.folder))
        for checkpoint in (1, 2, 3):
            make_checkpoint(owner, checkpoint)
            owner.retain()
    assert "the notes of older owners are left" in caplog.text
    assert notes_of(storage) == {1, 2}
    owner.retain()
    assert notes_of(storage) == {2}


def notes_of(storage: CheckpointStorage) -> set[int]:
    """Return the owners that have files."""
    return {int(entry.base_name.partition(".")[0]) for entry in listed(f"{storage.folder}/owners")}


def test_without_a_complete_checkpoint_nothing_is_removed(anywhere: CheckpointStorage) -> None:
    write_part(anywhere.folder_of(1), 0, "t", [b"in the making"])
    anywhere.retain()
    assert names(anywhere.folder) == ["chk-1"]


def test_an_old_attempt_that_writes_the_same_checkpoint_changes_nothing(anywhere: CheckpointStorage) -> None:
    old = write_part(anywhere.folder_of(5), 0, "t[0]", [b"of the old attempt"])
    new = write_part(anywhere.folder_of(5), 1, "t[0]", [b"of the new one"])
    anywhere.complete(metadata_of(anywhere, 5, (new,)))
    write_part(anywhere.folder_of(5), 0, "t[0]", [b"late"])
    assert write_part(anywhere.folder_of(5), 1, "t[0]", [b"another run"]).path != new.path != old.path
    found = usable(anywhere)
    assert found is not None
    assert [read_state(file).to_pybytes() for file in found.files] == [b"of the new one"]


def test_jobs_do_not_see_each_other(tmp_path: Path) -> None:
    names = ["a b", "a-b", "a/b", "..", "", "chk-3", "x" * 300, "x" * 301, "ä"]
    storages = [CheckpointStorage(tmp_path, name) for name in names]
    for checkpoint, storage in enumerate(storages, 1):
        make_checkpoint(storage, checkpoint)
    assert [ids(storage) for storage in storages] == [[each] for each in range(1, 10)]
    assert len(os.listdir(tmp_path)) == 9
    assert sorted(find_checkpoints(tmp_path)) == sorted(each.folder_of(n) for n, each in enumerate(storages, 1))


def test_checkpoints_are_found_from_the_folders_above(anywhere: CheckpointStorage) -> None:
    above = anywhere.folder.rpartition("/")[0]
    for checkpoint in (2, 10):
        make_checkpoint(anywhere, checkpoint)
    write_part(anywhere.folder_of(11), 0, "t", [b""])
    expected = [anywhere.folder_of(checkpoint) for checkpoint in (11, 10, 2)]
    assert find_checkpoints(above) == find_checkpoints(anywhere.folder) == expected
    assert find_checkpoints(anywhere.folder_of(10)) == [anywhere.folder_of(10)]
    assert find_checkpoints(f"{above}/nowhere") == []


def cuts(size: int) -> list[int]:
    return sorted({*range(0, size, max(1, size // 40)), size - 1, size - 2})


@pytest.mark.parametrize("which", ["_metadata", ".state"])
def test_a_torn_file_is_named_and_the_checkpoint_before_is_used(
    storage: CheckpointStorage, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    before = make_checkpoint(storage, 1)
    make_checkpoint(storage, 2, bytes(range(50)))
    path = next(each for each in Path(storage.folder_of(2)).iterdir() if each.name.endswith(which))
    content = path.read_bytes()
    for cut in cuts(len(content.rstrip())):
        path.write_bytes(content[:cut])
        with caplog.at_level(logging.WARNING):
            assert usable(storage) == before
        assert str(path) in caplog.messages[-1]
        assert "chk-2 cannot be used" in caplog.messages[-1]
    for at in range(0, len(content), 7):
        flipped = bytes([content[at] ^ 1])
        path.write_bytes(content[:at] + flipped + content[at + 1 :])
        assert usable(storage) == before or json.loads(path.read_bytes()) == json.loads(content)
    path.unlink()
    assert usable(storage) == before


def test_the_error_names_a_missing_file(storage: CheckpointStorage) -> None:
    [file] = make_checkpoint(storage, 1).files
    os.remove(file.path)
    with pytest.raises(CheckpointError, match=re.escape(f"{file.path}: cannot be read, it does not exist")):
        read_state(file)
    with pytest.raises(CheckpointError, match="is not a completed checkpoint, it has no _metadata"):
        storage.load(storage.folder_of(2))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "is not the metadata of a checkpoint"),
        ('{"format": "parquet"}', "is not the metadata of a checkpoint"),
        ('{"format": "headgate checkpoint", "version": 3}', "has version 3, and this Headgate reads 1 to 2"),
    ],
)
def test_the_error_says_what_is_wrong_with_foreign_metadata(
    storage: CheckpointStorage, content: str, says: str
) -> None:
    make_checkpoint(storage, 1)
    Path(storage.folder_of(1), "_metadata").write_text(content)
    with pytest.raises(CheckpointError, match=f"chk-1/_metadata: {says}"):
        storage.load(storage.folder_of(1))


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


@pytest.mark.parametrize(
    "content",
    [b'{"checkpoint": NaN}', b'{"checkpoint": {"duration": 1e999}}', b"[" * 200_000, b"[" * 100_000 + b"]" * 100_000,
     b'{"version": ' + b"1" * 6000 + b"}", b"\xff\xfe{}"],
    ids=["nan", "infinite", "deep", "deep and closed", "many digits", "no text"],
)  # fmt: skip
def test_the_error_names_metadata_that_is_no_json(storage: CheckpointStorage, content: bytes) -> None:
    make_checkpoint(storage, 1)
    Path(storage.folder_of(1), "_metadata").write_bytes(content)
    with pytest.raises(
        CheckpointError, match="chk-1/_metadata: is incomplete, or is not the metadata of a checkpoint; start from"
    ):
        storage.load(storage.folder_of(1))


FILE: Sequence[str | int] = ("vertices", 0, "tasks", 0)
FINISHED: Sequence[str | int] = ("vertices", 0, "tasks", 1)
WRONG: Sequence[tuple[Sequence[str | int], Any, str]] = [
    (["id"], "7", "id is '7', not a whole number from 1 to"),
    (["id"], True, "id is True"),
    (["id"], 0, "id is 0"),
    (["id"], 1 << 53, "id is 9007199254740992"),
    (["timestamp"], "now", "timestamp is 'now', not a number"),
    (["timestamp"], 1e300, "timestamp is 1e"),
    (["duration"], -1, "duration is -1"),
    (["job"], "\ud800", r"job is '\\ud800', not a text"),
    (["kind"], "x", "kind is 'x', not 'checkpoint' or 'savepoint'"),
    (["folder"], "rel", "folder is 'rel', not an absolute path or a URI"),
    (["vertices"], [], r"vertices is \[\], not a list of 1 or more"),
    (["nodes"], None, "nodes is None, not a list"),
    (["pending"], [], r"pending is \[\], not an object"),
    (["pending", "out"], 5, r"pending\['out'\] is 5, not a list"),
    (["prepared"], "q", "prepared is 'q', not an object"),
    (["prepared", "x"], deep(70), "is deeper than 64 levels"),
    (["more"], 1, "has 'more', which is unknown"),
    (["vertices", 0, "max_parallelism"], 0, "max_parallelism is 0"),
    (["vertices", 0, "tasks"], [{}], r"tasks\[0\] lacks 'checksum'"),
    ([*FILE, "size"], -1, r"vertices\[0\].tasks\[0\].size is -1"),
    ([*FILE, "size"], "1", "size is '1'"),
    *(([*FILE, "file"], name, "file is .*, not the name of a file")
      for name in (None, "", "..", "../../etc/passwd", "a\0b", "\ud800", "a" * 300)),
    ([*FINISHED, "finished"], 5, "finished is 5, not an object"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "says"), WRONG, ids=lambda value: str(value)[:20])
def test_the_error_names_the_wrong_place_in_metadata(
    storage: CheckpointStorage, place: Sequence[Any], value: Any, says: str
) -> None:
    make_checkpoint(storage, 1)
    path = Path(storage.folder_of(1), "_metadata")
    body = json.loads(path.read_bytes())["checkpoint"]
    inner = body
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path.write_bytes(sealed(body))
    with pytest.raises(
        CheckpointError, match=rf"chk-1/_metadata: is not the metadata of a checkpoint: checkpoint.*{says}"
    ):
        storage.load(storage.folder_of(1))


def test_metadata_of_another_checkpoint_or_job_are_not_taken(storage: CheckpointStorage, tmp_path: Path) -> None:
    make_checkpoint(storage, 1)
    other = CheckpointStorage(tmp_path / "checkpoints", "other")
    shutil.copytree(storage.folder, other.folder)
    with pytest.raises(CheckpointError, match="other/chk-1/_metadata: is of job 'delays', not 'other'"):
        other.load(other.folder_of(1))
    assert load_checkpoint(other.folder_of(1)).job == "delays", "named, it can be used"
    shutil.copytree(storage.folder_of(1), storage.folder_of(2))
    with pytest.raises(CheckpointError, match="chk-2/_metadata: describes checkpoint 1, not that of its folder"):
        storage.load(storage.folder_of(2))


def test_a_folder_whose_number_is_too_large_is_ignored(storage: CheckpointStorage) -> None:
    make_checkpoint(storage, 3)
    shutil.copytree(storage.folder_of(3), storage.folder_of((1 << 63) - 1))
    assert (storage.next_id(), ids(storage)) == (4, [3])


def test_only_the_link_to_a_checkpoint_is_removed(storage: CheckpointStorage, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for checkpoint in range(1, 5):
        make_checkpoint(storage, checkpoint)
    shutil.move(storage.folder_of(1), target)
    os.symlink(target, storage.folder_of(1))
    storage.retain()
    assert sorted(os.listdir(storage.folder)) == ["chk-2", "chk-3", "chk-4"]
    assert len(os.listdir(target)) == 2


def test_a_value_that_json_cannot_hold_is_refused(storage: CheckpointStorage) -> None:
    for value in (b"bytes", float("nan"), {1, 2}, deep(70), deep(900)):
        metadata = metadata_of(storage, 1, (Finished({"read#0": value}),))
        with pytest.raises(CheckpointError, match="checkpoint 1: a source or sink keeps a value that JSON cannot hold"):
            storage.complete(metadata)
    assert ids(storage) == []
    storage.complete(metadata_of(storage, 1, (Finished({"read#0": {10: "ten", 9: "nine"}}),)))
    assert storage.load(storage.folder_of(1)).vertices[0].tasks == (Finished({"read#0": {"10": "ten", "9": "nine"}}),)


def test_a_full_disk_leaves_the_checkpoint_before(storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_checkpoint(storage, 1)
    needed = sum(each.stat().st_size for each in Path(storage.folder_of(1)).iterdir())
    locate = checkpoint_files.locate  # type: ignore[attr-defined]
    for room in (0, 3, 6, 7, 100, needed - 1, needed):
        disk = fs.PyFileSystem(FullDisk(room))
        for module in (checkpoint_files, filesystems):
            monkeypatch.setattr(module, "locate", lambda path, disk=disk: (disk, locate(path)[1]))
        if room < needed:
            with pytest.raises(CheckpointError, match=r"cannot be written: .*No space left.*; free some space there"):
                make_checkpoint(storage, 2)
            assert usable(storage) == before
            assert not [each for each in Path(storage.folder_of(2)).iterdir() if not each.name.endswith(".state")]
            discard_own(storage, 2)
        else:
            make_checkpoint(storage, 2)
            assert ids(storage) == [2, 1]
    assert sorted(os.listdir(storage.folder)) == ["chk-1", "chk-2"]


class ReadOnly(FullDisk):
    def create_dir(self, path: str, recursive: bool) -> None:
        raise OSError(errno.EROFS, "Read-only file system")


def test_a_folder_that_cannot_be_written_is_known_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/in/it"):
        with pytest.raises(CheckpointError, match=rf"{place}/job: cannot be made: .*; part of that path is a file"):
            CheckpointStorage(tmp_path / place, "job").check()
    with pytest.raises(CheckpointError, match=r"^nowhere://x/job: cannot be made: Unrec.*; give a path, or a URI of"):
        CheckpointStorage("nowhere://x", "job").check()
    disk = fs.PyFileSystem(ReadOnly(1000))
    monkeypatch.setattr(checkpoint_files, "locate", lambda path: (disk, path))
    with pytest.raises(CheckpointError, match=r"Read-only file system; make it writable for the job's user"):
        CheckpointStorage(tmp_path / "dir", "job").check()
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc here")
def test_a_folder_that_is_really_read_only_is_known_at_once() -> None:
    with pytest.raises(CheckpointError, match=r"^/proc/self/job: cannot be made"):
        CheckpointStorage("/proc/self", "job").check()


def test_check_leaves_nothing(storage: CheckpointStorage) -> None:
    storage.check()
    assert os.listdir(storage.folder) == []
