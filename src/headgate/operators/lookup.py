"""`Lookup`: an operator that finds each row's key in a dimension table, and adds columns of the matching table row.

The operator indexes the table's keys when it loads the table: when it opens, and at each refresh. Each batch costs one
lookup in this index, and one Arrow `take` per added column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time as wall_clock

import numpy as np
import pyarrow as pa

from headgate.errors import DataError, PlanError, SourceError
from headgate.operators.lookup_source import TableSource, lookup_source
from headgate.operators.operator import Operator, OperatorContext, call_user
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.operators.sql.sql_types import kind_of
from headgate.operators.suffixed_names import suffixed_names
from headgate.records.arrow import describe_difference, plain_type
from headgate.records.canonical import Bools, Int64s, as_arrow, check_keyable, null_mask, value_type
from headgate.state.keys import KeyTable

#: The advice on names that the stream and the table have.
_CLASH = "the stream and the table both have {names}; give suffix= for the table's, or leave them out with columns="


@dataclass(frozen=True, slots=True)
class CheckedJoin:
    """A checked join: the key columns, the table's columns that the join adds, and the result's schema."""

    on: tuple[str, ...]
    added: tuple[str, ...]
    schema: pa.Schema


def lookup_schema(
    table: object,
    on: str | Sequence[str],
    *,
    how: str,
    columns: Sequence[str] | None,
    suffix: str | None,
    input_schema: pa.Schema,
) -> pa.Schema:
    """Return the result schema of a `Lookup` with these arguments: the input's columns, then the table's columns.

    Raises PlanError for a column that is unknown, has a name that exists already, or cannot be compared with the
    stream's. Raises SourceError for an unreadable file.
    """
    source = lookup_source(table)
    join = checked_join(str(source), source.schema, on, how=how, columns=columns, suffix=suffix, stream=input_schema)
    return join.schema


class Lookup(Operator):
    """The operator that joins the stream with a table by equal keys. The table's keys are unique; a null key matches
    nothing.

    `how="left"` keeps rows without a match, with nulls in the table's columns. `how="inner"` drops rows without a
    match. The arguments are the same as in `lookup_schema`. `table` should be the result of `lookup_source` on the
    driver. The operator loads the table again every `refresh` microseconds. None means never.
    """

    def __init__(
        self,
        table: object,
        on: str | Sequence[str],
        *,
        how: str,
        columns: Sequence[str] | None,
        suffix: str | None,
        input_schema: pa.Schema,
        refresh: int | None = None,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self._refresh = refresh
        self._clock = clock
        self._loaded_at = 0
        self._source = lookup_source(table)
        self._join = checked_join(
            str(self._source), self._source.schema, on, how=how, columns=columns, suffix=suffix, stream=input_schema
        )
        self._inner = how == "inner"
        self._index: KeyTable | None = None
        self._columns: list[pa.Array] = []

    def open(self, context: OperatorContext) -> None:
        """Load and index the table. Raises DataError for a key that occurs twice, SourceError for a missing file."""
        super().open(context)
        self._load()

    def next_time(self) -> int | None:
        return None if self._refresh is None else self._loaded_at + self._refresh

    def on_processing_time(self) -> None:
        due = self.next_time()
        if due is not None and int(self._clock() * 1e6) >= due:
            self._load()

    def _load(self) -> None:
        self._loaded_at = int(self._clock() * 1e6)
        table = _loaded(self._source)
        keys = [_array(table, name) for name in self._join.on]
        matchable = _without_nulls(keys)
        if matchable is not None:
            keys = [key.filter(matchable) for key in keys]
        rows = len(keys[0])
        index = KeyTable([key.type for key in keys])
        slots = index.find_or_add(keys, rows)
        if len(index) < rows:
            raise DataError(_duplicate(str(self._source), self._join.on, keys, slots))
        order = np.empty(rows, np.int64)
        order[slots] = np.arange(rows)
        columns = [_array(table, name) for name in self._join.added]
        if matchable is not None:
            columns = [column.filter(matchable) for column in columns]
        # This sorts the columns by slot: the number of a slot is then also the number of its table row.
        self._columns = [column.take(as_arrow(order)) for column in columns]
        self._index = index

    def process(self, batch: pa.RecordBatch) -> None:
        assert self._index is not None, "open comes first"
        slots = self._index.known_slots([batch.column(name) for name in self._join.on], batch.num_rows)
        missing = slots < 0
        if missing.any():
            if self._inner:
                matched = ~missing
                batch, slots, missing = batch.filter(as_arrow(matched)), slots[matched], missing[matched]
            rows = as_arrow(slots, nulls=missing)
        else:
            rows = as_arrow(slots)
        added = [column.take(rows) for column in self._columns]
        self.emit(pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self._join.schema))

    def close(self) -> None:
        self._index = None
        self._columns = []

    def state_bytes(self) -> int:
        index = self._index
        return (0 if index is None else index.nbytes) + sum(int(column.nbytes) for column in self._columns)


def checked_join(
    owner: str,
    table: pa.Schema,
    on: str | Sequence[str],
    *,
    how: str,
    columns: Sequence[str] | None = None,
    suffix: str | None,
    stream: pa.Schema,
) -> CheckedJoin:
    """Return a checked join of the stream with a table of this schema. `owner` names the table in errors."""
    if how not in ("left", "inner"):
        raise PlanError(f"lookup: how={how!r} must be 'left' or 'inner'")
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys:
        raise PlanError("lookup: on= needs at least one column")
    _check_columns("on", keys, stream, "the stream")
    _check_columns("on", keys, table, owner)
    for key in keys:
        _check_comparable(key, stream.field(key).type, table.field(key).type)
    wanted = table.names if columns is None else tuple(columns)
    _check_columns("columns", wanted, table, owner)
    added = tuple(name for name in wanted if name not in keys)
    names = suffixed_names("lookup", added, suffix, stream.names, _CLASH)
    fields = [pa.field(name, plain_type(table.field(column).type)) for name, column in zip(names, added, strict=True)]
    return CheckedJoin(keys, added, pa.schema([*stream, *fields]))


def _check_columns(argument: str, names: Sequence[str], schema: pa.Schema, owner: str) -> None:
    for index, name in enumerate(names):
        if schema.names.count(name) != 1:
            shown = ", ".join(column for column in schema.names if column != HIDDEN_COLUMN)
            what = "has no column" if name not in schema.names else "has more than one column"
            raise PlanError(f"lookup: {argument}={name!r}: {owner} {what} of that name; its columns are: {shown}")
        if name in names[:index]:
            raise PlanError(f"lookup: {argument} names column {name!r} twice")


def _check_comparable(name: str, stream: pa.DataType, table: pa.DataType) -> None:
    check_keyable(stream)
    if not _comparable(value_type(stream), value_type(table)):
        raise PlanError(
            f"lookup: column {name!r} is {stream} in the stream and {table} in the table; convert one of them"
        )


def _comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether equal values of both types are equal as keys.

    The types may differ in width, as int32 and int64 do.
    """
    kinds = {kind_of(left), kind_of(right)}
    if kinds == {"integer"}:
        pair = (left, right)
        return not (any(map(pa.types.is_uint64, pair)) and any(map(pa.types.is_signed_integer, pair)))
    if kinds == {"timestamp"} and pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        return bool(left.unit == right.unit)
    if kinds in ({"float"}, {"string"}):
        return True
    return bool(left.equals(right))


