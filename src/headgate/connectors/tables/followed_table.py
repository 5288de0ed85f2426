"""`FollowedTable`: the base class of sources that read a table of files, and then follow it."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import Final, Protocol, Self, TypeVar

import pyarrow as pa

from headgate.connectors.polled_table import PolledTable, TablePoll

#: The name of the only split: a table is read by one subtask.
_SPLIT: Final = "table"


class FilesPoll(TablePoll, Protocol):
    """A function that reads the files of a table. Its rows have these columns."""

    columns: pa.Schema
    #: The columns whose values the job needs. The values of the others are null. None: all are needed.
    needed: Collection[str] | None


Poll = TypeVar("Poll", bound=FilesPoll)


class FollowedTable(PolledTable[Poll]):
    """A source of the rows of a table, which reads only the columns that its job needs."""

    def __init__(self, poll: Poll, *, interval: float | str, bounded: bool) -> None:
        super().__init__(poll, poll.columns, _SPLIT, interval=interval, bounded=bounded)

    def reading(self, columns: Collection[str]) -> Self:
        """Return a source that reads only these columns from the files."""
        other = copy(self)
        other.fn = other._poll = copy(self._poll)
        other._poll.needed = columns
        return other
