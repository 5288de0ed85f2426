"""The source that replaces a source of the pipeline. Its readers read the rows that the test gives."""

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
    """A source that the test feeds item by item. The threads of the test and of the tasks share it; other processes
    cannot.

    The lock `_changed` protects the queues `_given`, the set `_busy` and the callbacks `_wake`. The callbacks are
    called without the lock. An item counts as read when its reader asks for the next item: then the task has emitted
    all results of the item.
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
        self._busy = set(range(subtasks))  # after a restart each subtask first emits the last watermark again
        self._wake: dict[int, Callable[[], None]] = {}
        self._has_ended = False

    def __reduce__(self) -> Any:
        raise ConfigError("the rows of a test cannot be sent to another process: run its tasks in threads of this one")

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader that waits for the items that the test gives to the subtask."""
        with self._changed:
            self._wake[context.subtask] = context.wake
        return _GivenReader(self, context)

    def give(self, subtask: int, item: Item) -> None:
        """Queue `item` for `subtask` and wake its reader."""
        with self._changed:
            self._given[subtask].append(item)
            wake = self._wake.get(subtask)
        if wake is not None:  # a reader that is not open yet reads the queue when it opens
            wake()

    def end(self) -> None:
        """End the input of all subtasks, behind the queued items."""
        with self._changed:
            self._has_ended = True
            wakes = list(self._wake.values())
        for wake in wakes:
            wake()

    def wait_until_read(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all queued items are read. Return whether all are read."""
        with self._changed:
            return self._changed.wait_for(self._is_read, timeout)

    def _is_read(self) -> bool:
        return not self._busy and not any(self._given)

    def take(self, subtask: int) -> Item | None:
        """Return the next item of `subtask`, or None. The item before it then counts as read. Only the reader calls
        this."""
        with self._changed:
            self._busy.discard(subtask)
            if self._given[subtask]:
                self._busy.add(subtask)
                return self._given[subtask].popleft()
            self._changed.notify_all()
            return None

    @property
    def has_ended(self) -> bool:
        """Whether the test has ended the input."""
        return self._has_ended


class _GivenReader(SourceReader):
    """A reader of the items of one subtask."""

    def __init__(self, source: GivenSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._empty_batch = source.schema.empty_table().to_batches() or [_empty(source.schema)]
        self._items_read = sum(context.positions or ()) if context.subtask == 0 else 0

    def read(self) -> pa.RecordBatch | None:
        has_ended = self._source.has_ended  # read before `take`: an item queued in between would be lost
        item = self._source.take(self._context.subtask)
        if item is None:
            self.finished = has_ended
            return None
        self._items_read += 1
        if isinstance(item, pa.RecordBatch):
            return item
        if isinstance(item, int):
            self.reached = max(self.reached, item)
        elif item.tag in self._context.sides:
            self._context.sides[item.tag](item.rows)
        return self._empty_batch[0]

    def position(self) -> int:
        """Return how many items the reader has read. After a restart, subtask 0 adds the items of earlier readers."""
        return self._items_read


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
