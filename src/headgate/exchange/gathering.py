"""Memory for incoming messages. A large message, or a message beyond the memory budget, goes to disk."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headgate.exchange.nameless_files import local_folder, mapped_file
from headgate.exchange.pending import PendingBudget

#: A message of more bytes than this goes to a file.
SPILL_THRESHOLD: Final = 5 << 20


class Gathering:
    """The memory in which one task collects its incoming messages. Only the task thread may use it.

    The task's deserialisers use it as their `memory`. The messages share a budget with the pending output of this
    TaskManager's writers. A message beyond the budget, or of more than `SPILL_THRESHOLD` bytes, goes to a nameless file
    in `spill_dir`. The file is mapped into memory, and the message is decoded there in place.
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
        """The number of bytes of incoming messages in memory."""
        return self._count.bytes

    def validate(self) -> None:
        """Raise AssertionError when the byte counts contradict the messages. Call it on the task thread."""
        assert self._count.bytes >= 0, f"{self._count.bytes} bytes of messages in memory"
        assert bool(self._mapped) == (self.file_bytes > 0), f"{self.file_bytes} bytes in {len(self._mapped)} files"

    def allocate(self, size: int) -> pa.Buffer:
        """Return `size` bytes of writable memory, aligned to 64 bytes. Raises SpillError when a file cannot be made."""
        if size <= SPILL_THRESHOLD and self._budget.has_room(size):
            self._count.bytes += size
            return pa.allocate_buffer(size)
        message = mapped_file(size, self._folder)
        self._mapped.add(message.address)
        self.file_bytes += size
        self.messages_spilled += 1
        return message

    def complete(self, message: pa.Buffer) -> None:
        """Stop counting a complete message. Its memory lives as long as the batch that is decoded from it."""
        if message.address in self._mapped:
            self._mapped.discard(message.address)
            self.file_bytes -= message.size
        else:
            self._count.bytes -= message.size
