"""Sources of batches from a list, or from a user's function that returns an iterator for each subtask."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial, update_wrapper
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.fetcher import Fetcher
from headgate.connectors.frames import SPARK_REMEDY, Frame, is_frame, is_of_spark, one_batch
from headgate.connectors.schemas import shown
from headgate.connectors.share import Share, share_shape
from headgate.errors import ConfigError, SourceError, UnusableState, UserFunctionError
from headgate.operators.conversion import CONVERSION_ERRORS, converted
from headgate.operators.operator import call_user
from headgate.state import shapes

#: Rows as dicts, or a frame. Type checkers accept a RecordBatch too, because it has the protocol of frames.
Item: TypeAlias = "Frame | Sequence[dict[str, Any]]"
#: A function that is called with (subtask, subtasks). It must return the same items each time.
Factory: TypeAlias = Callable[[int, int], Iterable[Item]]

_END = object()
_TAKEN = shapes.items(shapes.row(shapes.count, shapes.optional(shapes.count)))
_POSITION = shapes.fields({"of": shapes.whole(1, 1 << 31), "taken": _TAKEN})


class ListSource(Source):
    """A source of a list of batches. Batch i goes to subtask i mod parallelism; see `hg.sources.iterable`."""

    def __init__(self, items: Sequence[Item], schema: pa.Schema | None) -> None:
        if schema is None and not items:
            raise ConfigError("iterable: the list is empty, so its schema is unknown; give schema=")
        first = schema if schema is not None else to_batch(items[0], None, "iterable: item 0").schema
        self.schema = first.remove_metadata()
        self._batches = [to_batch(item, self.schema, f"iterable: item {number}") for number, item in enumerate(items)]

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's batches."""
        return _ListReader(self._batches, context)

    def check_position(self, position: Any) -> None:
        """Raise ValueError if no reader of numbered batches can return `position`."""
        share_shape(shapes.nothing)(position, "the position")


class _ListReader(SourceReader):
    def __init__(self, batches: list[pa.RecordBatch], context: ReaderContext) -> None:
        self._batches = batches
        self._share = Share(context)

    def read(self) -> pa.RecordBatch | None:
        while self._share.number < len(self._batches):
            batch = self._batches[self._share.number]
            self._share.advance()
            if batch.num_rows:
                return batch
        self.finished = True
        return None

    def position(self) -> Any:
        return self._share.position()


class FactorySource(Source):
    """A source of one iterator per subtask. The iterator may block; see `hg.sources.iterable`."""

    def __init__(self, factory: Factory, schema: pa.Schema | None, *, bounded: bool, replayable: bool) -> None:
        self._factory = factory
        self.task_functions = (factory,)
        self.bounded = bounded
        self.replayable = replayable
        self.schema = (_first_schema(factory) if schema is None else schema).remove_metadata()

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's iterator. The iterator runs on its own thread."""
        return _FactoryReader(self._factory, self, context)

    def check_position(self, position: Any) -> None:
        """Raise ValueError if `position` does not count the batches that were taken from each iterator."""
        (_POSITION if self.replayable else shapes.nothing)(position, "the position")


class _FactoryReader(SourceReader):
    """The reader of one subtask's iterator.

    If the parallelism has changed since the checkpoint, the reader takes its share of the former readers' iterators.
    This share may be several iterators, which the reader reads one after the other, or none.
    """

    def __init__(self, factory: Factory, source: FactorySource, context: ReaderContext) -> None:
        self._factory = factory
        self._source = source
        self._context = context
        #: The total number of iterators of all readers.
        self._iterators = context.parallelism
        #: How many batches the reader has taken from each of its iterators, by the iterator's number. None means all
        #: batches.
        self._taken: dict[int, int | None] = {context.subtask: 0}
        if context.positions and source.replayable:
            self._iterators = count = context.positions[0]["of"]
            taken = dict(pair for position in context.positions for pair in position["taken"])
            if len(taken) != count or max(taken) >= count:
                raise UnusableState(f"iterable: the checkpoint has positions for {len(taken)} of {count} iterators")
            self._taken = {number: taken[number] for number in range(context.subtask, count, context.parallelism)}
        self._unfinished = [number for number, taken in self._taken.items() if taken is not None]
        if len(self._unfinished) > 1 and not source.bounded:
            raise SourceError(
                f"iterable: the checkpoint has {self._iterators} iterators without end, and a subtask can read only "
                f"one; resume with a parallelism of at least {self._iterators}"
            )
        self._fetcher = self._fetch_next()

    def read(self) -> pa.RecordBatch | None:
        while self._fetcher is not None:
            batch = self._fetcher.take()
            if batch is not None:
                self._taken[self.split] = (self._taken[self.split] or 0) + 1
                return batch
            if not self._fetcher.finished:
                return None
            self._fetcher.close()
            self._taken[self.split] = None
            self._fetcher = self._fetch_next()
        self.finished = True
        return None

    @property
    def is_reading(self) -> bool:
        """Whether the iterator is at work. An iterator without end does not count: it may only wait for new rows."""
        return self._source.bounded and self._fetcher is not None

    def position(self) -> Any:
        """Return how many batches the reader has taken from each iterator."""
        return {"of": self._iterators, "taken": list(self._taken.items())} if self._source.replayable else None

    def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()

    def is_stuck(self) -> bool:
        return self._fetcher is not None and self._fetcher.is_stuck

    def _fetch_next(self) -> Fetcher[pa.RecordBatch] | None:
        """Start a thread for the next iterator. The thread skips the batches that were already taken from this
        iterator."""
        if not self._unfinished:
            return None
        self.split = number = self._unfinished.pop(0)
        context = self._context
        return Fetcher(
            f"headgate-fetcher-{context.operator}[{context.subtask}]",
            lambda: _batches(self._factory, number, self._iterators, self._source.schema),
            context.wake,
            skip=self._taken[number] or 0,
        )


