"""What tasks have captured is stored by a thread of its own, and let go where nothing will come of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headgate.runtime.state_upload import StateUpload
from headgate.runtime.task_state import Captured
from headgate.state.checkpoint_metadata import StateFile
from headgate.state.checkpoint_storage import CheckpointStorage
from headgate.state.snapshot import Snapshot
from tests.runtime.jobs import eventually


class Slow(CheckpointStorage):
    """Storage that stands until the test lets it go on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "job")
        self.entered, self.goes_on = threading.Event(), threading.Event()
        self.written: list[int] = []

    def write_task(self, checkpoint: int, *arguments: Any, **options: Any) -> StateFile:
        self.entered.set()
        assert self.goes_on.wait(60)
        self.written.append(checkpoint)
        return super().write_task(checkpoint, *arguments, **options)


def captured(checkpoint: int) -> Captured:
    return Captured(checkpoint, {"sum": Snapshot(values={"of": checkpoint})}, {"out": [checkpoint]}, 0.0)


def test_parts_of_checkpoints_that_were_given_up_are_not_written(tmp_path: Path) -> None:
    """Nor are they kept; what sinks have pending is told of all of them, in order."""
    storage, told = Slow(tmp_path), list[dict[str, Any]]()
    upload = StateUpload(storage, 0, told.append)
    upload.announce(1, None)
    upload.store("task[0]", 0, 0, captured(1))
    assert storage.entered.wait(60)
    for checkpoint in range(2, 6):
        upload.store("task[0]", 0, 0, captured(checkpoint))  # a barrier may be faster than the driver's word
        upload.announce(checkpoint, None)
    upload.store("task[1]", 0, 1, captured(4))
    assert [part.captured.checkpoint for part in upload._waiting if part.captured.snapshots] == [5]
    storage.goes_on.set()
    eventually(lambda: upload.is_idle)
    upload.close()
    assert storage.written == [1, 5]
    answers = [(message["checkpoint"], message["type"]) for message in told]
    given_up = [(checkpoint, "decline") for checkpoint in (2, 3, 4)]
    assert answers == [(1, "acknowledge"), *given_up, (5, "acknowledge"), (4, "decline")]
    assert all(message["pending"] == {"out": [message["checkpoint"]]} for message in told)


def test_nothing_is_written_once_it_is_closed(tmp_path: Path) -> None:
    storage, told = Slow(tmp_path), list[dict[str, Any]]()
    storage.goes_on.set()
    upload = StateUpload(storage, 0, told.append)
    upload.store("task[0]", 0, 0, captured(1))  # and the driver's word never comes
    upload.close()
    assert (storage.written, told) == ([], [])
