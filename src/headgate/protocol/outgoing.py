"""The frames that the producer's end of a link has made and the socket has not accepted yet; no I/O.

Two marks limit their bytes, like Netty's outbound buffer in Flink's NettyServer. The sender stops adding at `HIGH_MARK`
unwritten bytes and resumes below `LOW_MARK`. A peer that does not read therefore stops the sender. The sender resumes
before the queue is empty, so a socket that accepts bytes need not wait for the sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Final, cast

from headgate.memory.buffer import MAX_PIECES, Buffer, FileRegion, Piece, recycle_all

#: The bytes of two segments of the default size, and of one such segment plus 1.
HIGH_MARK: Final = 64 << 10
LOW_MARK: Final = (32 << 10) + 1


class Outgoing:
    """The queue of pieces to write. A piece is in memory or in a file.

    `add` takes pieces together with their buffers. When all these pieces are written, the queue recycles the buffers.
    """

    __slots__ = ("_added", "_batches", "_pieces", "_written", "has_file", "is_writable")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._batches: deque[tuple[int, Sequence[Buffer]]] = deque()
        self._added = 0
        self._written = 0
        #: Whether any piece is in a file.
        self.has_file = False
        #: Whether the sender may add more pieces.
        self.is_writable = True

    @property
    def unwritten(self) -> int:
        """The number of bytes that the socket has not accepted."""
        return self._added - self._written

    @property
    def pieces(self) -> Sequence[Piece]:
        """All unwritten pieces, in order."""
        return self._pieces

    @property
    def next_write(self) -> list[bytes | memoryview]:
        """The pieces for one gathered write. The list is empty when a region of a file comes first."""
        pieces = cast(list[bytes | memoryview], self._pieces)
        if self.has_file:
            return list(takewhile(_in_memory, islice(pieces, MAX_PIECES)))
        return pieces if len(pieces) <= MAX_PIECES else pieces[:MAX_PIECES]

    @property
    def next_region(self) -> FileRegion | None:
        """The region of a file to send next, or None when a piece in memory comes first."""
        first = self._pieces[0] if self._pieces else None
        return first if isinstance(first, FileRegion) else None

    def __len__(self) -> int:
        """Return the number of unwritten pieces."""
        return len(self._pieces)

    def add(self, pieces: Sequence[Piece], buffers: Sequence[Buffer]) -> None:
        """Append the pieces of some frames, perhaps none, and the buffers to recycle when the pieces are written."""
        if not pieces:
            return
        self._pieces.extend(pieces)
        self.has_file = self.has_file or FileRegion in set(map(type, pieces))
        self._added += sum(map(len, pieces))
        self._batches.append((self._added, buffers))

    def written(self, count: int) -> None:
        """Account for `count` bytes of `next_write`, or of `next_region`, that the socket accepted."""
        self._written += count
        if self._written == self._added:  # the usual case
            self._pieces.clear()
            self.has_file = False
        else:
            self._drop(count)
        batches = self._batches
        while batches and batches[0][0] <= self._written:
            recycle_all(batches.popleft()[1])
        self.is_writable = self.unwritten < (HIGH_MARK if self.is_writable else LOW_MARK)

    def _drop(self, count: int) -> None:
        """Remove `count` bytes from the front of the queue."""
        pieces, whole = self._pieces, 0
        while count >= len(pieces[whole]):
            count -= len(pieces[whole])
            whole += 1
        del pieces[:whole]
        if count:
            first = pieces[0]
            pieces[0] = first.after(count) if isinstance(first, FileRegion) else memoryview(first)[count:]

    def release(self) -> None:
        """Drop all pieces and recycle their buffers after the connection has ended."""
        self._pieces.clear()
        for _, buffers in self._batches:
            recycle_all(buffers)
        self._batches.clear()
        self._written = self._added


def _in_memory(piece: Piece) -> bool:
    return not isinstance(piece, FileRegion)
