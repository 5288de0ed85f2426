"""Memory for messages whose bytes are still coming in, counted; what is too long or has no room is on disk."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headgate.exchange.nameless_files import local_folder, mapped_file
from headgate.exchange.pending import PendingBudget

#: A message above this is gathered in a file.
SPILL_THRESHOLD: Final = 5 << 20


class Gathering:
    """The messages that one task's channels gather; the `memory` of its deserialisers. The task thread only.

    They share the budget with what the writers of this TaskManager hold. A message that it has no room for goes to a
    nameless file in `spill_dir`, mapped into memory, where it is decoded in place.
    """

    def __init__(self, budget: PendingBudget, spill_dir: str | None) -> None:
        self._budget = budget
        self._count = budget.add_count()
        self._folder = local_folder(spill_dir)
        self._mapped: set[int] = set()
        self.file_bytes = 0
        self.messages_spilled = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of messages being gathered in memory."""
        return self._count.bytes

    def validate(self) -> None:
        """Raises AssertionError unless bytes are counted where there are messages; on the task thread."""
        assert self._count.bytes >= 0, f"{self._count.bytes} bytes of messages in memory"
        assert bool(self._mapped) == (self.file_bytes > 0), f"{self.file_bytes} bytes in {len(self._mapped)} files"

    def allocate(self, size: int) -> pa.Buffer:
        """Writable memory of `size` bytes, aligned to 64 bytes. Raises SpillError when a file cannot be had."""
        if size <= SPILL_THRESHOLD and self._budget.has_room(size):
            self._count.bytes += size
            return pa.allocate_buffer(size)
        message = mapped_file(size, self._folder)
        self._mapped.add(message.address)
        self.file_bytes += size
        self.messages_spilled += 1
        return message

    def complete(self, message: pa.Buffer) -> None:
        """The message is whole; its memory lives on with the batch that is decoded from it."""
        if message.address in self._mapped:
            self._mapped.discard(message.address)
            self.file_bytes -= message.size
        else:
            self._count.bytes -= message.size
