"""`FunctionLookup`: an operator that asks a user's function, or an `AskedTable`, for the table rows of each batch's
keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time as wall_clock
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import DataError, PlanError
from headgate.operators.asked_table import AskedTable, OpenedTable
from headgate.operators.lookup import checked_join
from headgate.operators.lookup_cache import LookupCache
from headgate.operators.lookup_calls import CallLimits, LookupCalls
from headgate.operators.operator import Operator, OperatorContext, function_name
from headgate.records.arrow import plain_type
from headgate.records.canonical import as_arrow, null_mask
from headgate.state.keys import KeyTable

_HAS_ROW = "__has_row__"


class FunctionLookup(Operator):
    """The operator that adds to each row the columns of the table row that `function` returns for its key.

    The function gets the different keys that the cache does not have, and returns at most one row for each. The
    operator waits for the function, so the input waits too: a slow function shows as back-pressure. The rows keep their
    order.
    """

    def __init__(
        self,
        function: Callable[..., Any] | AskedTable,
        on: tuple[str, ...],
        *,
        schema: pa.Schema,
        how: str,
        suffix: str | None,
        limits: CallLimits,
        cache_rows: int,
        ttl: int | None,
        input_schema: pa.Schema,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self._given = function
        self._function: Any = None
        self._on = on
        self._limits = limits
        self._clock = clock
        self._inner = how == "inner"
        self._schema, keys = function_lookup_schema(on, schema, how=how, suffix=suffix, input_schema=input_schema)
        self._asked = pa.schema([pa.field(name, kind) for name, kind in zip(on, keys, strict=True)])
        self._expected = pa.schema([*self._asked, *schema])
        self._wanted = schema
        self._added = pa.schema([*schema, pa.field(_HAS_ROW, pa.bool_())])
        self._cache_rows = cache_rows
        self._ttl = ttl
        self._cache = self._new_cache()
        self._calls: LookupCalls | None = None

    def _new_cache(self) -> LookupCache:
        return LookupCache(self._asked.types, self._added, self._cache_rows, self._ttl)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        name = f"{context.operator}[{context.subtask}]"
        self._function = self._given
        if isinstance(self._given, AskedTable):
            self._function = self._given.opened(self._asked, self._wanted, self._limits.timeout)
        self._calls = LookupCalls(self._function, self._limits, name, self._while_it_waits)

    def process(self, batch: pa.RecordBatch) -> None:
        rows = batch.num_rows
        columns = [batch.column(name) for name in self._on]
        masks = [mask for mask in map(null_mask, columns) if mask is not None]
        has_key = None if not masks else ~np.logical_or.reduce(masks)
        if has_key is not None:
            columns = [column.filter(as_arrow(has_key)) for column in columns]
            rows = int(np.count_nonzero(has_key))
        slots = self._cache.slots(columns, rows)
        now = int(self._clock() * 1e6)
        missing = self._cache.missing(np.unique(slots), now)
        if len(missing):
            self._cache.put(missing, self._asked_rows(missing), now)
        found = self._cache.rows(slots)
        if has_key is not None:  # rows without a key get nulls
            places = np.cumsum(has_key) - 1
            found = found.take(as_arrow(places, nulls=~has_key))
        self._emit_with(batch, found)
        if self._cache_rows:
            self._cache.trim()
        else:
            self._cache = self._new_cache()

    def _while_it_waits(self) -> None:
        assert self._calls is not None, "open comes first"
        self.lookup_wait_s = self._calls.waited
        self.context.let_task_work()

    def _emit_with(self, batch: pa.RecordBatch, found: pa.Table) -> None:
        added = [found.column(name).combine_chunks() for name in self._added.names]
        arrays = [part.chunk(0) if isinstance(part, pa.ChunkedArray) else part for part in added]
        out = pa.RecordBatch.from_arrays([*batch.columns, *arrays[:-1]], schema=self._schema)
        if self._inner:
            out = out.filter(arrays[-1])
        self.emit(out)

    def _asked_rows(self, slots: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
        """Return the row of each slot, from the function."""
        assert self._calls is not None, "open comes first"
        keys = pa.RecordBatch.from_arrays(self._cache.keys(slots), schema=self._asked)
        answers = self._calls.of_keys(keys)
        tables = [self._checked(answer) for answer in answers if answer is not None]
        table = pa.concat_tables(tables) if tables else self._expected.empty_table()
        return self._in_order(keys, table.combine_chunks())

    def _checked(self, answer: Any) -> pa.Table:
        """Return an answer of the function as a table with the expected columns. Raises DataError."""
        name = function_name(self._function)
        try:
            table = _as_table(answer, self._expected)
        except (TypeError, ValueError, KeyError, pa.ArrowException) as error:
            wanted = ", ".join(f"{field.name} {field.type}" for field in self._expected)
            raise DataError(f"{name} returned rows that do not have the columns {wanted}: {error}") from None
        for key in self._on:
            if table.num_rows and table.column(key).null_count == table.num_rows:
                raise DataError(f"{name} returned {table.num_rows} rows, all without a value of the key column {key!r}")
        return table

    def _in_order(self, keys: pa.RecordBatch, table: pa.Table) -> pa.RecordBatch:
        """Return the table's row for each key, with nulls for a key without a row. Raises DataError for two rows of
        one key."""
        index = KeyTable(self._asked.types)
        asked = index.find_or_add(keys.columns, keys.num_rows)  # new keys of one batch get slots in any order
        columns = [_one(table.column(name), self._asked.field(name).type) for name in self._on]
        slots = index.known_slots(columns, table.num_rows)
        known = np.flatnonzero(slots >= 0)
        counts = np.bincount(slots[known], minlength=keys.num_rows).take(asked)
        if (counts > 1).any():
            first = int(np.flatnonzero(counts > 1)[0])
            shown = ", ".join(f"{name}={keys.column(name)[first].as_py()!r}" for name in self._on)
            name = function_name(self._function)
            raise DataError(f"{name} returned {counts[first]} rows for the key {shown}; a key has at most one")
        places = np.zeros(keys.num_rows, np.int64)
        places[slots[known]] = known
        taken = as_arrow(places.take(asked), nulls=counts == 0)
        names = self._added.names[:-1]
        arrays = [_one(table.column(name), self._added.field(name).type).take(taken) for name in names]
        return pa.RecordBatch.from_arrays([*arrays, as_arrow(counts > 0)], schema=self._added)

    def close(self) -> None:
        if self._calls is not None:
            self._calls.close()
        if isinstance(self._function, OpenedTable):
            self._function.close()
        self._cache = self._new_cache()

    def state_bytes(self) -> int:
        return self._cache.nbytes


def function_lookup_schema(
    on: Sequence[str], schema: pa.Schema, *, how: str, suffix: str | None, input_schema: pa.Schema
) -> tuple[pa.Schema, list[pa.DataType]]:
    """Return the schema of the result, and the types of the keys that the function gets.

    Raises PlanError for a column that is unknown or has a name that the stream has already.
    """
    clashing = [name for name in on if name in schema.names]
    if clashing:
        raise PlanError(f"lookup: schema= has the key column {clashing[0]!r}; it names only the columns to add")
    if not schema.names:
        raise PlanError("lookup: schema= has no column; it names the columns that the function adds")
    known = [name for name in on if name in input_schema.names]
    keys = [plain_type(input_schema.field(name).type) for name in known]
    table = pa.schema([*(pa.field(name, kind) for name, kind in zip(known, keys, strict=True)), *schema])
    join = checked_join("what the function returns", table, on, how=how, suffix=suffix, stream=input_schema)
    return join.schema, keys


def _as_table(answer: Any, expected: pa.Schema) -> pa.Table:
    if isinstance(answer, pa.RecordBatch):
        answer = pa.Table.from_batches([answer])
    if isinstance(answer, Mapping):
        answer = pa.table(dict(answer))
    if isinstance(answer, list):
        answer = pa.Table.from_pylist(answer, expected)
    if not isinstance(answer, pa.Table):
        raise TypeError(f"it is a {type(answer).__name__}, and a table, a batch or a list of dicts is needed")
    return answer.select(expected.names).cast(expected)


def _one(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return a column as one array."""
    chunks = column.chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], kind)
