"""What tasks have captured goes to the checkpoints' storage, on a thread of its own: no task waits for a disk.

A barrier that comes with the rows may be faster than the driver's word on where its checkpoint is to be stored. What
was captured waits for that word, which comes to every TaskManager.

When the driver starts another checkpoint, earlier ones that are not stored are dropped. What still waits
to be written for them is let go, however slow the storage: at most what is being written and what is newest are kept.
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

#: How long a write that is under way may take when the TaskManager ends. No checkpoint refers to what it writes then.
_CLOSE_TIMEOUT = 2.0
_GIVEN_UP = "it was given up before this task's part was written"


@dataclass(frozen=True, slots=True)
class _Part:
    """What was captured of a task, and which one it is."""

    task: str
    vertex: int
    subtask: int
    captured: Captured

    def given_up(self) -> _Part:
        """Without what it holds; what sinks have pending counts all the same."""
        return replace(self, captured=replace(self.captured, snapshots={}, in_flight=(), failure=_GIVEN_UP))


class StateUpload:
    """The uploads of one TaskManager in one attempt. `tell` sends the driver what became of each task's part, in the
    order in which they were captured. The thread is there once there is something to write."""

    def __init__(self, attempt: int, tell: Callable[[AcknowledgeCheckpoint | DeclineCheckpoint], None]) -> None:
        self._attempt = attempt
        self._tell = tell
        self._runner: threading.Thread | None = None
        self._changed = threading.Condition()
        #: Those that are to be written, in order.
        self._waiting: deque[_Part] = deque()
        self._stored = self._told = 0
        #: The last checkpoint that the driver has started, and the folders of those that may still be written.
        self._known = 0
        self._folders: dict[int, str] = {}
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Return whether every part has been reported to the driver."""
        return self._stored == self._told

    def announce(self, checkpoint: int, folder: str) -> None:
        """Any thread: the driver has started the checkpoint, and its files go into this folder. Repeating it changes
        nothing."""
        with self._changed:
            self._known = max(self._known, checkpoint)
            self._folders = {each: place for each, place in self._folders.items() if each >= checkpoint}
            self._folders[checkpoint] = folder
            self._let_go()
            self._changed.notify()

    def store(self, task: str, vertex: int, subtask: int, captured: Captured) -> None:
        """On a task's thread, which is called `task`: returns at once."""
        with self._changed:
            self._stored += 1
            self._waiting.append(_Part(task, vertex, subtask, captured))
            self._let_go()
            self._changed.notify()
            if self._runner is None:
                self._runner = threading.Thread(target=self._run, name="headgate-state-upload", daemon=True)
                self._runner.start()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._runner is not None:
            self._runner.join(_CLOSE_TIMEOUT)

    def _let_go(self) -> None:
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
                self._tell(DeclineCheckpoint(**about, reason=reason))
            else:
                async_s = time.monotonic() - captured.taken_at
                nodes = list(captured.snapshots)
                self._tell(AcknowledgeCheckpoint(**about, nodes=nodes, file=file, async_s=async_s))
            self._told += 1

    def _next(self) -> _Part | None:
        """Waits for one, and for the driver's word on it; None at the end."""
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
