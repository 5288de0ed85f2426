"""Network memory: one anonymous mapping, cut into segments of equal size.

The mapping is private and lies outside the Python heap. The mapping has no name in the file system, so nothing is left
of it when the process is killed. The kernel provides a page only when it is first written.
"""

from __future__ import annotations

import mmap

from headgate.errors import ExchangeError


class MemorySegment:
    """A piece of network memory: `view` is writable and has `segment_size` bytes; `index` is its number.

    An `index` of -1 marks memory that belongs to no pool. Its `view` may have any size and may be read-only.
    """

    __slots__ = ("index", "view")

    def __init__(self, index: int, view: memoryview) -> None:
        self.index = index
        self.view = view

    def __repr__(self) -> str:
        return f"MemorySegment({self.index}, {len(self.view)} bytes)"


class SegmentArena:
    """`total` segments of `segment_size` bytes in one page-aligned mapping."""

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
        """Unmap the memory. A second call changes nothing.

        Raises ExchangeError while a view into a segment is alive.
        """
        try:
            for segment in self.segments:
                segment.view.release()
            self._whole.release()
            self._mapping.close()
        except BufferError:
            raise ExchangeError(
                f"network memory of {len(self.segments)} segments cannot be unmapped: a view into a segment is still "
                f"alive; its holder must copy the bytes before it recycles the segment"
            ) from None
