"""A source that asks a user's function again and again for rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.connectors.arguments import check_texts
from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.fetcher import Fetcher
from headgate.connectors.iterable_source import Item, to_batch
from headgate.connectors.json_values import checked, stored
from headgate.errors import ConfigError, UserFunctionError
from headgate.operators.operator import call_user, check_function
from headgate.quantities import seconds
from headgate.state import shapes

#: A function of a split and a position. It returns rows and the position after them, or None at the end of the split.
PollFunction: TypeAlias = "Callable[[str, Any], tuple[Item, Any] | None]"
#: The state of a split that has ended. `position` has a state for each split, beside the last position of the split.
_ENDED: Final = "ended"
_POSITION: Final = shapes.mapping(shapes.row(shapes.one_of("open", _ENDED), shapes.plain))


class PollSource(Source):
    """A source of the rows that a function returns; see `hg.sources.poll`."""

    def __init__(self, fn: PollFunction, schema: pa.Schema, splits: Sequence[str], *, interval: float | str,
                 bounded: bool) -> None:  # fmt: skip
        check_function("poll", fn)
        if not isinstance(schema, pa.Schema):
            raise ConfigError(
                f"poll: schema={schema!r} must be a pyarrow.Schema, such as pa.schema({{'x': pa.int64()}})"
            )
        check_texts(splits=splits)
        if not splits or len(set(splits)) < len(splits):
            raise ConfigError(f"poll: splits={list(splits)!r} must have at least one name, and no name twice")
        self.fn = fn
        self.task_functions = (fn,)
        self.schema = schema.remove_metadata()
        self.splits = tuple(splits)
        try:
            self.interval = seconds(interval)
        except ConfigError as error:
            raise ConfigError(f"poll: interval: {error.message}") from None
        self.bounded = bounded

    def check_position(self, position: Any) -> None:
        """Raise ValueError if `position` is not a state and a position for each split of a reader."""
        _POSITION(position, "the position")

    def end_polls(self) -> None:
        """Free what the function holds. The reader's thread calls this after its last call of the function."""

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's splits. The function is called on the reader's own thread."""
        return _PollReader(self, context)


@dataclass(frozen=True, slots=True)
class _Polled:
    """The answer to one call: rows of a split, and the position after them. If `rows` is None, the split has ended."""

    split: int
    rows: pa.RecordBatch | None
    position: Any

    @property
    def num_rows(self) -> int:
        return 1  # the fetcher drops items without rows, but a position without rows counts


class _PollReader(SourceReader):
    """The reader of the splits whose number modulo the parallelism is the subtask."""

    def __init__(self, source: PollSource, context: ReaderContext) -> None:
        self._source = source
        before = {split: place for position in context.positions or () for split, place in position.items()}
        mine = range(context.subtask, len(source.splits), context.parallelism)
        self._places = {number: before.get(source.splits[number], ["open", None]) for number in mine}
        #: The places of splits that the user has left out. If a later program has them again, it goes on there.
        self._left_out = {} if context.subtask else {s: place for s, place in before.items() if s not in source.splits}
        self._no_rows = pa.RecordBatch.from_pylist([], source.schema)
        self._paused: Collection[int] = ()
        self._is_closing = threading.Event()
        self._update()
        name = f"headgate-fetcher-{context.operator}[{context.subtask}]"
        self._fetcher = Fetcher(name, self._polls, context.wake)

    def read(self) -> pa.RecordBatch | None:
        polled = self._fetcher.take()
        if polled is None:
            self.finished = not self.open_splits
            return None
        self._places[polled.split] = ["open" if polled.rows is not None else _ENDED, polled.position]
        rows = self._no_rows if polled.rows is None else polled.rows
        self.rows_by_split = [(polled.split, rows.num_rows)]
        self._update()
        return rows

    def _update(self) -> None:
        self.open_splits = [number for number, (state, _) in self._places.items() if state != _ENDED]
        self.has_split = bool(self.open_splits)

    def pause_splits(self, splits: Collection[int]) -> None:
        self._paused = splits  # the reader's thread looks before each call

    def position(self) -> Any:
        return {**self._left_out, **{self._source.splits[number]: place for number, place in self._places.items()}}

    def split_name(self) -> str:
        """Return the names of the splits that are not read to their end."""
        return ", ".join(self._source.splits[number] for number in self.open_splits or ()) or "no split"

    def split_key(self, split: int) -> str:
        return self._source.splits[split]

    def close(self) -> None:
        """Stop the thread. If a call does not return, its thread keeps running; see `is_stuck`."""
        self._is_closing.set()
        self._fetcher.close()

    def is_stuck(self) -> bool:
        return self._fetcher.is_stuck

    def _polls(self) -> Iterator[_Polled]:
        """Call the function for one split after the other. Waits for the interval when no split had rows."""
        try:
            yield from self._polls_of_open_splits()
        finally:
            self._source.end_polls()

    def _polls_of_open_splits(self) -> Iterator[_Polled]:
        places = {number: position for number, (state, position) in self._places.items() if state != _ENDED}
        while places:
            had_rows = False
            for number in list(places):
                if self._is_closing.is_set():
                    return
                if number in self._paused:
                    continue
                polled = self._poll(number, places[number])
                had_rows = had_rows or (polled.rows is not None and polled.rows.num_rows > 0)
                places[number] = polled.position
                if polled.rows is None:
                    del places[number]
                yield polled
            if not had_rows and places and self._is_closing.wait(self._source.interval):
                return

    def _poll(self, number: int, position: Any) -> _Polled:
        fn, split = self._source.fn, self._source.splits[number]
        # The function gets a copy, since it may change its argument, which checkpoints need as it was.
        answer = call_user(fn, split, stored(position, "the position"))
        if answer is None:
            return _Polled(number, None, position)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise UserFunctionError(
                f"poll: the function returned a {type(answer).__name__} for split {split!r}, not (rows, position), or "
                "None at the end of the split"
            )
        rows, after = answer
        try:
            after = checked(after, "the position")
        except ValueError as error:
            raise UserFunctionError(f"poll: split {split!r}: {error}") from None
        return _Polled(number, to_batch(rows, self._source.schema, f"poll: the rows of split {split!r}"), after)
