"""Requests to a running job for savepoints and its stop, from any thread, and their answers."""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from headgate.config import Config
from headgate.errors import CheckpointError, ConfigError, HeadgateError
from headgate.filesystems import absolute
from headgate.plan.job_graph import JobGraph
from headgate.runtime.checkpointing.checkpoint_events import Request
from headgate.runtime.checkpointing.guarantee import warn_of_sources
from headgate.state.checkpoint_storage import CheckpointStorage

_NONE_IN_BATCH: Final = (
    "there are no checkpoints and savepoints with execution_mode='batch', where an operator begins when those before "
    "it have ended"
)


@dataclass(frozen=True, slots=True)
class _Stop:
    """A request to stop. `answer` gets the job's last checkpoint when it has ended."""

    drain: bool
    uri: str | None
    answer: Future[str | None]


class Requests:
    """The requests to one job. Any thread calls `savepoint` and `stop`, the job's thread the rest. Each request gets
    one answer.

    `_lock` protects all fields that change.
    """

    def __init__(self, job: str, graph: JobGraph, config: Config, storage: CheckpointStorage | None) -> None:
        """Create it; `storage` is that of the job's own checkpoints."""
        self._job = job
        self._graph = graph
        self._config = config
        self._storage = storage
        self._lock = threading.Lock()
        self._new: deque[Request] = deque()
        self._savepoints: dict[Request, Future[str]] = {}
        self._stop: _Stop | None = None
        #: The answer to requests that come after the job's end.
        self._too_late: HeadgateError | None = None
        self._last: Future[str | None] = Future()

    def savepoint(self, uri: str | os.PathLike[str]) -> Future[str]:
        """Request a savepoint below `uri`. The answer is its own URI, or CheckpointError. Raises CheckpointError for a
        folder that cannot be used, and in batch mode."""
        request, answer = Request(self._folder(uri)), Future[str]()
        with self._lock:
            if self._too_late is None:
                self._new.append(request)
                self._savepoints[request] = answer
            else:
                answer.set_exception(self._too_late)
        return answer

    def stop(self, drain: bool, uri: str | os.PathLike[str] | None) -> Future[str | None]:
        """Request a stop. With `uri` the last checkpoint is a savepoint below it.

        The answer is the checkpoint's path or URI, or the job's error, when the job has ended. A second request gets
        the same answer. Raises CheckpointError if there can be no checkpoint to end with, ConfigError if the job is
        being stopped in another way.
        """
        if self._too_late is not None:
            return self._last
        self._check_stop(drain, uri)
        folder = None if uri is None else self._folder(uri)
        with self._lock:
            if self._too_late is not None:
                return self._last
            if self._stop is None:
                self._stop = _Stop(drain, folder, Future())
                if folder is not None or not drain:
                    self._new.append(Request(folder, stops=not drain, at_end=drain))
            elif (self._stop.drain, self._stop.uri) != (drain, folder):
                raise ConfigError(
                    f"the job is being stopped, with drain={self._stop.drain} and savepoint={self._stop.uri!r}; "
                    "wait for its end, or cancel it"
                )
            return self._stop.answer

    def _check_stop(self, drain: bool, uri: str | os.PathLike[str] | None) -> None:
        if drain or uri is not None:
            return
        if self._config.is_batch:
            raise CheckpointError(_NONE_IN_BATCH)
        if self._storage is None:
            raise CheckpointError(
                "to stop without drain a job needs a folder for its last checkpoint: give savepoint=, or set the "
                "option checkpoint_dir; stop(drain=True) needs none"
            )
        warn_of_sources(self._job, self._graph, "goes on")

    def _folder(self, uri: str | os.PathLike[str]) -> str:
        if self._config.is_batch:
            raise CheckpointError(_NONE_IN_BATCH)
        folder = absolute(uri).rstrip("/")
        CheckpointStorage(folder, self._job).check()
        if self._storage is None:
            warn_of_sources(self._job, self._graph, "goes on")
        return folder

    @property
    def last(self) -> Future[str | None] | None:
        """Once the job has ended: its last checkpoint, or its error."""
        return None if self._too_late is None else self._last

    @property
    def drains(self) -> bool:
        """Whether sources are to end where they are, in each attempt."""
        return self._stop is not None and self._stop.drain

    def take(self) -> list[Request]:
        """Return the requests that are new."""
        with self._lock:
            taken = list(self._new)
            self._new.clear()
        return taken

    def done(self, request: Request, uri: str) -> None:
        """Answer the request: its checkpoint is stored."""
        with self._lock:
            if request in self._savepoints:
                self._savepoints.pop(request).set_result(uri)

    def failed(self, request: Request, reason: str) -> None:
        """Answer the request: its checkpoint failed. A job whose sources have ended ends all the same."""
        error = CheckpointError(reason)
        with self._lock:
            if request in self._savepoints:
                self._savepoints.pop(request).set_exception(error)
            elif self._stop is not None:
                self._stop.answer.set_exception(error)
                self._stop = self._stop if self._stop.drain else None

    def close(self, last: str | None, error: HeadgateError | None, reason: str) -> None:
        """Answer all requests, those that come later, too: the job is over, with or without an error."""
        with self._lock:
            self._too_late = CheckpointError(reason)
            for savepoint in self._savepoints.values():
                savepoint.set_exception(self._too_late)
            stop = self._stop
            waiting = [self._last] if stop is None or stop.answer.done() else [self._last, stop.answer]
            for answer in waiting:
                answer.set_result(last) if error is None else answer.set_exception(error)
