"""The nameless file of one blocking result partition. It holds all buffers of the partition, one after the other."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

from headgate.errors import SpillError
from headgate.exchange.nameless_files import nameless_file, spill_error
from headgate.memory.buffer import MAX_PIECES, Buffer, FileRegion
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment


class FileBuffer(Buffer):
    """A buffer whose bytes are in a file. The kernel sends them from the file; local readers use a mapping of it."""

    __slots__ = ("_descriptor",)

    def __init__(self, file: PartitionFile, offset: int, size: int, is_compressed: bool) -> None:
        super().__init__((file.segment,), offset, size, file.recycle, is_compressed)
        assert file.descriptor is not None
        self._descriptor = file.descriptor

    @property
    def pieces(self) -> Sequence[FileRegion]:
        return (FileRegion(self._descriptor, self.offset, self.size),)


class PartitionFile:
    """A reference-counted file. One thread writes it; afterwards any thread may read it.

    A new instance has one reference, and the last `release` closes the file. The first `append` creates the file. The
    lock protects the references and the mapping.
    """

    def __init__(self, folder: str, lock_factory: LockFactory) -> None:
        self._folder = folder
        self._descriptor: int | None = None
        self._lock = lock_factory()
        self._references = 1
        self.size = 0
        #: The mapping of the whole file, made for the first reader.
        self.segment = MemorySegment(-1, memoryview(b""))

    @property
    def descriptor(self) -> int | None:
        """The file's descriptor, or None before the first byte."""
        return self._descriptor

    def append(self, pieces: Sequence[memoryview | bytes]) -> int:
        """Write pieces at the end of the file and return the offset of the first one.

        Raises SpillError when the folder has no room.
        """
        if self._descriptor is None:
            self._descriptor = nameless_file(self._folder)
        start = self.size
        remaining = [memoryview(piece) for piece in pieces]
        while remaining:
            try:
                count = os.pwritev(self._descriptor, remaining[:MAX_PIECES], self.size)
            except OSError as error:
                raise spill_error(self._folder, error) from error
            self.size += count
            while remaining and count >= len(remaining[0]):
                count -= len(remaining.pop(0))
            if remaining and count:
                remaining[0] = remaining[0][count:]
        return start

    def buffer(self, offset: int, size: int, is_compressed: bool) -> FileBuffer:
        """Return a part of the file as a buffer with its own reference. Raises SpillError when the file is closed."""
        with self._lock:
            if not self._references:
                raise SpillError(
                    f"a file in {self._folder} was closed while {size} bytes at offset {offset} were still to be read"
                )
            self._references += 1
            if len(self.segment.view) < self.size:
                self.segment = self._map()
        return FileBuffer(self, offset, size, is_compressed)

    def _map(self) -> MemorySegment:
        assert self._descriptor is not None
        try:
            return MemorySegment(-1, memoryview(mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ)))
        except OSError as error:
            raise spill_error(self._folder, error) from error

    def retain(self) -> None:
        """Add a reference, for a reader."""
        with self._lock:
            self._references += 1

    def recycle(self, *segments: MemorySegment) -> None:
        """Give up one reference per segment. The file's buffers use this method as their recycler."""
        self.release(len(segments))

    def release(self, count: int = 1) -> None:
        """Give up `count` references; the last one closes the file."""
        with self._lock:
            self._references -= count
            if self._references:
                return
            segment, self.segment = self.segment, MemorySegment(-1, memoryview(b""))
        if self._descriptor is not None:
            os.close(self._descriptor)
        with contextlib.suppress(BufferError):  # a view is still alive: the last view closes the mapping
            mapping = segment.view.obj
            segment.view.release()
            if isinstance(mapping, mmap.mmap):
                mapping.close()
