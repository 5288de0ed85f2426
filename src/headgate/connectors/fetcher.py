"""A thread that takes batches from an iterator which may block, and hands them to a task thread that may not."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from headgate.errors import HeadgateError, SourceError

#: Batches held ready; more would only hide how far the source runs ahead.
_READY = 2
#: How long (seconds) `close` waits for the thread; an iterator that is stuck is left behind, in a daemon thread.
_CLOSE_WAIT = 1.0


class Fetcher:
    """Runs `batches()` on a thread of its own and calls `wake` when there is something new to take. Empty batches are
    left out; of the others the first `skip` are, too."""

    def __init__(
        self, name: str, batches: Callable[[], Iterator[pa.RecordBatch]], wake: Callable[[], None], skip: int = 0
    ) -> None:
        self._batches = batches
        self._wake = wake
        self._skip = skip
        self._changed = threading.Condition()
        self._ready: deque[pa.RecordBatch] = deque()
        self._error: HeadgateError | None = None
        self._ended = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self) -> pa.RecordBatch | None:
        """The next batch, or None if none is ready. Raises what the iterator raised, after the batches before it."""
        with self._changed:
            if self._ready:
                self._changed.notify()
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    @property
    def finished(self) -> bool:
        """The iterator has ended and all its batches are taken."""
        with self._changed:
            return self._ended and not self._ready and self._error is None

    def close(self) -> None:
        """Stop. Waits for the thread, but not for an iterator that does not return."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify()
        self._thread.join(_CLOSE_WAIT)

    @property
    def is_stuck(self) -> bool:
        """After `close`: the iterator has not returned yet."""
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
            self._error, self._ended, wanted = error, True, not self._closed
        if wanted:
            self._wake()

    def _fetch(self) -> None:
        batches = self._batches()
        try:
            left_out = 0
            for batch in batches:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or len(self._ready) < _READY)
                    if self._closed:
                        return
                    if not batch.num_rows:
                        continue
                    if left_out < self._skip:
                        left_out += 1
                        continue
                    self._ready.append(batch)
                self._wake()
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
