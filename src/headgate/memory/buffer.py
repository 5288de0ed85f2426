"""A counted reference to bytes in a segment, or in a run of segments.

Segments that are filled together are queued, sent, received, read and given back as one buffer: what a buffer costs in
Python is then paid once for all of them. Everything that counts buffers counts their segments.

Counting across threads without a lock: the references are a list with `True` at the bottom and one `False` above it
for each `retain`. `list.append` and `list.pop` are atomic in CPython (one bytecode under the interpreter lock, a lock
per list without it), so of two threads that give up a reference at once exactly one pops the `True`, and only that
one returns the segment. One reference too many finds the list empty, which is how a double recycle is caught.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from headgate.errors import ExchangeError
from headgate.memory.segment import MemorySegment


class Recycler(Protocol):
    """Takes back segments whose last reference is gone; several at once cost little more than one."""

    def __call__(self, *segments: MemorySegment) -> None: ...


class FileRegion:
    """Bytes of a file that the kernel can send without anyone reading them."""

    __slots__ = ("descriptor", "offset", "size")

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self.descriptor = descriptor
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def after(self, count: int) -> FileRegion:
        """What is left when `count` bytes have been sent."""
        return FileRegion(self.descriptor, self.offset + count, self.size - count)


#: What goes to a socket.
Piece = bytes | memoryview | FileRegion
#: How many the kernel takes in one gathered write, to a socket or a file.
MAX_PIECES: Final = 1024


class Buffer:
    """`size` bytes of a segment from `offset` on, or of a run of several, all but the last of them full, owned until
    `recycle` has been called once per reference.

    Made with one reference. The last `recycle` calls `recycler(*segments)`, on the thread that gave it up.
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
        """A buffer over memory that belongs to no pool, as events have it."""
        return cls((MemorySegment(-1, memoryview(data)),), 0, len(data), _forget)

    @property
    def views(self) -> list[memoryview]:
        """The bytes, read-only and not copied, segment by segment; nothing may look at them after the last
        `recycle`."""
        if len(self.segments) == 1:
            return [self.view]
        views = [segment.view.toreadonly() for segment in self.segments]
        left = self.size - (len(views) - 1) * len(views[0])
        if left < len(views[0]):
            views[-1] = views[-1][:left]
        return views

    @property
    def view(self) -> memoryview:
        """The bytes of a buffer of one segment, as `views` has them."""
        view = self.segments[0].view
        if self.size == len(view):
            return view.toreadonly()
        return view[self.offset : self.offset + self.size].toreadonly()

    @property
    def pieces(self) -> Sequence[Piece]:
        """The bytes as they are sent."""
        return self.views

    @property
    def is_whole(self) -> bool:
        """Its segments are a pool's and full to the last byte, so that another can follow it in one frame."""
        segments = self.segments
        is_full = self.size == len(segments) * len(segments[0].view)
        return is_full and segments[0].index >= 0 and not self.is_compressed

    def split(self, count: int) -> tuple[Buffer, Buffer]:
        """The first `count` of several segments, and the rest; they take the place of this reference."""
        segments = self.segments
        recycler = self._recycler if len(self._references) == 1 else _Parts(self)
        at = count * len(segments[0].view)
        return Buffer(segments[:count], 0, at, recycler), Buffer(segments[count:], 0, self.size - at, recycler)

    def retain(self) -> Buffer:
        """One more reference; only for who holds one. Returns self. Raises ExchangeError after the last recycle."""
        if not self._references:
            raise ExchangeError(f"{self!r} was retained after it had been recycled")
        self._references.append(False)
        return self

    def recycle(self) -> None:
        """Give up one reference. Raises ExchangeError if there was none left."""
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
    """The recycler of the parts of a buffer that others hold too: its segments go back when all have let go."""

    __slots__ = ("_left", "_whole")

    def __init__(self, whole: Buffer) -> None:
        self._whole = whole
        self._left = [True, *[False] * (len(whole.segments) - 1)]

    def __call__(self, *segments: MemorySegment) -> None:
        for _ in segments:
            if self._left.pop():
                self._whole.recycle()


def recycle_all(buffers: Iterable[Buffer]) -> None:
    """As `recycle` of each in turn, but those behind each other with the same recycler come back to it in one call."""
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
    """The recycler of memory that the garbage collector frees."""
