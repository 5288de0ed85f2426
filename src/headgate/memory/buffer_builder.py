"""A segment that one thread fills while another already sends what is in it (Flink's marker protocol).

The writer publishes how far it has come in one attribute, the marker: the bytes written so far, or their bitwise
complement once no more will follow. Storing and reading an attribute is atomic in CPython and the bytes are written
before the marker, so no lock is needed: one thread appends and finishes, and each consumer belongs to one thread.

The segment goes back when no one can read it any more: the builder is finished, every consumer closed and every
slice recycled. References are counted as in `buffer`.
"""

from __future__ import annotations

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer, Recycler
from headgate.memory.segment import MemorySegment


class _SharedSegment:
    """What a builder, its consumers and their slices have in common."""

    __slots__ = ("marker", "recycler", "references", "segment")

    def __init__(self, segment: MemorySegment, recycler: Recycler) -> None:
        self.segment = segment
        self.recycler = recycler
        self.marker = 0
        self.references = [True]  # the builder's

    def release(self, *segments: MemorySegment) -> None:
        """So many of the references end; the recycler of slices, hence the arguments."""
        for segment in segments:
            if self.references.pop():
                self.recycler(segment)


class BufferBuilder:
    """The writing end. It owns `segment` from now on and gives it to `recycler` when all is done. It is full at
    `capacity` bytes, or at the segment's end."""

    __slots__ = ("_finished", "_position", "_shared", "_view", "capacity")

    def __init__(self, segment: MemorySegment, recycler: Recycler, capacity: int | None = None) -> None:
        size = len(segment.view)
        self.capacity = size if capacity is None else min(size, capacity)
        self._view = segment.view
        self._shared = _SharedSegment(segment, recycler)
        self._position = 0
        self._finished = False

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._position

    @property
    def is_full(self) -> bool:
        return self._position == self.capacity

    @property
    def is_finished(self) -> bool:
        return self._finished

    def create_consumer(self) -> BufferConsumer:
        """A reading end that starts at the first byte. Raises ExchangeError once finished."""
        if self._finished:
            raise ExchangeError("a consumer must be created before the buffer is finished")
        self._shared.references.append(False)
        return BufferConsumer(self._shared)

    def append(self, data: memoryview) -> int:
        """Copy as much of `data` (contiguous, format "B") as fits, publish it, and return how many bytes that was."""
        if self._finished:
            raise ExchangeError("bytes were appended to a finished buffer")
        start = self._position
        count = min(len(data), self.capacity - start)
        end = start + count
        self._view[start:end] = data[:count]
        self._position = self._shared.marker = end
        return count

    def finish(self) -> int:
        """No more will follow; again is harmless. Returns the number of bytes written."""
        if not self._finished:
            self._finished = True
            shared = self._shared
            shared.marker = ~self._position
            shared.release(shared.segment)
        return self._position


class BufferConsumer:
    """A reading end: slices the bytes published since the last time."""

    __slots__ = ("_closed", "_position", "_shared")

    def __init__(self, shared: _SharedSegment) -> None:
        self._shared = shared
        self._position = 0
        self._closed = False

    @property
    def is_finished(self) -> bool:
        """No more will be written. Ask before `build`, not after: only then is what it returns all the rest."""
        return self._shared.marker < 0

    @property
    def unread(self) -> int:
        """How many bytes `build` would return now."""
        marker = self._shared.marker
        return (marker if marker >= 0 else ~marker) - self._position

    @property
    def has_unread(self) -> bool:
        return self.unread > 0

    def build(self) -> Buffer:
        """The bytes since the last `build`, perhaps none, with a reference of their own."""
        if self._closed:
            raise ExchangeError("a closed buffer consumer was asked for bytes")
        shared = self._shared
        marker = shared.marker
        start = self._position
        self._position = end = marker if marker >= 0 else ~marker
        shared.references.append(False)
        return Buffer((shared.segment,), start, end - start, shared.release)

    def peek(self) -> Buffer:
        """What `build` would return, which still returns it."""
        position = self._position
        buffer = self.build()
        self._position = position
        return buffer

    def close(self) -> None:
        """Read no more; again is harmless. Slices already built stay valid."""
        if not self._closed:
            self._closed = True
            self._shared.release(self._shared.segment)
