"""Files that are larger than any job writes, because they are forged or were enlarged, are refused unread."""

from __future__ import annotations

import os
import re
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.connectors.file_sinks.ledger import Ledger
from headgate.errors import CheckpointError, SinkError, Superseded, UnusableState
from headgate.ownership import Program
from headgate.state import checkpoint_files, shapes
from headgate.state.checkpoint_files import read_state, verify_state
from headgate.state.checkpoint_storage import CheckpointStorage
from headgate.state.in_flight_file import decode_in_flight
from headgate.state.snapshot import Snapshot, decode, encode
from tests.state.checkpoints import make_checkpoint

HUGE = 10 << 30
PROGRAM = Program("run", "host", 7, 1700000000.0)


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """To read one of these files ends with an error, and not with the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (HUGE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(tmp_path, "job")


def test_metadata_of_ten_gigabytes(storage: CheckpointStorage) -> None:
    make_checkpoint(storage, 1)
    place = f"{storage.folder_of(1)}/_metadata"
    os.truncate(place, HUGE)
    said = f"cannot be read, it has {HUGE} bytes, and Headgate writes at most {256 << 20}, so it is another file"
    with pytest.raises(CheckpointError, match=f"{re.escape(place)}: {said}"):
        storage.load(storage.folder_of(1))


def test_metadata_too_large_to_read_are_not_written(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.state.checkpoint_metadata.MOST_JSON", 100)
    with pytest.raises(
        CheckpointError, match=r"checkpoint 1: _metadata would have \d+ bytes, and at most 100 are allowed; read"
    ):
        make_checkpoint(storage, 1)
    assert storage.completed() == []


def test_a_part_that_has_grown(storage: CheckpointStorage) -> None:
    [file] = make_checkpoint(storage, 1).files
    os.truncate(file.path, HUGE)
    for read in (read_state, verify_state):
        with pytest.raises(CheckpointError, match=f"has {HUGE} bytes, and 6 were written: it is incomplete"):
            read(file)


def test_a_part_that_no_memory_takes(storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint_files.machine_memory() > 1 << 28
    [file] = make_checkpoint(storage, 1).files
    monkeypatch.setattr(checkpoint_files, "machine_memory", lambda: 5)
    with pytest.raises(UnusableState, match=r"\.state: has 6 bytes, and this machine has 5 bytes of memory; use"):
        read_state(file)
    verify_state(file)


def state_with(index: bytes) -> pa.Buffer:
    rest = struct.pack("<Q", len(index)) + index
    return pa.py_buffer(b"HGSS" + struct.pack("<II", 1, zlib.crc32(rest)) + rest)


def flying_with(index: bytes) -> pa.Buffer:
    return pa.py_buffer(b"HGIF" + struct.pack("<IQ", 1, len(index)) + index)


@pytest.mark.parametrize(
    ("made", "read"), [(state_with, decode), (flying_with, decode_in_flight)], ids=["state", "in flight"]
)
def test_an_index_that_would_take_all_memory(
    made: Callable[[bytes], pa.Buffer], read: Callable[[pa.Buffer], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list takes twenty times the bytes of its text."""
    monkeypatch.setattr(shapes, "MOST_JSON", 1000)
    with pytest.raises(
        UnusableState, match="cannot be read: ValueError: it has 1001 bytes of JSON, and .* at most 1000"
    ):
        read(made(b"[" + b"[]," * 333 + b"1"))


def test_state_too_large_to_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_JSON", 1000)
    with pytest.raises(
        CheckpointError, match=r"the state of 'files#0' without its tables would have \d+ bytes of JSON"
    ):
        encode({"files#0": Snapshot(values={"read": ["x" * 1000]})})


def a_file(place: Path, made: str) -> None:
    if made == "pipe":
        os.mkfifo(place)
    elif made == "deep":
        place.write_text("[" * 60_000)
    else:
        place.touch()
        os.truncate(place, HUGE)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("huge", f"it has {HUGE} bytes, and Headgate writes at most"),
        ("deep", "is nested too deep"),
        ("pipe", "it is not a regular file"),
    ],
)
def test_notes_of_owners(storage: CheckpointStorage, tmp_path: Path, made: str, says: str) -> None:
    """A pipe was waited for; deep nesting was a RecursionError."""
    storage.claim(PROGRAM)
    storage.claim(PROGRAM)
    a_file(Path(storage.folder, "owners", "2.note"), made)
    with pytest.raises(CheckpointError, match=f"owners: 2.note:? .*{says}.*; name the checkpoint to resume from"):
        storage.completed()
    ledger = Ledger(str(tmp_path / "out"), "run", None, PROGRAM)
    assert ledger.claim(2)
    (tmp_path / "out" / ".headgate" / "run" / "2.note").unlink()
    a_file(tmp_path / "out" / ".headgate" / "run" / "2.note", made)
    with pytest.raises(SinkError, match=f"is damaged \\(2.note:? .*{says}"):
        ledger.published_after(1, "")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("made", ["huge", "deep", "pipe"])
def test_claims_of_owners(storage: CheckpointStorage, made: str) -> None:
    storage.claim(PROGRAM)
    a_file(Path(storage.folder, "owners", "2"), made)
    with pytest.raises(Superseded, match="its claim cannot be read"):
        storage.require_owner()
