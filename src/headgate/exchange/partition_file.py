"""The file of one blocking result partition: all its buffers one after the other, without a name."""

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
    """A buffer that lies in a file: sent from there by the kernel, read in place through a mapping."""

    __slots__ = ("_descriptor",)

    def __init__(self, file: PartitionFile, offset: int, size: int, is_compressed: bool) -> None:
        super().__init__((file.segment,), offset, size, file.recycle, is_compressed)
        assert file.descriptor is not None
        self._descriptor = file.descriptor

    @property
    def pieces(self) -> Sequence[FileRegion]:
        return (FileRegion(self._descriptor, self.offset, self.size),)


class PartitionFile:
    """Written by one thread, then read by any. Made with one reference; the last `release` closes it. There is no file
    before the first byte."""

    def __init__(self, folder: str, lock_factory: LockFactory) -> None:
        self._folder = folder
        self._descriptor: int | None = None
        self._lock = lock_factory()
        self._references = 1
        self.size = 0
        #: All of the file, once a consumer reads it.
        self.segment = MemorySegment(-1, memoryview(b""))

    @property
    def descriptor(self) -> int | None:
        """None as long as nothing was written."""
        return self._descriptor

    def append(self, pieces: Sequence[memoryview | bytes]) -> int:
        """Write the pieces at the end, in one system call if the disk takes them. Returns where they begin. Raises
        SpillError when the folder has no room."""
        if self._descriptor is None:
            self._descriptor = nameless_file(self._folder)
        start = self.size
        left = [memoryview(piece) for piece in pieces]
        while left:
            try:
                count = os.pwritev(self._descriptor, left[:MAX_PIECES], self.size)
            except OSError as error:
                raise spill_error(self._folder, error) from error
            self.size += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if left and count:
                left[0] = left[0][count:]
        return start

    def buffer(self, offset: int, size: int, is_compressed: bool) -> FileBuffer:
        """A part of the file, with a reference of its own, which readers of this process may look at in place. Raises
        SpillError when the file was closed."""
        with self._lock:
            if not self._references:
                raise SpillError(f"a file in {self._folder} was closed while it was still read")
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
        """One more reference, for who will read a part of it."""
        with self._lock:
            self._references += 1

    def recycle(self, *segments: MemorySegment) -> None:
        """The recycler of buffers: give up a reference for each."""
        self.release(len(segments))

    def release(self, count: int = 1) -> None:
        """Give up references."""
        with self._lock:
            self._references -= count
            if self._references:
                return
            segment, self.segment = self.segment, MemorySegment(-1, memoryview(b""))
        if self._descriptor is not None:
            os.close(self._descriptor)
        with contextlib.suppress(BufferError):  # a view is still held somewhere: it unmaps when that is gone
            mapping = segment.view.obj
            segment.view.release()
            if isinstance(mapping, mmap.mmap):
                mapping.close()
