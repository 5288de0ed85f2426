"""Store the buffers and events of a blocked channel in order, in a nameless file."""

from __future__ import annotations

from collections import deque
from io import FileIO

from headgate.exchange.nameless_files import local_folder, nameless_file, spill_error
from headgate.memory.buffer import Buffer
from headgate.records.events import Event


class SpillFile:
    """A queue of buffers and events. Only one thread may use this object.

    The bytes of buffers are in a file in `local_folder(folder)`; events and sizes are in memory. The first buffer
    creates the file. The file is truncated when no buffer remains.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = local_folder(folder)
        self._file: FileIO | None = None
        self._queue: deque[int | Event] = deque()
        self._read_at = 0
        self._written_to = 0

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, item: Buffer | Event) -> None:
        """Append an event, or append and recycle a buffer. Raises SpillError when the folder has no room."""
        if not isinstance(item, Buffer):
            self._queue.append(item)
            return
        try:
            if self._file is None:
                self._file = FileIO(nameless_file(self._folder), "r+")
            self._write(self._file, item)
        except OSError as error:
            raise spill_error(self._folder, error) from error
        finally:
            item.recycle()
        self._queue.append(item.size)

    def _write(self, file: FileIO, buffer: Buffer) -> None:
        file.seek(self._written_to)
        for view in buffer.views:
            rest = view
            while rest:
                rest = rest[file.write(rest) :]
        self._written_to += buffer.size

    def popleft(self) -> Buffer | Event:
        """Remove and return the first item. The bytes of a buffer are in new memory.

        Raises IndexError when the queue is empty, SpillError when the file cannot be read.
        """
        item = self._queue.popleft()
        if isinstance(item, Event):
            return item
        assert self._file is not None
        try:
            return Buffer.of_bytes(self._read(self._file, item))
        except OSError as error:
            raise spill_error(self._folder, error) from error

    def _read(self, file: FileIO, size: int) -> bytes:
        """Return the next `size` bytes. When no bytes remain, truncate the file."""
        file.seek(self._read_at)
        data = bytearray()
        while len(data) < size:
            data += file.read(size - len(data))
        self._read_at += size
        if self._read_at == self._written_to:
            file.truncate(0)
            self._read_at = self._written_to = 0
        return bytes(data)

    def close(self) -> None:
        """Drop all items and close the file. A second call changes nothing."""
        self._queue.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
