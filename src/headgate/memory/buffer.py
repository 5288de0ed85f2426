"""A counted reference to bytes in a segment, or in a run: several segments, one after the other.

Segments that are filled together travel as one buffer from the writer to the reader and back to the pool. The fixed
cost of a buffer is then paid only once for all of them. A "number of buffers" is always a number of segments.

References are counted across threads without a lock. The references are a list with `True` at the bottom and one
`False` above it for each `retain`. `list.append` and `list.pop` are atomic in CPython (one bytecode under the
interpreter lock, a lock per list without it). When two threads recycle at once, exactly one pops the `True`, and only
that thread returns the segment. One `recycle` too many finds the list empty and raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from headgate.errors import ExchangeError
from headgate.memory.segment import MemorySegment


class Recycler(Protocol):
    """The function that takes back segments whose last reference is gone.

    One call with several segments costs little more than a call with one segment.
    """

    def __call__(self, *segments: MemorySegment) -> None: ...


class FileRegion:
    """Bytes of a file that the kernel sends straight to a socket; no Python code reads them."""

    __slots__ = ("descriptor", "offset", "size")

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self.descriptor = descriptor
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def after(self, count: int) -> FileRegion:
        """Return the region that remains when `count` bytes have been sent."""
        return FileRegion(self.descriptor, self.offset + count, self.size - count)


#: Contiguous bytes that are written to a socket or a file.
Piece = bytes | memoryview | FileRegion
#: The most pieces that the kernel takes in one gathered write (IOV_MAX on Linux).
MAX_PIECES: Final = 1024


class Buffer:
    """A counted reference to `size` bytes that start at `offset` in one segment, or that fill a run of segments.

    In a run all segments but the last are full. A new buffer has one reference, and it owns the segments. The last
    `recycle` calls `recycler(*segments)`, on the thread of that `recycle`.
    """

    __slots__ = ("_recycler", "_references", "is_compressed", "offset", "segments", "size")

    def __init__(
        self,
        segments: Sequence[MemorySegment],
        offset: int,
        size: int,
        recycler: Recycler,
        is_compressed: bool = False,
    ) -> None:
        self.segments = segments
        self.is_compressed = is_compressed
        self.offset = offset
        self.size = size
        self._recycler = recycler
        self._references = [True]

    @classmethod
    def of_bytes(cls, data: bytes) -> Buffer:
        """Return a buffer over memory that belongs to no pool, for example for an event."""
        return cls((MemorySegment(-1, memoryview(data)),), 0, len(data), _forget)

    @property
    def views(self) -> list[memoryview]:
        """The bytes as read-only views, one per segment, without a copy. Do not read them after the last `recycle`."""
        if len(self.segments) == 1:
            return [self.view]
        views = [segment.view.toreadonly() for segment in self.segments]
        left = self.size - (len(views) - 1) * len(views[0])
        if left < len(views[0]):
            views[-1] = views[-1][:left]
        return views

    @property
    def view(self) -> memoryview:
        """The bytes of the buffer as a read-only view, if it has one segment. See `views`."""
        view = self.segments[0].view
        if self.size == len(view):
            return view.toreadonly()
        return view[self.offset : self.offset + self.size].toreadonly()

    @property
    def pieces(self) -> Sequence[Piece]:
        """The bytes as pieces for a gathered write."""
        return self.views

    @property
    def is_whole(self) -> bool:
        """Whether the buffer consists of full, uncompressed segments of a pool.

        The next buffer can then follow in the same frame.
        """
        segments = self.segments
        is_full = self.size == len(segments) * len(segments[0].view)
        return is_full and segments[0].index >= 0 and not self.is_compressed

    def split(self, count: int) -> tuple[Buffer, Buffer]:
        """Split a run into its first `count` segments and the rest. The two new buffers replace this reference."""
        segments = self.segments
        recycler = self._recycler if len(self._references) == 1 else _Parts(self)
        at = count * len(segments[0].view)
        return Buffer(segments[:count], 0, at, recycler), Buffer(segments[count:], 0, self.size - at, recycler)

    def retain(self) -> Buffer:
        """Add a reference and return self. Only a holder of a reference may call it.

        Raises ExchangeError after the last recycle.
        """
        if not self._references:
            raise ExchangeError(f"{self!r} was retained after it had been recycled")
        self._references.append(False)
        return self

    def recycle(self) -> None:
        """Give up one reference. Raises ExchangeError when no reference remains."""
        try:
            last = self._references.pop()
        except IndexError:
            raise ExchangeError(f"{self!r} was recycled twice") from None
        if last:
            self._recycler(*self.segments)

    def __repr__(self) -> str:
        numbers = ", ".join(str(segment.index) for segment in self.segments)
        return f"Buffer(segment {numbers}, bytes {self.offset} to {self.offset + self.size})"


class _Parts:
    """The recycler for the parts of a split buffer that has other holders.

    It gives up the reference to the whole buffer when all parts are recycled.
    """

    __slots__ = ("_left", "_whole")

    def __init__(self, whole: Buffer) -> None:
        self._whole = whole
        self._left = [True, *[False] * (len(whole.segments) - 1)]

    def __call__(self, *segments: MemorySegment) -> None:
        for _ in segments:
            if self._left.pop():
                self._whole.recycle()


def recycle_all(buffers: Iterable[Buffer]) -> None:
    """Recycle the buffers in order. Neighbours with the same recycler return their segments in one call.

    Raises ExchangeError for a buffer without a reference.
    """
    recycler: Recycler = _forget
    run: list[MemorySegment] = []
    for buffer in buffers:
        if not buffer._references:
            raise ExchangeError(f"{buffer!r} was recycled twice")
        if buffer._references.pop():
            if buffer._recycler is not recycler:
                if run:
                    recycler(*run)
                recycler, run = buffer._recycler, []
            run.extend(buffer.segments)
    if run:
        recycler(*run)


def _forget(*segments: MemorySegment) -> None:
    """Do nothing: the garbage collector frees memory that belongs to no pool."""
