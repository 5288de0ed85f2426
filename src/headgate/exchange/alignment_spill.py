"""One channel's alignment at the consumer: blocked behind a barrier it still receives, on disk."""

from __future__ import annotations

from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.records.events import Event, blocks


class AlignmentSpill:
    """What came behind the barrier that blocks a channel, in order. `folder` None is the system's. Task thread only."""

    def __init__(self, folder: str | None) -> None:
        self.is_blocked = False
        self.bytes_spilled = 0
        self._file = SpillFile(folder)

    def __len__(self) -> int:
        return len(self._file)

    def given(self, polled: list[Buffer] | Event | None) -> None:
        """The task was given this: a barrier blocks the channel until `is_blocked` is reset."""
        self.is_blocked = isinstance(polled, Event) and blocks(polled)

    def append(self, item: Buffer | Event) -> None:
        """Something has come meanwhile; a buffer is recycled. Raises SpillError when it cannot be written."""
        if isinstance(item, Buffer):
            self.bytes_spilled += item.size
        self._file.append(item)

    def popleft(self) -> list[Buffer] | Event:
        """The first of it, as a channel polls it. Raises SpillError when it cannot be read."""
        item = self._file.popleft()
        return item if isinstance(item, Event) else [item]

    def close(self) -> None:
        """Forget all of it."""
        self._file.close()
