"""`RequestQueue`: makes requests of rows as JSON, and hands them to the threads that send them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SinkError

#: The most requests that wait, per sending thread. More requests would only make a checkpoint wait longer.
_MOST_WAITING: Final = 8


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """How JSON objects become the body of a request."""

    content_type: str
    begin: bytes
    between: bytes
    end: bytes


FORMATS: Final = {
    "json": BodyFormat("application/json", b"[", b",\n", b"]\n"),
    "json_lines": BodyFormat("application/x-ndjson", b"", b"\n", b"\n"),
}


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most rows and bytes of a request, and for how many seconds a row waits for others."""

    rows: int
    bytes: int
    delay: float


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """The body of a request, how many rows it has, and its place.

    The place is the checkpoint that the rows belong to, and the number of the request among those of this checkpoint.
    """

    body: bytes
    rows: int
    checkpoint: int
    number: int

    def key(self, run: str, operator: str, subtask: int) -> str:
        """Return the idempotency key. Two requests with the same key have the same rows.

        The place alone is not enough: after a restart the same place may have other rows.
        """
        digest = hashlib.blake2b(self.body, digest_size=16)
        for text in (run, operator):
            digest.update(f"\0{text}".encode())
        return f"{subtask}-{self.checkpoint}-{self.number}-{digest.hexdigest()}"


class RowTexts:
    """JSON objects, one for each row of a batch, and how many bytes they take."""

    def __init__(self, texts: pa.Array, between: bytes) -> None:
        self._texts = texts
        self._between = between
        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
        #: How many bytes the first 0, 1, 2 ... texts take, with `between` after each text.
        self._ends = np.concatenate([[0], np.cumsum(lengths + len(between))])

    def __len__(self) -> int:
        return len(self._texts)

    def fitting(self, start: int, rows: int, size: int) -> int:
        """Return the end of the longest run of rows from `start` on with at most `rows` rows and `size` bytes."""
        end = int(np.searchsorted(self._ends, self._ends[start] + size, side="right")) - 1
        return max(start, min(end, start + rows, len(self)))

    def size(self, start: int, end: int) -> int:
        return int(self._ends[end] - self._ends[start])

    def joined(self, start: int, end: int) -> bytes:
        texts = self._texts.slice(start, end - start)
        whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        return bytes(pc.binary_join(whole, self._between.decode())[0].as_buffer())


class RequestQueue:
    """The requests of one writer: the request that collects rows, the requests that wait, and how many are being sent.

    The task's thread adds rows. The sending threads take requests. They also take rows that have waited for
    `limits.delay`. The lock `_changed` protects all fields.
    """

    def __init__(self, limits: BatchLimits, form: BodyFormat, checkpoint: int, senders: int) -> None:
        self._limits = limits
        self._form = form
        self._checkpoint = checkpoint
        self._most_waiting = _MOST_WAITING * senders
        self._changed = threading.Condition()
        self._pieces: list[bytes] = []
        self._rows = self._number = self._open = 0
        self._size = self._empty_size
        self._due = 0.0
        self._waiting: deque[RowsRequest] = deque()
        self._error: BaseException | None = None
        self._closed = threading.Event()

    @property
    def _empty_size(self) -> int:
        return len(self._form.begin) + len(self._form.end) - len(self._form.between)

    # --- the task's thread

    def add(self, texts: RowTexts, start: int) -> int:
        """Take rows from `start` on, as many as fit into the request. Return the first row that does not fit.

        Raises SinkError for a row that fits into no request.
        """
        with self._changed:
            end = texts.fitting(start, self._limits.rows - self._rows, self._limits.bytes - self._size)
            if end == start and not self._rows:
                size, most = texts.size(start, start + 1) - len(self._form.between), self._limits.bytes
                raise SinkError(f"a row is {size} bytes as JSON, which is more than batch_bytes= allows ({most})")
            if end > start:
                if not self._rows:
                    self._due = time.monotonic() + self._limits.delay
                self._pieces.append(texts.joined(start, end))
                self._rows += end - start
                self._size += texts.size(start, end)
            if end < len(texts) or self._rows == self._limits.rows:
                self._cut()
            self._changed.notify()
            return end

    def has_room(self) -> bool:
        """Return whether another request may wait. Raises the error of a request."""
        with self._changed:
            self._check()
            return len(self._waiting) < self._most_waiting

    def cut(self) -> None:
        """Make a request of the rows so far, without waiting for more rows."""
        with self._changed:
            self._cut()
            self._changed.notify_all()

    def is_delivered(self) -> bool:
        """Return whether the service has all rows. Raises the error of a request."""
        with self._changed:
            self._check()
            return not self._rows and not self._waiting and not self._open

    def begin(self, checkpoint: int) -> None:
        """Count requests from 0 again, because the rows that follow belong to this checkpoint."""
        with self._changed:
            self._checkpoint, self._number = checkpoint, 0

    def close(self) -> None:
        """Drop all rows, and let the sending threads end."""
        with self._changed:
            self._closed.set()
            self._waiting.clear()
            self._changed.notify_all()

    # --- the sending threads

    def take(self) -> RowsRequest | None:
        """Wait for a request, and return it. Returns None if the queue is closed."""
        with self._changed:
            while not self._closed.is_set():
                left = self._due - time.monotonic() if self._rows else None
                if self._waiting or (left is not None and left <= 0):
                    if not self._waiting:
                        self._cut()
                    self._open += 1
                    return self._waiting.popleft()
                self._changed.wait(left)
            return None

    def delivered(self) -> None:
        """Note that the service has a request that `take` returned."""
        with self._changed:
            self._open -= 1

    def fail(self, error: BaseException) -> None:
        """Record an error, which the task's thread raises. The first error counts."""
        with self._changed:
            self._error = self._error or error

    def pause(self, seconds: float) -> bool:
        """Wait, at most until the queue is closed. Return whether it is still open."""
        return not self._closed.wait(seconds) if seconds > 0 else not self._closed.is_set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    # --- under the lock

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _cut(self) -> None:
        if self._rows:
            body = self._form.begin + self._form.between.join(self._pieces) + self._form.end
            self._waiting.append(RowsRequest(body, self._rows, self._checkpoint, self._number))
            self._number += 1
            self._pieces, self._rows, self._size = [], 0, self._empty_size