def _loaded(source: TableSource) -> pa.Table:
    table = call_user(source)
    if not isinstance(table, pa.Table):
        raise SourceError(f"{source}: it loaded {type(table).__name__}, and a pyarrow Table is needed")
    if not table.schema.equals(source.schema):
        difference = describe_difference(source.schema, table.schema)
        raise SourceError(f"{source}: its columns changed after the job was planned: {difference}; start the job again")
    return table


def _array(table: pa.Table, name: str) -> pa.Array:
    """Return a column of the table as one array, without dictionary encoding."""
    column = table.column(name)
    plain = plain_type(column.type)
    column = column if column.type.equals(plain) else column.cast(plain)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        raise DataError(f"lookup: column {name!r} of the table is larger than 2 GiB; make it a large_string")
    return array


def _without_nulls(keys: Sequence[pa.Array]) -> pa.BooleanArray | None:
    """Return a mask of the rows whose key has no null, or None if no key has a null."""
    masks = [mask for mask in map(null_mask, keys) if mask is not None]
    if not masks:
        return None
    some: Bools = np.logical_or.reduce(masks)
    return as_arrow(~some)


def _duplicate(source: str, on: tuple[str, ...], keys: list[pa.Array], slots: Int64s) -> str:
    """Return the error message for the first key that occurs twice."""
    row = int(np.flatnonzero(np.bincount(slots)[slots] > 1)[0])
    shown = ", ".join(f"{name}={key[row].as_py()!r}" for name, key in zip(on, keys, strict=True))
    return f"{source}: the key {shown} occurs more than once; keys of a lookup table must be unique"
