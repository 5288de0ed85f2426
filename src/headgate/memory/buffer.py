"""A counted reference to bytes in a segment.

Counting across threads without a lock: the references are a list with `True` at the bottom and one `False` above it
for each `retain`. `list.append` and `list.pop` are atomic in CPython (one bytecode under the interpreter lock, a lock
per list without it), so of two threads that give up a reference at once exactly one pops the `True`, and only that
one returns the segment. One reference too many finds the list empty, which is how a double recycle is caught.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import ExchangeError
from headgate.memory.segment import MemorySegment


class Recycler(Protocol):
    """Takes back segments whose last reference is gone; several at once cost little more than one."""

    def __call__(self, *segments: MemorySegment) -> None: ...


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of a file that the kernel can send without anyone reading them."""

    descriptor: int
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def after(self, count: int) -> FileRegion:
        """What is left when `count` bytes have been sent."""
        return FileRegion(self.descriptor, self.offset + count, self.size - count)


#: What goes to a socket.
Piece = bytes | memoryview | FileRegion


class Buffer:
    """`size` bytes of `segment` from `offset` on, owned until `recycle` has been called once per reference.

    Made with one reference. The last `recycle` calls `recycler(segment)`, on the thread that gave it up.
    """

    __slots__ = ("_recycler", "_references", "is_compressed", "offset", "segment", "size")

    def __init__(
        self, segment: MemorySegment, offset: int, size: int, recycler: Recycler, is_compressed: bool = False
    ) -> None:
        self.segment = segment
        self.is_compressed = is_compressed
        self.offset = offset
        self.size = size
        self._recycler = recycler
        self._references = [True]

    @classmethod
    def of_bytes(cls, data: bytes) -> Buffer:
        """A buffer over memory that belongs to no pool, as events have it."""
        return cls(MemorySegment(-1, memoryview(data)), 0, len(data), _forget)

    @property
    def view(self) -> memoryview:
        """The bytes, read-only and not copied; nothing may look at them after the last `recycle`."""
        view = self.segment.view
        if self.size == len(view):
            return view.toreadonly()
        return view[self.offset : self.offset + self.size].toreadonly()

    @property
    def piece(self) -> Piece:
        """The bytes as they are sent."""
        return self.view

    @property
    def is_recycled(self) -> bool:
        return not self._references

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
            self._recycler(self.segment)

    def __repr__(self) -> str:
        return f"Buffer(segment {self.segment.index}, bytes {self.offset} to {self.offset + self.size})"


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
            run.append(buffer.segment)
    if run:
        recycler(*run)


def _forget(*segments: MemorySegment) -> None:
    """The recycler of memory that the garbage collector frees."""
