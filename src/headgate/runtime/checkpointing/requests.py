"""What is asked of a running job, from any thread, and what becomes of it."""

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
    """`answer` is the job's last checkpoint, when it has ended."""

    drain: bool
    uri: str | None
    answer: Future[str | None]


class Requests:
    """Savepoints and the stop of one job: `savepoint` and `stop` are called by any thread, the rest by the job's. Each
    is answered once."""

    def __init__(self, job: str, graph: JobGraph, config: Config, storage: CheckpointStorage | None) -> None:
        """`storage` is that of the job's own checkpoints."""
        self._job = job
        self._graph = graph
        self._config = config
        self._storage = storage
        self._lock = threading.Lock()
        self._new: deque[Request] = deque()
        self._savepoints: dict[Request, Future[str]] = {}
        self._stop: _Stop | None = None
        #: When the job has ended: what is said to those who come then.
        self._too_late: HeadgateError | None = None
        self._last: Future[str | None] = Future()

    def savepoint(self, uri: str | os.PathLike[str]) -> Future[str]:
        """One below `uri` is wanted; its own URI, or CheckpointError, comes with the answer. Raises CheckpointError for
        a folder that is of no use, and in batch mode."""
        request, answer = Request(self._folder(uri)), Future[str]()
        with self._lock:
            if self._too_late is None:
                self._new.append(request)
                self._savepoints[request] = answer
            else:
                answer.set_exception(self._too_late)
        return answer

    def stop(self, drain: bool, uri: str | os.PathLike[str] | None) -> Future[str | None]:
        """The job is to end, its last checkpoint being a savepoint below `uri` if there is one; its path or URI, or the
        job's error, comes with the answer when it has. To ask again is harmless. Raises CheckpointError where there can
        be no checkpoint to end with, ConfigError when it is being stopped in another way."""
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
                "to stop where it is a job needs a place for what it is to resume from: give savepoint=, or set the "
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
        """When the job has ended: its last checkpoint, or its error."""
        return None if self._too_late is None else self._last

    @property
    def drains(self) -> bool:
        """Sources are to come to their end, in each attempt."""
        return self._stop is not None and self._stop.drain

    def take(self) -> list[Request]:
        """Those that are new."""
        with self._lock:
            taken = list(self._new)
            self._new.clear()
        return taken

    def done(self, request: Request, uri: str) -> None:
        """It is stored."""
        with self._lock:
            if request in self._savepoints:
                self._savepoints.pop(request).set_result(uri)

    def failed(self, request: Request, reason: str) -> None:
        """The savepoint failed. A job whose sources have come to their end ends all the same."""
        error = CheckpointError(reason)
        with self._lock:
            if request in self._savepoints:
                self._savepoints.pop(request).set_exception(error)
            elif self._stop is not None:
                self._stop.answer.set_exception(error)
                self._stop = self._stop if self._stop.drain else None

    def close(self, last: str | None, error: HeadgateError | None, reason: str) -> None:
        """The job is over, well or with an error: whatever is asked for, or will be, comes too late."""
        with self._lock:
            self._too_late = CheckpointError(reason)
            for savepoint in self._savepoints.values():
                savepoint.set_exception(self._too_late)
            stop = self._stop
            waiting = [self._last] if stop is None or stop.answer.done() else [self._last, stop.answer]
            for answer in waiting:
                answer.set_result(last) if error is None else answer.set_exception(error)
