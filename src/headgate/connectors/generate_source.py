"""A source that computes rows from their numbers, at full speed or at a rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.connectors.arguments import NUMBER_OR_NONE, SCHEMA_OR_NONE, TEXT_OR_NONE, WHOLE, WHOLE_OR_NONE, check
from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.scheduled_reader import ScheduledReader
from headgate.connectors.schemas import shown
from headgate.connectors.share import Share, share_fields
from headgate.errors import CheckpointError, ConfigError, UserFunctionError
from headgate.operators.operator import call_user, check_function
from headgate.quantities import microseconds
from headgate.records.canonical import Int64s, from_raw_values
from headgate.state import shapes

#: `fn(start, n)` makes rows `start` to `start + n - 1`. It is pure, and row i depends only on i.
RowFunction = Callable[[int, int], pa.RecordBatch]

_TIME_TYPE = pa.timestamp("us", tz="UTC")
_US = 1_000_000
#: About the end of the year 9999, in seconds since the epoch.
_LATEST = 253_000_000_000.0
#: The most rows whose times are computed at once, if a block has no more.
_TIMES_AT_ONCE = 4096
_POSITION = shapes.fields(
    {**share_fields(shapes.nothing), "started_at": shapes.number(_LATEST), "block_rows": shapes.whole(1, 1 << 62)}
)


class GenerateSource(Source):
    """A source of rows 0, 1, 2 ... in blocks. Block b goes to subtask b mod parallelism; see `hg.sources.generate`."""

    def __init__(self, fn: RowFunction, *, rows: int | None, rate: float | None, schema: pa.Schema | None,
                 time: str | None, batch_rows: int, batch_time: str | float) -> None:  # fmt: skip
        check_function("generate", fn)
        self.task_functions = (fn,)
        check(WHOLE_OR_NONE, rows=rows)
        check(NUMBER_OR_NONE, rate=rate)
        check(SCHEMA_OR_NONE, schema=schema)
        check(TEXT_OR_NONE, time=time)
        check(WHOLE, batch_rows=batch_rows)
        if rows is not None and rows < 0:
            raise ConfigError(f"rows={rows} must not be negative; None means no end")
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigError(f"rate={rate} must be above 0 rows per second; None means as fast as possible")
        if batch_rows < 1:
            raise ConfigError(f"batch_rows={batch_rows} must be at least 1")
        try:
            batch_us = microseconds(batch_time)
        except ConfigError as error:
            raise ConfigError(f"batch_time: {error.message}") from None
        if batch_us < 1:
            raise ConfigError(f"batch_time is {batch_us} us; it must be at least 1 us")
        # Python's numbers can be exact where NumPy's are not, and only Python's numbers can be written as JSON.
        rows, batch_rows = None if rows is None else int(rows), int(batch_rows)
        rate = None if rate is None else float(rate)
        self.fn, self.rows, self.rate = fn, rows, rate
        self.bounded = rows is not None
        self.block_rows = batch_rows if rate is None else min(batch_rows, max(1, int(rate * batch_us / _US)))
        self.made = (_schema_of(fn) if schema is None else schema).remove_metadata()
        self._inferred = schema is None
        if time is not None and time in self.made.names:
            raise ConfigError(f"time={time!r}: the function's rows have a column of that name; choose another")
        self.time_field = None if time is None else pa.field(time, _TIME_TYPE)
        self.schema = self.made if self.time_field is None else self.made.append(self.time_field)

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's blocks."""
        return _GenerateReader(self, context)

    def prepared(self) -> Any:
        """Return the number of rows in a block, because positions count blocks."""
        return {"block_rows": self.block_rows}

    def restore(self, prepared: Any) -> None:
        """Raise CheckpointError if the job of the checkpoint had blocks of another size."""
        if prepared["block_rows"] != self.block_rows:
            raise CheckpointError(
                f"the checkpoint counts blocks of {prepared['block_rows']} rows, not {self.block_rows}; "
                "resume with the batch_rows=, rate= and batch_time= of that job"
            )

    def check_position(self, position: Any) -> None:
        """Raise ValueError if no reader of numbered blocks can return `position`."""
        _POSITION(position, "the position")

    def make(self, start: int, n: int) -> pa.RecordBatch:
        """Return rows `start` to `start + n - 1`, without the time column. Raises UserFunctionError."""
        batch = _called(self.fn, start, n)
        if not batch.schema.equals(self.made):
            differs_in_types = self._inferred and batch.schema.names == self.made.names
            advice = ", the types of fn(0, 0); give schema= if these are not right" if differs_in_types else ""
            raise UserFunctionError(
                f"generate: fn({start}, {n}) returned columns ({shown(batch.schema)}), not ({shown(self.made)}){advice}"
            )
        if batch.num_rows != n:
            raise UserFunctionError(f"generate: fn({start}, {n}) returned {batch.num_rows} rows, not {n}")
        return batch if batch.schema.metadata is None else batch.replace_schema_metadata()

    def rows_before(self, block: int) -> int:
        """Return the number of a block's first row."""
        first = block * self.block_rows
        return first if self.rows is None else min(first, self.rows)


