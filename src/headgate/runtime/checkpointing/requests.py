"""Requests to a running job, for savepoints and for its stop, and the answers. Any thread may make a request."""

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
    "there are no checkpoints and savepoints with execution_mode='batch', where an operator begins when the operators "
    "before it have ended"
)


@dataclass(frozen=True, slots=True)
class _Stop:
    """A request to stop. `answer` gets the job's last checkpoint when the job has ended."""

    drain: bool
    uri: str | None
    answer: Future[str | None]


class Requests:
    """The requests to one job. Each request gets one answer.

    Any thread may call `savepoint` and `stop`. Only the job's thread calls the other methods. `_lock` protects all
    fields that change.
    """

    def __init__(self, job: str, graph: JobGraph, config: Config, storage: CheckpointStorage | None) -> None:
        """Create an object without requests. `storage` holds the job's own checkpoints, if it takes any."""
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
        """Request a savepoint below `uri`. The answer is the URI of the savepoint itself, or CheckpointError.

        Raises CheckpointError for a folder that cannot be used, and in batch mode.
        """
        request, answer = Request(self._folder(uri)), Future[str]()
        with self._lock:
            if self._too_late is None:
                self._new.append(request)
                self._savepoints[request] = answer
            else:
                answer.set_exception(self._too_late)
        return answer

    def stop(self, drain: bool, uri: str | os.PathLike[str] | None) -> Future[str | None]:
        """Request a stop. If `uri` is given, the last checkpoint is a savepoint below it.

        When the job has ended, the answer is the path or URI of its last checkpoint (None without checkpoints), or the
        job's error. A second request gets the same answer. Raises CheckpointError if the job cannot take a last
        checkpoint. Raises ConfigError if the job is already being stopped in another way.
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
        """The job's last checkpoint, or its error. None while the job has not ended."""
        return None if self._too_late is None else self._last

    @property
    def drains(self) -> bool:
        """Whether sources must end at their current positions, in each attempt."""
        return self._stop is not None and self._stop.drain

    def take(self) -> list[Request]:
        """Return the new requests. A request is returned only once."""
        with self._lock:
            taken = list(self._new)
            self._new.clear()
        return taken

    def done(self, request: Request, uri: str) -> None:
        """Answer a request whose checkpoint is stored."""
        with self._lock:
            if request in self._savepoints:
                self._savepoints.pop(request).set_result(uri)

    def failed(self, request: Request, reason: str, cause: Exception | None = None) -> None:
        """Answer a request whose checkpoint failed. A job that drains still ends.

        `cause` is the error of the attempt if the attempt failed. It becomes the cause of the answer.
        """
        error = CheckpointError(reason)
        error.__cause__ = cause
        with self._lock:
            if request in self._savepoints:
                self._savepoints.pop(request).set_exception(error)
            elif self._stop is not None:
                self._stop.answer.set_exception(error)
                self._stop = self._stop if self._stop.drain else None

    def close(self, last: str | None, error: HeadgateError | None, reason: str) -> None:
        """Answer all requests, and all that come later, because the job has ended. `error` is the job's error, or None.

        `last` is the path or URI of the job's last checkpoint. `reason` says why no savepoint can be taken.
        """
        with self._lock:
            self._too_late = CheckpointError(reason)
            for savepoint in self._savepoints.values():
                savepoint.set_exception(self._too_late)
            stop = self._stop
            waiting = [self._last] if stop is None or stop.answer.done() else [self._last, stop.answer]
            for answer in waiting:
                answer.set_result(last) if error is None else answer.set_exception(error)
