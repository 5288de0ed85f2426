"""What tasks have captured is stored by a thread of its own, and let go where nothing will come of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.runtime.control_messages import AcknowledgeCheckpoint, DeclineCheckpoint
from headgate.runtime.task.task_state import Captured
from headgate.runtime.taskmanager import state_upload
from headgate.runtime.taskmanager.state_upload import StateUpload
from headgate.state.checkpoint_metadata import StateFile
from headgate.state.checkpoint_storage import write_part
from headgate.state.snapshot import Snapshot
from tests.runtime.jobs import eventually


class Slow:
    """Storage that stands until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.goes_on = threading.Event(), threading.Event()
        self.written: list[str] = []
        monkeypatch.setattr(state_upload, "write_part", self.write_part)

    def write_part(self, folder: str, *arguments: Any) -> StateFile:
        self.entered.set()
        assert self.goes_on.wait(60)
        self.written.append(os.path.basename(folder))
        return write_part(folder, *arguments)


def captured(checkpoint: int) -> Captured:
    return Captured(
        checkpoint=checkpoint,
        snapshots={"sum": Snapshot(values={"of": checkpoint})},
        pending={"out": [checkpoint]},
        taken_at=0.0,
    )


def test_parts_of_checkpoints_that_were_given_up_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are they kept; what sinks have pending is told of all of them, in order."""
    storage, told = Slow(monkeypatch), list[AcknowledgeCheckpoint | DeclineCheckpoint]()
    upload = StateUpload(0, told.append)
    upload.announce(1, str(tmp_path / "1"))
    upload.store("task[0]", 0, 0, captured(1))
    assert storage.entered.wait(60)
    for checkpoint in range(2, 6):
        upload.store("task[0]", 0, 0, captured(checkpoint))  # a barrier may be faster than the driver's word
        upload.announce(checkpoint, str(tmp_path / str(checkpoint)))
    upload.store("task[1]", 0, 1, captured(4))
    assert [part.captured.checkpoint for part in upload._waiting if part.captured.snapshots] == [5]
    storage.goes_on.set()
    eventually(lambda: upload.is_idle)
    upload.close()
    assert storage.written == ["1", "5"]
    answers = [(message.checkpoint, type(message)) for message in told]
    given_up = [(checkpoint, DeclineCheckpoint) for checkpoint in (2, 3, 4)]
    assert answers == [(1, AcknowledgeCheckpoint), *given_up, (5, AcknowledgeCheckpoint), (4, DeclineCheckpoint)]
    assert all(message.pending == {"out": [message.checkpoint]} for message in told)


def test_nothing_is_written_once_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, told = Slow(monkeypatch), list[AcknowledgeCheckpoint | DeclineCheckpoint]()
    storage.goes_on.set()
    upload = StateUpload(0, told.append)
    upload.store("task[0]", 0, 0, captured(1))  # and the driver's word never comes
    upload.close()
    assert (storage.written, told) == ([], [])