class _GenerateReader(ScheduledReader):
    """The reader of one subtask's blocks.

    The reader returns a block when the block's last row is due, so a row waits at most `batch_time`. A reader that is
    late returns whole blocks without waiting until it has caught up. It never returns only the part of a block that is
    already due. Otherwise the task would read again at once, and would get the rest of the block in many small batches.
    """

    def __init__(self, source: GenerateSource, context: ReaderContext) -> None:
        self._source = source
        self._clock = context.clock
        self._started_at = context.started_at
        if context.positions:
            self._started_at = context.positions[0]["started_at"]
            source.restore(context.positions[0])
        self._share = Share(context)
        self._due_times: _DueTimes | None = None
        if source.rate is not None:
            start_us = round(self._started_at * _US)
            self._due_times = _DueTimes(source.rate, source.block_rows, context.parallelism, start_us)
        self._enter()

    def read(self) -> pa.RecordBatch | None:
        if self.finished:
            return None
        now = self._clock()
        if self._source.rate is not None and now < self._due_time(self._end - 1):
            return None
        block, n = self._share.number, self._end - self._first
        batch = self._source.make(self._first, n)
        self._share.advance()
        self._enter()
        field = self._source.time_field  # append_column is faster than a new batch from all columns
        return batch if field is None else batch.append_column(field, self._times(block, n, now))

    def next_read(self) -> float | None:
        """Return the time at which the last row of the current block is due. Without a rate, return None."""
        return None if self.finished or self._source.rate is None else self._due_time(self._end - 1)

    def lag(self) -> float | None:
        """Return by how much the last row of the current block is overdue."""
        if self._source.rate is None:
            return None
        return 0.0 if self.finished else max(0.0, self._clock() - self._due_time(self._end - 1))

    def position(self) -> Any:
        """Return the current block, and the job's start, so that the due times of rows stay the same after a
        restart."""
        position = self._share.position()
        return {**position, "started_at": self._started_at, "block_rows": self._source.block_rows}

    def _enter(self) -> None:
        """Start the current block of the share."""
        block = self._share.number
        self._first = self._source.rows_before(block)
        self._end = self._source.rows_before(block + 1)
        self.finished = self._first == self._end

    def _due_time(self, row: int) -> float:
        assert self._source.rate is not None
        return self._started_at + row / self._source.rate

    def _times(self, block: int, n: int, now: float) -> pa.Array:
        """Return the times of the `n` rows of a block. Without a rate, this is `now`."""
        if self._due_times is not None:
            return self._due_times.of(block, n)
        return from_raw_values(np.full(n, round(now * _US), np.int64), None, _TIME_TYPE)


class _DueTimes:
    """The times at which the rows of one subtask's blocks are due.

    They depend only on the numbers of the rows. So one computation makes the times of several blocks: as many as the
    source makes in a second, with at most `_TIMES_AT_ONCE` rows. The subtask has every `step`-th block. `start_us` is
    the time of row 0, in microseconds since the epoch.
    """

    def __init__(self, rate: float, block_rows: int, step: int, start_us: int) -> None:
        self._rate = rate
        self._block_rows = block_rows
        self._step = step
        self._start_us = start_us
        self._blocks = max(1, int(min(_TIMES_AT_ONCE, rate)) // block_rows)
        #: The first block whose times are in `_times`.
        self._first = 0
        self._times = from_raw_values(np.zeros(0, np.int64), None, _TIME_TYPE)

    def of(self, block: int, n: int) -> pa.Array:
        """Return the times of the first `n` rows of a block."""
        at = (block - self._first) // self._step * self._block_rows
        if not 0 <= at < len(self._times):
            blocks = block + self._step * np.arange(self._blocks)
            rows = (blocks[:, None] * self._block_rows + np.arange(self._block_rows)).ravel()
            self._first, self._times = block, from_raw_values(self.of_rows(rows), None, _TIME_TYPE)
            at = 0
        return self._times.slice(at, n)

    def of_rows(self, rows: Int64s) -> Int64s:
        """Return the times of the rows with these numbers, in microseconds since the epoch."""
        return self._start_us + (rows * float(_US) / self._rate).astype(np.int64)


def _schema_of(fn: RowFunction) -> pa.Schema:
    """Return the schema of the rows that `fn` makes. Raises UserFunctionError."""
    try:
        return _called(fn, 0, 0).schema
    except UserFunctionError as error:
        error.message += "\ngenerate calls fn(0, 0), for no rows, to learn the columns; give schema= if fn fails there"
        raise


def _called(fn: RowFunction, start: int, n: int) -> pa.RecordBatch:
    batch = call_user(fn, start, n)
    if not isinstance(batch, pa.RecordBatch):
        raise UserFunctionError(f"generate: fn({start}, {n}) returned a {type(batch).__name__}, not a RecordBatch")
    return batch
