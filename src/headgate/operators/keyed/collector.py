"""`Collector`: gathers the batches and rows that a user's function returns, and emits them in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any, Final

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.errors import UserFunctionError
from headgate.operators.conversion import shown
from headgate.operators.operator import UserCode, function_name
from headgate.operators.rows_checks import batch_of_rows, checked_batch
from headgate.operators.side_output import SideOutput, side_schema

#: About how many rows a collector gathers before it emits them.
_MOST_ROWS: Final = 8192
_PARTS: Final = (pa.RecordBatch, dict, SideOutput)


class Collector:
    """A collector of results for the main output (`schema`) and the side outputs (`sides`, by tag).

    `emit` takes a tag and a batch. The tag is None for the main output. Errors name `function`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema],
        emit: Callable[[str | None, pa.RecordBatch], None],
    ) -> None:
        self._function = function
        self._sides = sides
        self._emit = emit
        #: The number of gathered rows, except the single rows of the main output.
        self._others = 0
        self._buffers: dict[str | None, _OutputBuffer] = {
            None: _OutputBuffer(function, schema),
            **{tag: _OutputBuffer(function, side) for tag, side in sides.items()},
        }

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call the user's function, which may be a generator, and gather its results. Raises UserFunctionError."""
        with UserCode(function):
            result = function(*arguments)
            if result is not None:
                self._take_all(result)
        if self._is_full():  # outside UserCode: an error of a receiver is not an error of the user's function
            self.flush()

    def call_for_each(self, function: Callable[[Any, Any], Any], items: Iterator[Any], context: Any) -> None:
        """Call the user's function with each item and `context`, as `call` does, but at a lower cost for each call."""
        while self._call_until_full(function, items, context):
            self.flush()

    def _call_until_full(self, function: Callable[[Any, Any], Any], items: Iterator[Any], context: Any) -> bool:
        """Return true when there are enough rows to emit, or false after the last item."""
        rows = self._buffers[None].rows
        with UserCode(function) as code:
            for item in items:
                result = function(item, context)
                code.end_child()
                if result is None:
                    continue
                if type(result) is dict:
                    rows.append(result)
                else:
                    self._take_all(result)
                if len(rows) + self._others >= _MOST_ROWS:
                    return True
        return False

    def _is_full(self) -> bool:
        return len(self._buffers[None].rows) + self._others >= _MOST_ROWS

    def _take_all(self, result: object) -> None:
        """Gather a result: a part, or an iterable of parts."""
        if isinstance(result, _PARTS):
            self._take(result)
        elif type(result) is GeneratorType or (
            isinstance(result, Iterable) and not isinstance(result, str | bytes | pa.Table)
        ):
            for part in result:
                self._take(part)
        else:
            raise self._wrong(result)

    def _take(self, part: object) -> None:
        if isinstance(part, SideOutput):
            side_schema(self._function, part, self._sides)
            tag: str | None = part.tag
            part = part.rows
        else:
            tag = None
        buffer = self._buffers[tag]
        if isinstance(part, dict):
            buffer.rows.append(part)
            self._others += tag is not None
        elif isinstance(part, pa.RecordBatch):
            single = buffer.add(part)
            self._others += part.num_rows + (single if tag is None else 0)
        else:
            raise self._wrong(part, tag)

    def _wrong(self, result: object, tag: str | None = None) -> UserFunctionError:
        must = "rows as dicts or RecordBatches: one, several in a list or by yield, or None"
        if tag is not None:
            must = f"one row as a dict, or a RecordBatch, in each SideOutput({tag!r}, ...)"
        remedy = "; use table.to_batches()" if isinstance(result, pa.Table) else ""
        return UserFunctionError(f"{function_name(self._function)} must give {must}, and gave {shown(result)}{remedy}")

    def flush(self) -> None:
        """Emit all gathered rows."""
        self._others = 0
        for tag, buffer in self._buffers.items():
            if (batch := buffer.take()) is not None:
                self._emit(tag, batch)


class _OutputBuffer:
    """The gathered rows of one output: batches first, then single rows that are in no batch yet."""

    def __init__(self, function: Callable[..., Any], schema: pa.Schema) -> None:
        self._function = function
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self.rows: list[object] = []

    def add(self, batch: pa.RecordBatch) -> int:
        """Make the single rows gathered so far a batch, and add `batch` after it. Returns the number of these single
        rows.

        Raises UserFunctionError if the batch has another schema.
        """
        single = self._make_batch()
        self._batches.append(checked_batch(self._function, batch, self._schema))
        return single

    def take(self) -> pa.RecordBatch | None:
        """Remove all gathered rows and return them as one batch, or None if there are no rows."""
        self._make_batch()
        batches, self._batches = self._batches, []
        if len(batches) > 1:
            return concat_batches(batches)
        return batches[0] if batches else None

    def _make_batch(self) -> int:
        """Turn the single rows into a batch. Returns their number."""
        count = len(self.rows)
        if count:
            self._batches.append(batch_of_rows(self._function, self.rows, self._schema))
            self.rows.clear()
        return count
