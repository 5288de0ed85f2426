"""The source that stands in for one of a pipeline's own: it reads what a test gives it, when the test does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.errors import ConfigError
from headgate.operators.side_output import SideOutput

#: Rows, rows of a side output, or a watermark.
Item: TypeAlias = pa.RecordBatch | SideOutput | int


class GivenSource(Source):
    """Shared by the test's thread and the tasks' (never by processes). `_changed` protects all that changes.

    An item has been read once its reader asks for the next: by then its task has sent on all that came of it.
    """

    def __init__(
        self, schema: pa.Schema, sides: Mapping[str, pa.Schema], subtasks: int, *, has_event_time: bool
    ) -> None:
        self.schema = schema
        self.sides = sides
        self.subtasks = subtasks
        self.has_event_time = has_event_time
        self._changed = threading.Condition()
        self._given: list[deque[Item]] = [deque() for _ in range(subtasks)]
        self._at_work = set(range(subtasks))  # a reader's task begins with the watermark of the job before
        self._wake: dict[int, Callable[[], None]] = {}
        self._has_ended = False

    def __reduce__(self) -> Any:
        raise ConfigError("rows that a test gives reach only tasks in threads of its own process")

    def reader(self, context: ReaderContext) -> SourceReader:
        """One that waits for what the test gives."""
        with self._changed:
            self._wake[context.subtask] = context.wake
        return _GivenReader(self, context)

    def give(self, subtask: int, item: Item) -> None:
        """Have a subtask read it."""
        with self._changed:
            self._given[subtask].append(item)
            wake = self._wake.get(subtask)
        if wake is not None:  # else it reads when it is opened
            wake()

    def end(self) -> None:
        """There is no more to come."""
        with self._changed:
            self._has_ended = True
            wakes = list(self._wake.values())
        for wake in wakes:
            wake()

    def wait_until_read(self, timeout: float) -> bool:
        """Whether all that was given has been read, after waiting for it so many seconds at most."""
        with self._changed:
            return self._changed.wait_for(self._is_read, timeout)

    def _is_read(self) -> bool:
        return not self._at_work and not any(self._given)

    def take(self, subtask: int) -> Item | None:
        """A reader asks for its next item, and is through with the last one."""
        with self._changed:
            self._at_work.discard(subtask)
            if self._given[subtask]:
                self._at_work.add(subtask)
                return self._given[subtask].popleft()
            self._changed.notify_all()
            return None

    @property
    def has_ended(self) -> bool:
        """As the test says."""
        return self._has_ended


class _GivenReader(SourceReader):
    def __init__(self, source: GivenSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._nothing = source.schema.empty_table().to_batches() or [_empty(source.schema)]
        self._items = sum(context.positions or ()) if context.subtask == 0 else 0

    def read(self) -> pa.RecordBatch | None:
        has_ended = self._source.has_ended  # before the look, or what came between would be left
        item = self._source.take(self._context.subtask)
        if item is None:
            self.finished = has_ended
            return None
        self._items += 1
        if isinstance(item, pa.RecordBatch):
            return item
        if isinstance(item, int):
            self.reached = max(self.reached, item)
        elif item.tag in self._context.sides:
            self._context.sides[item.tag](item.rows)
        return self._nothing[0]

    def position(self) -> int:
        """How many items it has read; those of all readers before go to the first one."""
        return self._items


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
