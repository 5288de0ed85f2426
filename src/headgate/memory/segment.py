"""Network memory itself: one anonymous mapping cut into segments of equal size.

The mapping is private and outside the Python heap. It has no name in the file system, so a killed process leaves
nothing behind, and the kernel gives it pages only when they are first written.
"""

from __future__ import annotations

import mmap

from headgate.errors import ExchangeError


class MemorySegment:
    """`view` is all the memory there is of segment number `index`: writable, `segment_size` bytes."""

    __slots__ = ("index", "view")

    def __init__(self, index: int, view: memoryview) -> None:
        self.index = index
        self.view = view

    def __repr__(self) -> str:
        return f"MemorySegment({self.index}, {len(self.view)} bytes)"


class SegmentArena:
    """`total` segments of `segment_size` bytes in one page-aligned mapping, handed out by `segments` once."""

    __slots__ = ("_mapping", "_whole", "segment_size", "segments")

    def __init__(self, total: int, segment_size: int) -> None:
        self.segment_size = segment_size
        self._mapping = mmap.mmap(-1, total * segment_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._whole = memoryview(self._mapping)
        self.segments = tuple(
            MemorySegment(index, self._whole[index * segment_size : (index + 1) * segment_size])
            for index in range(total)
        )

    def close(self) -> None:
        """Unmap the memory; again is harmless. Raises ExchangeError while someone still looks into a segment."""
        try:
            for segment in self.segments:
                segment.view.release()
            self._whole.release()
            self._mapping.close()
        except BufferError:
            raise ExchangeError(
                "network memory cannot be unmapped: a view into a segment is still alive; "
                "its owner must copy the bytes out before recycling the segment"
            ) from None
