"""What a blocked channel has received, on disk: buffers and events in order, in a file without a name."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from io import FileIO

from headgate.memory.buffer import Buffer
from headgate.records.events import Event


class SpillFile:
    """A queue. Bytes of buffers are in the file, which is made with the first and emptied with the last of them; events
    and sizes are in memory. One thread only."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._file: FileIO | None = None
        self._queue: deque[int | Event] = deque()
        self._read_at = 0
        self._written_to = 0

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, item: Buffer | Event) -> None:
        """Behind all others; a buffer is recycled. Raises OSError when the disk is full."""
        if not isinstance(item, Buffer):
            self._queue.append(item)
            return
        try:
            if self._file is None:
                self._file = self._open()
            self._file.seek(self._written_to)
            for view in item.views:
                rest = view
                while rest:
                    rest = rest[self._file.write(rest) :]
        finally:
            item.recycle()
        self._written_to += item.size
        self._queue.append(item.size)

    def _open(self) -> FileIO:
        number, name = tempfile.mkstemp(dir=self._folder, prefix="headgate-alignment-")
        os.unlink(name)
        return FileIO(number, "r+")

    def popleft(self) -> Buffer | Event:
        """The first; a buffer comes in memory of its own. Raises IndexError when there is none."""
        item = self._queue.popleft()
        if isinstance(item, Event):
            return item
        assert self._file is not None
        self._file.seek(self._read_at)
        data = bytearray()
        while len(data) < item:
            data += self._file.read(item - len(data))
        self._read_at += item
        if self._read_at == self._written_to:
            self._file.truncate(0)
            self._read_at = self._written_to = 0
        return Buffer.of_bytes(bytes(data))

    def close(self) -> None:
        """Forget all of it; again is harmless."""
        self._queue.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
