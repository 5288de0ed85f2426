"""Writes the state that tasks have captured to the storage, on its own thread, so that no task waits for a disk.

A barrier may arrive before the driver's message that names the checkpoint's folder. The captured state waits for this
message, which the driver sends to every TaskManager.

When the driver starts another checkpoint, this module drops older parts that it has not written yet. So memory holds at
most the part that it writes now and the newest checkpoint's parts, even if the storage is slow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headgate.errors import CheckpointError
from headgate.runtime.control_messages import AcknowledgeCheckpoint, DeclineCheckpoint
from headgate.runtime.task.task_state import Captured
from headgate.state.checkpoint_metadata import InFlightFile, StateFile
from headgate.state.checkpoint_storage import write_part
from headgate.state.in_flight_file import encode_in_flight
from headgate.state.snapshot import encode_parts

log = logging.getLogger(__name__)

#: When the TaskManager ends, it waits this many seconds for the current write. No checkpoint will refer to the file.
_CLOSE_TIMEOUT = 2.0
_GIVEN_UP = "the checkpoint was given up before this task's part was written"


@dataclass(frozen=True, slots=True)
class _Part:
    """The captured part of one task."""

    task: str
    vertex: int
    subtask: int
    captured: Captured

    def given_up(self) -> _Part:
        """Return the part without its state, but with the pending results of its sinks."""
        return replace(self, captured=replace(self.captured, snapshots={}, in_flight=(), failure=_GIVEN_UP))


class StateUpload:
    """Writes the parts of one TaskManager's tasks in one attempt. The first part starts the thread.

    `report` sends the outcome of each task's part to the driver, in the order of capture. `_changed` protects the
    queue, the folders and `_closed`.
    """

    def __init__(self, attempt: int, report: Callable[[AcknowledgeCheckpoint | DeclineCheckpoint], None]) -> None:
        self._attempt = attempt
        self._report = report
        self._runner: threading.Thread | None = None
        self._changed = threading.Condition()
        #: Parts to write, in order.
        self._waiting: deque[_Part] = deque()
        self._queued = self._reported = 0
        #: The last checkpoint that the driver has started.
        self._known = 0
        #: The folders of checkpoints whose parts may still be written.
        self._folders: dict[int, str] = {}
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether every part has been reported to the driver."""
        return self._queued == self._reported

    def announce(self, checkpoint: int, folder: str) -> None:
        """Record that the driver has started the checkpoint, whose files go into `folder`.

        Any thread may call this. A second call changes nothing.
        """
        with self._changed:
            self._known = max(self._known, checkpoint)
            self._folders = {number: path for number, path in self._folders.items() if number >= checkpoint}
            self._folders[checkpoint] = folder
            self._release_old_parts()
            self._changed.notify()

    def store(self, task: str, vertex: int, subtask: int, captured: Captured) -> None:
        """Queue a part, and return at once. Runs on the task's thread."""
        with self._changed:
            self._queued += 1
            self._waiting.append(_Part(task, vertex, subtask, captured))
            self._release_old_parts()
            self._changed.notify()
            if self._runner is None:
                self._runner = threading.Thread(target=self._run, name="headgate-state-upload", daemon=True)
                self._runner.start()

    def close(self) -> None:
        """Drop the queued parts, and wait at most `_CLOSE_TIMEOUT` seconds for the current write."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._runner is not None:
            self._runner.join(_CLOSE_TIMEOUT)

    def _release_old_parts(self) -> None:
        for at, part in enumerate(self._waiting):
            if part.captured.checkpoint < self._known and part.captured.failure is None:
                self._waiting[at] = part.given_up()

    def _run(self) -> None:
        while (part := self._next()) is not None:
            captured = part.captured
            about: dict[str, Any] = {
                "task": part.task,
                "vertex": part.vertex,
                "subtask": part.subtask,
                "checkpoint": captured.checkpoint,
                "pending": dict(captured.pending),
            }
            try:
                file = self._write(part.task, captured)
            except Exception as error:
                reason = error.message if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
                log.warning("checkpoint %d of %s: %s", captured.checkpoint, part.task, reason)
                self._report(DeclineCheckpoint(**about, reason=reason))
            else:
                async_s = time.monotonic() - captured.taken_at
                nodes = list(captured.snapshots)
                self._report(AcknowledgeCheckpoint(**about, nodes=nodes, file=file, async_s=async_s))
            self._reported += 1

    def _next(self) -> _Part | None:
        """Wait for a part and for the driver's message about its checkpoint. Returns None after `close`."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self._waiting and self._waiting[0].captured.checkpoint <= self._known)
            )
            return None if self._closed else self._waiting.popleft()

    def _write(self, task: str, captured: Captured) -> StateFile:
        if captured.failure is not None:
            raise CheckpointError(captured.failure)
        folder = self._folders.get(captured.checkpoint)
        if folder is None:  # another checkpoint has started since
            raise CheckpointError(_GIVEN_UP)
        in_flight = None
        if captured.in_flight:
            payload = encode_in_flight(captured.in_flight)
            written = write_part(folder, self._attempt, task, payload, "in-flight")
            exchanges = sorted({part.exchange for part, _ in captured.in_flight})
            in_flight = InFlightFile(written.path, written.size, written.checksum, exchanges)
        state = write_part(folder, self._attempt, task, encode_parts(captured.snapshots))
        return replace(state, in_flight=in_flight)
