"""A table that a lookup does not load, but asks for rows, such as one in a database: `lookup(hg.lookups.adbc(...))`."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa


class AskedTable(ABC):
    """A picklable description of a table that can be asked for the rows of keys."""

    @abstractmethod
    def columns(self, keys: pa.Schema, wanted: pa.Schema | None) -> pa.Schema:
        """Return the columns that the table adds to rows with these keys: `wanted`, or all its other columns if that is
        None.

        Raises PlanError for keys that the table cannot be asked for, and SourceError if the table cannot be read.
        """

    @abstractmethod
    def opened(self, keys: pa.Schema, columns: pa.Schema, timeout: float) -> OpenedTable:
        """Return an opened table that one subtask asks for these columns. A call should take at most `timeout`
        seconds."""


class OpenedTable(ABC):
    """A table that one subtask has opened. Several threads call it at the same time. `name` is the table's name in
    errors."""

    def __init__(self, name: str) -> None:
        self.__qualname__ = name

    @abstractmethod
    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        """Return the rows of these keys, with the columns of the keys. Raises SourceError."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections that are not in use. Those in use close when their calls return."""
