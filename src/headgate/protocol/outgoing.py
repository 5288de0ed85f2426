"""What the producer's end of a link has framed and the socket has not taken yet; no I/O.

Two marks, as Netty's outbound buffer has them (`research/flink.md` 2.4): from `HIGH_MARK` unwritten bytes on nothing is
added, and again only below `LOW_MARK`. So a socket whose peer does not read stops the sender, and one that goes on is
never without work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from headgate.memory.buffer import Buffer, recycle_all

#: Two segments of the default size, and one.
HIGH_MARK: Final = 64 << 10
LOW_MARK: Final = (32 << 10) + 1
#: What the kernel takes in one gathered write.
_MAX_PIECES: Final = 1024


class Outgoing:
    """Pieces to write in order; the buffers they are views of are recycled when all that was added with them is
    written."""

    __slots__ = ("_added", "_batches", "_pieces", "_written", "is_writable")

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._batches: deque[tuple[int, Sequence[Buffer]]] = deque()
        self._added = 0
        self._written = 0
        #: Whether more may be added.
        self.is_writable = True

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._pieces)

    @property
    def unwritten(self) -> int:
        """Bytes."""
        return self._added - self._written

    @property
    def next_write(self) -> list[bytes | memoryview]:
        """What one gathered write may try."""
        return self._pieces if len(self._pieces) <= _MAX_PIECES else self._pieces[:_MAX_PIECES]

    def add(self, pieces: Sequence[bytes | memoryview], buffers: Sequence[Buffer]) -> None:
        """Frames behind all others, or none."""
        if not pieces:
            return
        self._pieces.extend(pieces)
        self._added += sum(map(len, pieces))
        self._batches.append((self._added, buffers))

    def written(self, count: int) -> None:
        """The socket took `count` bytes of `next_write`."""
        self._written += count
        if self._written == self._added:  # the usual case
            self._pieces.clear()
        else:
            self._drop(count)
        batches = self._batches
        while batches and batches[0][0] <= self._written:
            recycle_all(batches.popleft()[1])
        self.is_writable = self.unwritten < (HIGH_MARK if self.is_writable else LOW_MARK)

    def _drop(self, count: int) -> None:
        """Remove so many bytes from the front."""
        pieces, whole = self._pieces, 0
        while count >= len(pieces[whole]):
            count -= len(pieces[whole])
            whole += 1
        del pieces[:whole]
        if count:
            pieces[0] = memoryview(pieces[0])[count:]

    def release(self) -> None:
        """The connection is gone."""
        self._pieces.clear()
        for _, buffers in self._batches:
            recycle_all(buffers)
        self._batches.clear()
        self._written = self._added
