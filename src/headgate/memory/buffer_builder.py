"""A segment that one thread fills while another thread already sends its bytes (Flink's BufferBuilder).

The writer publishes its progress in one attribute, the marker. The marker is the number of bytes written, or the
bitwise complement of that number when the writer has finished. No lock is needed: CPython stores and reads an attribute
atomically, and the writer stores the bytes before the marker. One thread appends and finishes; each consumer belongs to
one thread.

The segment returns to its recycler when the builder is finished, every consumer is closed and every slice is recycled.
The module `buffer` explains how references are counted.
"""

from __future__ import annotations

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer, Recycler
from headgate.memory.segment import MemorySegment


class _SharedSegment:
    """The state that a builder, its consumers and their slices share."""

    __slots__ = ("marker", "recycler", "references", "segment")

    def __init__(self, segment: MemorySegment, recycler: Recycler) -> None:
        self.segment = segment
        self.recycler = recycler
        self.marker = 0
        self.references = [True]  # the builder's

    def release(self, *segments: MemorySegment) -> None:
        """Give up one reference per argument. Slices use this method as their recycler, so it takes segments."""
        for segment in segments:
            if self.references.pop():
                self.recycler(segment)


class BufferBuilder:
    """The writing end of a segment.

    It owns `segment`. The segment goes to `recycler` when its last reference is gone. The builder is full at `capacity`
    bytes, or at the segment's end.
    """

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
        """The number of bytes written so far."""
        return self._position

    @property
    def is_full(self) -> bool:
        return self._position == self.capacity

    @property
    def is_finished(self) -> bool:
        return self._finished

    def create_consumer(self) -> BufferConsumer:
        """Return a reading end that starts at the first byte. Raises ExchangeError when the builder is finished."""
        if self._finished:
            raise ExchangeError(f"{self._shared.segment!r}: a consumer was created after the builder had finished")
        self._shared.references.append(False)
        return BufferConsumer(self._shared)

    def append(self, data: memoryview) -> int:
        """Copy the bytes of `data` (contiguous, format "B") that fit, publish them, and return their number."""
        if self._finished:
            raise ExchangeError(f"{self._shared.segment!r}: {len(data)} bytes were appended to a finished builder")
        start = self._position
        count = min(len(data), self.capacity - start)
        end = start + count
        self._view[start:end] = data[:count]
        self._position = self._shared.marker = end
        return count

    def finish(self) -> int:
        """Record that no more bytes follow, and return the number of bytes written. A second call changes nothing."""
        if not self._finished:
            self._finished = True
            shared = self._shared
            shared.marker = ~self._position
            shared.release(shared.segment)
        return self._position


class BufferConsumer:
    """A reading end of a segment. Each `build` returns the bytes published since the previous one."""

    __slots__ = ("_closed", "_position", "_shared")

    def __init__(self, shared: _SharedSegment) -> None:
        self._shared = shared
        self._position = 0
        self._closed = False

    @property
    def is_finished(self) -> bool:
        """Whether the writer has finished.

        Read this property before you call `build`. If the value is True, `build` then returns all remaining bytes.
        """
        return self._shared.marker < 0

    @property
    def unread(self) -> int:
        """The number of bytes that `build` would return now."""
        marker = self._shared.marker
        return (marker if marker >= 0 else ~marker) - self._position

    @property
    def has_unread(self) -> bool:
        return self.unread > 0

    def build(self) -> Buffer:
        """Return a buffer, perhaps empty, with the bytes published since the last `build`. It has its own reference."""
        if self._closed:
            raise ExchangeError(f"{self._shared.segment!r}: build() was called on a closed buffer consumer")
        shared = self._shared
        marker = shared.marker
        start = self._position
        self._position = end = marker if marker >= 0 else ~marker
        shared.references.append(False)
        return Buffer((shared.segment,), start, end - start, shared.release)

    def peek(self) -> Buffer:
        """Return the buffer that `build` would return, without consuming its bytes."""
        position = self._position
        buffer = self.build()
        self._position = position
        return buffer

    def close(self) -> None:
        """Stop reading. A second call changes nothing. Slices already built stay valid."""
        if not self._closed:
            self._closed = True
            self._shared.release(self._shared.segment)
