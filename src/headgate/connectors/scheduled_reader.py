"""`ScheduledReader`: the base class of readers that know when their next rows are due."""

from __future__ import annotations

from abc import abstractmethod

from headgate.connectors.connector import SourceReader


class ScheduledReader(SourceReader):
    """A reader that has no rows before the time that `next_read` returns, also after `read` has returned a batch.

    So the task waits for that time after each batch. It asks other readers for the next batch first.
    """

    @abstractmethod
    def next_read(self) -> float | None:
        """Return the time, by the context's clock, before which the reader has no rows.

        Returns None if it may have rows now, or if it has finished.
        """
