"""`FollowedTable`: the base class of sources that read a table of files, and then follow it."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import Any, Final, Protocol, Self, TypeVar

import pyarrow as pa

from headgate.connectors.polled_table import PolledTable, TablePoll
from headgate.errors import SourceError

#: The name of the only split: a table is read by one subtask.
_SPLIT: Final = "table"


class FilesPoll(TablePoll, Protocol):
    """A function that reads the files of a table. Its rows have these columns."""

    columns: pa.Schema
    #: The ID that the table has for itself.
    table_id: str
    #: The columns whose values the job needs. The values of the others are null. None: all are needed.
    needed: Collection[str] | None


Poll = TypeVar("Poll", bound=FilesPoll)


class FollowedTable(PolledTable[Poll]):
    """A source of the rows of a table, which reads only the columns that its job needs."""

    def __init__(self, poll: Poll, *, interval: float | str, bounded: bool) -> None:
        super().__init__(poll, poll.columns, _SPLIT, interval=interval, bounded=bounded)

    def prepared(self) -> Any:
        """Return the table's own ID, which it keeps when it is moved, and its name."""
        return {"id": self._poll.table_id, "name": self._poll.what}

    def restore(self, prepared: Any) -> None:
        """Raise SourceError if the job of the checkpoint read another table."""
        before = prepared if isinstance(prepared, dict) else {}
        if before.get("id") != self._poll.table_id:
            what, name = self._poll.what, before.get("name")
            wrong = (
                "the table was removed and made anew after the checkpoint; restore it and resume" if name == what
                else f"the job of the checkpoint reads {name}, and knows its place there; give that"
            )  # fmt: skip
            raise SourceError(f"{what}: {wrong}, or start without resume")
        self.prepare()

    def reading(self, columns: Collection[str]) -> Self:
        """Return a source that reads only these columns from the files."""
        other = copy(self)
        other.fn = other._poll = copy(self._poll)
        other._poll.needed = columns
        return other
