"""What tasks have captured goes to the checkpoints' storage, on a thread of its own: no task waits for a disk.

A barrier that comes with the rows may be faster than the driver's word on where its checkpoint is to be stored. What
was captured waits for that word, which comes to every TaskManager.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from headgate.errors import CheckpointError
from headgate.runtime.task_state import Captured
from headgate.state.checkpoint_metadata import InFlightFile, StateFile
from headgate.state.checkpoint_storage import CheckpointStorage
from headgate.state.in_flight import encode_in_flight
from headgate.state.snapshot import encode_parts

log = logging.getLogger(__name__)

#: How long a write that is under way may take when the TaskManager ends. What it writes is nobody's then.
_CLOSE_TIMEOUT = 2.0


class StateUpload:
    """Of one TaskManager, in one attempt. `storage` is that of the job's checkpoints, if it takes any. `tell` sends the
    driver what became of each task's part, in the order in which they were captured. The thread is there once there is
    something to write."""

    def __init__(self, storage: CheckpointStorage | None, attempt: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self._storage = storage
        self._attempt = attempt
        self._tell = tell
        self._captured: queue.SimpleQueue[tuple[str, int, int, Captured] | None] = queue.SimpleQueue()
        self._runner: threading.Thread | None = None
        self._changed = threading.Condition()
        self._stored = self._told = 0
        #: Up to which checkpoint it is known where they are stored, and where the savepoints among them.
        self._known = 0
        self._savepoints: dict[int, CheckpointStorage] = {}
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """The driver has been told of everything."""
        return self._stored == self._told

    def announce(self, checkpoint: int, savepoint: CheckpointStorage | None) -> None:
        """Any thread: the driver has begun the checkpoint, and how it is stored if it is a savepoint. Again is
        harmless."""
        with self._changed:
            self._known = max(self._known, checkpoint)
            if savepoint is not None:
                self._savepoints[checkpoint] = savepoint
            self._changed.notify()

    def store(self, task: str, vertex: int, subtask: int, captured: Captured) -> None:
        """On a task's thread, which is called `task`: returns at once."""
        with self._changed:
            self._stored += 1
            if self._runner is None:
                self._runner = threading.Thread(target=self._run, name="headgate-state-upload", daemon=True)
                self._runner.start()
        self._captured.put((task, vertex, subtask, captured))

    def close(self) -> None:
        """Write no more."""
        self._captured.put(None)
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._runner is not None:
            self._runner.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        while (item := self._captured.get()) is not None:
            task, vertex, subtask, captured = item
            storage = self._storage_of(captured.checkpoint)
            if storage is None:
                return
            about = {
                "task": task,
                "vertex": vertex,
                "subtask": subtask,
                "checkpoint": captured.checkpoint,
                "pending": dict(captured.pending),
                "nodes": list(captured.snapshots),
            }
            try:
                file = self._write(storage, task, captured)
            except Exception as error:
                reason = error.message if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
                log.warning("checkpoint %d of %s: %s", captured.checkpoint, task, reason)
                self._tell({"type": "decline", **about, "reason": reason})
            else:
                async_s = time.monotonic() - captured.taken_at
                self._tell({"type": "acknowledge", **about, "file": asdict(file), "async_s": async_s})
            self._told += 1

    def _storage_of(self, checkpoint: int) -> CheckpointStorage | None:
        """Waits for the driver's word; None once it will not come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or checkpoint <= self._known)
            return self._savepoints.get(checkpoint, self._storage) if checkpoint <= self._known else None

    def _write(self, storage: CheckpointStorage, task: str, captured: Captured) -> StateFile:
        if captured.failure is not None:
            raise CheckpointError(captured.failure)
        in_flight = None
        if captured.in_flight:
            payload = encode_in_flight(captured.in_flight)
            written = storage.write_task(captured.checkpoint, self._attempt, task, payload, "in-flight")
            exchanges = sorted({part.exchange for part, _ in captured.in_flight})
            in_flight = InFlightFile(written.path, written.size, written.checksum, exchanges)
        state = storage.write_task(captured.checkpoint, self._attempt, task, encode_parts(captured.snapshots))
        return replace(state, in_flight=in_flight)
