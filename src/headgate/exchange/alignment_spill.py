"""Spill the data that a channel receives while a barrier blocks it, without credit."""

from __future__ import annotations

from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.records.events import Event, blocks


class AlignmentSpill:
    """The queue of buffers and events that arrived behind the barrier that blocks a channel. Task thread only.

    With `folder` None the file is in the system's temporary folder.
    """

    def __init__(self, folder: str | None) -> None:
        self.is_blocked = False
        self.bytes_spilled = 0
        self._file = SpillFile(folder)

    def __len__(self) -> int:
        return len(self._file)

    def given(self, polled: list[Buffer] | Event | None) -> None:
        """Note what the task has polled. A blocking barrier sets `is_blocked`; the channel resets it."""
        self.is_blocked = isinstance(polled, Event) and blocks(polled)

    def append(self, item: Buffer | Event) -> None:
        """Append a buffer, which is then recycled, or an event. Raises SpillError when the disk refuses it."""
        if isinstance(item, Buffer):
            self.bytes_spilled += item.size
        self._file.append(item)

    def popleft(self) -> list[Buffer] | Event:
        """Return the first item, in the form that a channel's `poll` returns. Raises SpillError if reading fails."""
        item = self._file.popleft()
        return item if isinstance(item, Event) else [item]

    def close(self) -> None:
        """Drop all items and close the file."""
        self._file.close()
