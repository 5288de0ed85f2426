"""`Fetcher`: a thread that takes batches from an iterator. The iterator may block; the task that gets the batches does
not."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from headgate.errors import HeadgateError, SourceError

#: The most batches that wait for the task. More batches would weaken the back-pressure on the iterator.
_MOST_READY = 2
#: How long `close` waits for the thread, in seconds. If the iterator is stuck, its daemon thread keeps running.
_CLOSE_WAIT = 1.0


class Counted(Protocol):
    """A batch, or an object that has one."""

    @property
    def num_rows(self) -> int: ...


_B = TypeVar("_B", bound=Counted)


class Fetcher(Generic[_B]):
    """A thread that iterates over `batches()`. It calls `wake` when `take` has something new to return.

    It drops empty batches, and the first `skip` batches that are not empty.

    The lock `_changed` protects the ready batches, the error and both flags. The thread holds the lock to add a batch.
    The task holds it to take a batch. The thread does not hold it when it calls `wake`.
    """

    def __init__(self, name: str, batches: Callable[[], Iterator[_B]], wake: Callable[[], None], skip: int = 0) -> None:
        self._batches = batches
        self._wake = wake
        self._skip = skip
        self._changed = threading.Condition()
        self._ready: deque[_B] = deque()
        self._error: HeadgateError | None = None
        self._ended = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self) -> _B | None:
        """Return the next batch, or None if no batch is ready.

        Raises the iterator's error after the task has taken all batches before the error.
        """
        with self._changed:
            if self._ready:
                self._changed.notify()
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    @property
    def finished(self) -> bool:
        """Whether the iterator has ended without an error, and the task has taken all batches."""
        with self._changed:
            return self._ended and not self._ready and self._error is None

    def close(self) -> None:
        """Stop the thread. Waits for the thread, but at most one second, because the iterator may never return."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify()
        self._thread.join(_CLOSE_WAIT)

    @property
    def is_stuck(self) -> bool:
        """Whether the iterator has still not returned after `close`."""
        return self._thread.is_alive()

    def _run(self) -> None:
        error: HeadgateError | None = None
        try:
            self._fetch()
        except HeadgateError as raised:
            error = raised
        except Exception as raised:
            error = SourceError(f"the source's iterator failed: {type(raised).__name__}: {raised}")
        with self._changed:
            self._error, self._ended, is_closed = error, True, self._closed
        if not is_closed:
            self._wake()

    def _fetch(self) -> None:
        batches = self._batches()
        try:
            skipped = 0
            for batch in batches:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or len(self._ready) < _MOST_READY)
                    if self._closed:
                        return
                    if not batch.num_rows:
                        continue
                    if skipped < self._skip:
                        skipped += 1
                        continue
                    self._ready.append(batch)
                self._wake()
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