def to_batch(item: object, schema: pa.Schema | None, what: str) -> pa.RecordBatch:
    """Convert a RecordBatch, a frame or a list of dicts to a record batch of the schema.

    If `schema` is None, the batch has the schema of the item. `what` names the item in errors. Raises SourceError.
    """
    if isinstance(item, pa.RecordBatch):
        if schema is None:
            return item
        if not item.schema.equals(schema):
            raise SourceError(f"{what} has schema ({shown(item.schema)}), not ({shown(schema)})")
        if item.schema.equals(schema, check_metadata=True):
            return item
        return pa.RecordBatch.from_arrays(item.columns, schema=schema)
    if is_frame(item):
        return to_batch(one_batch(item, schema, what), schema, what)
    if is_of_spark(item):
        raise SourceError(f"{what}: {SPARK_REMEDY}")
    if not isinstance(item, (list, tuple)) or not all(isinstance(row, dict) for row in item):
        raise SourceError(
            f"{what} is of type {type(item).__name__}; each item must be a RecordBatch, a list of "
            "dicts, or a frame of pandas, polars or pyarrow; rows as dicts are [{'n': 1}, {'n': 2}]"
        )
    return batch_of_dicts(item, schema, what)


def batch_of_dicts(rows: Sequence[dict[str, Any]], schema: pa.Schema | None, what: str) -> pa.RecordBatch:
    """Convert rows to a record batch of the schema. If `schema` is None, the batch has the columns of the first row.

    `what` names the rows in errors. Raises SourceError.
    """
    known = set(schema.names if schema is not None else rows[0] if rows else ())
    unknown = sorted({str(name) for row in rows for name in row if name not in known})
    if unknown:
        lacks = "is not in the first row; give schema=" if schema is None else "is not in the schema"
        raise SourceError(f"{what}: the column {unknown[0]!r} {lacks}")
    if schema is not None:
        columns = [_column(field, [row.get(field.name) for row in rows], what) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    try:
        return pa.RecordBatch.from_pylist(list(rows))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(f"{what}: the values of a column have no common type: {error}") from error


def _column(field: pa.Field, values: list[object], what: str) -> pa.Array:
    """Convert values without loss. Raises SourceError for a value that Arrow alone would change to fit the type."""
    try:
        return converted(values, field.type)
    except CONVERSION_ERRORS as error:
        raise SourceError(
            f"{what}: does not fit the schema: column {field.name!r} is {field.type}: {error}; without "
            "schema= the types come from the first item"
        ) from error


def _first_schema(factory: Factory) -> pa.Schema:
    batches = _batches(factory, 0, 1, None)
    first = next(batches, None)
    batches.close()
    if first is None:
        raise ConfigError("iterable: factory(0, 1) returned no batch, so the schema is unknown; give schema=")
    return first.schema


def _batches(factory: Factory, subtask: int, subtasks: int,
             schema: pa.Schema | None) -> Generator[pa.RecordBatch, None, None]:  # fmt: skip
    """Call the factory, and yield its items as batches of the schema. Closes the factory's iterator at the end."""
    items = call_user(factory, subtask, subtasks)
    if not isinstance(items, Iterable):
        raise UserFunctionError(f"iterable: the factory returned a {type(items).__name__}, not an iterator of batches")
    iterator = iter(items)
    step = partial(next, iterator, _END)
    update_wrapper(step, factory)  # so that errors name the factory
    try:
        for number in count():
            item = call_user(step)
            if item is _END:
                return
            yield to_batch(item, schema, f"iterable: item {number}")
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
