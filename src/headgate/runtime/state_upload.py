"""What tasks have captured goes to the checkpoints' storage, on a thread of its own: no task waits for a disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headgate.errors import CheckpointError
from headgate.runtime.task_state import Captured
from headgate.state.checkpoint_storage import CheckpointStorage
from headgate.state.snapshot import encode

log = logging.getLogger(__name__)

#: How long a write that is under way may take when the TaskManager ends. What it writes is nobody's then.
_CLOSE_TIMEOUT = 2.0


class StateUpload:
    """Of one TaskManager, in one attempt. `tell` sends the driver what became of each task's part, in the order in
    which they were captured. The thread is there once there is something to write."""

    def __init__(self, storage: CheckpointStorage, attempt: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self._storage = storage
        self._attempt = attempt
        self._tell = tell
        self._captured: queue.SimpleQueue[tuple[str, int, int, Captured] | None] = queue.SimpleQueue()
        self._runner: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stored = self._told = 0

    @property
    def is_idle(self) -> bool:
        """The driver has been told of everything."""
        return self._stored == self._told

    def store(self, task: str, vertex: int, subtask: int, captured: Captured) -> None:
        """On a task's thread, which is called `task`: returns at once."""
        with self._lock:
            self._stored += 1
            if self._runner is None:
                self._runner = threading.Thread(target=self._run, name="headgate-state-upload", daemon=True)
                self._runner.start()
        self._captured.put((task, vertex, subtask, captured))

    def close(self) -> None:
        """Write no more."""
        self._captured.put(None)
        if self._runner is not None:
            self._runner.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        while (item := self._captured.get()) is not None:
            task, vertex, subtask, captured = item
            about = {
                "task": task,
                "vertex": vertex,
                "subtask": subtask,
                "checkpoint": captured.checkpoint,
                "pending": dict(captured.pending),
                "nodes": list(captured.snapshots),
            }
            try:
                payload = [encode(captured.snapshots)]
                file = self._storage.write_task(captured.checkpoint, self._attempt, task, payload)
            except Exception as error:
                reason = error.message if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
                log.warning("checkpoint %d of %s: %s", captured.checkpoint, task, reason)
                self._tell({"type": "decline", **about, "reason": reason})
            else:
                self._tell({"type": "acknowledge", **about, "file": asdict(file)})
            self._told += 1
