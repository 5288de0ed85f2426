"""`PolledTable`: a source like `hg.sources.poll`, but of one table, and with a function of Headgate."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, SourceReader
from headgate.connectors.poll_source import PollSource


class TablePoll(Protocol):
    """A function for a `PollSource` that holds a connection or a file."""

    #: The name of the table, for errors and checkpoints. It has no passwords. A table may have several.
    what: str

    def __call__(self, split: str, position: Any) -> tuple[pa.RecordBatch, Any] | None: ...

    def close(self) -> None:
        """Free what the function holds. The next call may open it again."""


Poll = TypeVar("Poll", bound=TablePoll)


class PolledTable(PollSource, Generic[Poll]):
    """The base class of sources of one table. The table is the only split, named `split`, so one subtask reads it."""

    def __init__(self, poll: Poll, schema: pa.Schema, split: str, *, interval: float | str, bounded: bool) -> None:
        super().__init__(poll, schema, [split], interval=interval, bounded=bounded)
        self.task_functions = ()  # the function is not the user's
        self._poll = poll

    @abstractmethod
    def prepared(self) -> Any:
        """Return what the source reads, because a place in one table says nothing about another."""

    @abstractmethod
    def restore(self, prepared: Any) -> None:
        """Raise SourceError if the job of the checkpoint read another table. Otherwise prepare."""

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader whose function holds a connection or a file of its own."""
        own = copy(self)
        own.fn = own._poll = copy(self._poll)
        return PollSource.reader(own, context)

    def end_polls(self) -> None:
        """Free what the function holds."""
        self._poll.close()

    def check_position(self, position: Any) -> None:
        """Raise ValueError unless `position` maps each split to a state and to a place in the table or None."""
        super().check_position(position)
        for _, place in position.values():
            self.check_place(place)

    @abstractmethod
    def check_place(self, place: Any) -> None:
        """Raise ValueError if `place` is neither None nor a place that the function returns."""
