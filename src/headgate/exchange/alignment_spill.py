"""Keep on disk the data that arrive on a blocked channel of an exchange without credit."""

from __future__ import annotations

from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.records.events import Event, blocks


class AlignmentSpill:
    """A queue on disk of the buffers and events that arrive on a channel while a barrier blocks the channel.

    One thread at a time uses it: the task thread, or a thread that fills the task's queue. If `folder` is None, the
    file is in the system's temporary folder.
    """

    def __init__(self, folder: str | None) -> None:
        self.is_blocked = False
        self.bytes_spilled = 0
        self._file = SpillFile(folder)

    def __len__(self) -> int:
        return len(self._file)

    def given(self, polled: list[Buffer] | Event | None) -> None:
        """Set `is_blocked` to True if the task has polled a blocking barrier, otherwise to False.

        A channel that resumes sets `is_blocked` to False itself.
        """
        self.is_blocked = isinstance(polled, Event) and blocks(polled)

    def append(self, item: Buffer | Event) -> None:
        """Append an event, or append and recycle a buffer. Raises SpillError when the disk refuses the data."""
        if isinstance(item, Buffer):
            self.bytes_spilled += item.size
        self._file.append(item)

    def popleft(self) -> list[Buffer] | Event:
        """Remove the first item and return it in the form of a channel's `poll`. Raises SpillError if reading fails."""
        item = self._file.popleft()
        return item if isinstance(item, Event) else [item]

    def close(self) -> None:
        """Drop all items and close the file."""
        self._file.close()
