"""Nodes of functions and of `case`: `Apply` calls a function on whole columns, `CaseWhen` chooses between values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql.sql_eval import SqlNode, Value, as_column, columns_read, nodes_of
from headgate.records.canonical import Bools, Int64s, as_arrow

#: A value that calls a function is calculated for all rows if more than this share of them need it: it costs time, too,
#: to take rows out and to put them back.
_FEW = 0.75


@dataclass(frozen=True, slots=True)
class Apply(SqlNode):
    """A call of a Python function of whole columns.

    `function` takes one array for each operand, all of the same length, and returns one array. It is picklable: a
    function of a module, or a `functools.partial` of one.
    """

    function: Callable[..., pa.Array]
    operands: tuple[SqlNode, ...]
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        values, is_constant = _arrays([operand.evaluate(batch) for operand in self.operands], batch.num_rows)
        result = self.function(*values)
        if not result.type.equals(self.type):
            result = pc.cast(result, self.type)
        return result[0] if is_constant else result


@dataclass(frozen=True, slots=True)
class CaseWhen(SqlNode):
    """The node of `case when`: the value of the first condition that is true, or else the last value.

    `values` has one element more than `conditions`. Most values are calculated for all rows, which is fast. A value
    that calls a function is calculated only for the rows that need it, if these are few enough. If a value overflows,
    each value is calculated again, only for the rows that need it.
    """

    conditions: tuple[SqlNode, ...]
    values: tuple[SqlNode, ...]
    type: pa.DataType
    #: The columns that a value reads if it calls a function, otherwise nothing.
    _reads: tuple[Sequence[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        calls = (any(isinstance(each, Apply) for each in nodes_of(value)) for value in self.values)
        reads = tuple(
            sorted(columns_read(value)) if call else () for value, call in zip(self.values, calls, strict=True)
        )
        object.__setattr__(self, "_reads", reads)

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        try:
            return self._all_rows(batch)
        except pa.ArrowInvalid:
            return self._own_rows(batch)

    def _all_rows(self, batch: pa.RecordBatch) -> Value:
        conditions = [node.evaluate(batch) for node in self.conditions]
        chosen = _first_true(conditions, batch.num_rows) if any(self._reads) else None
        values = [
            _of_few_rows(value, batch, reads, chosen == number)
            if chosen is not None and reads
            else value.evaluate(batch)
            for number, (value, reads) in enumerate(zip(self.values, self._reads, strict=True))
        ]
        columns, is_constant = _arrays([*conditions, *values], batch.num_rows)
        result = pc.case_when(pc.make_struct(*columns[: len(conditions)]), *columns[len(conditions) :])
        return result[0] if is_constant else result

    def _own_rows(self, batch: pa.RecordBatch) -> Value:
        rest, pieces, places = np.arange(batch.num_rows), [], []
        for condition, value in zip(self.conditions, self.values, strict=False):
            part = batch.take(as_arrow(rest))
            is_true = _column(condition, part).fill_null(False).to_numpy(zero_copy_only=False)
            pieces.append(_column(value, part.filter(as_arrow(is_true))))
            places.append(rest[is_true])
            rest = rest[~is_true]
        pieces.append(_column(self.values[-1], batch.take(as_arrow(rest))))
        order = np.argsort(np.concatenate([*places, rest]), kind="stable")
        return pa.concat_arrays(pieces).take(as_arrow(order))


def _first_true(conditions: list[Value], rows: int) -> Int64s:
    """Return for each row the number of the first condition that is true, or the number of conditions."""
    chosen = np.full(rows, len(conditions))
    for number in reversed(range(len(conditions))):
        chosen[as_column(conditions[number], rows).fill_null(False).to_numpy(zero_copy_only=False)] = number
    return chosen


def _of_few_rows(node: SqlNode, batch: pa.RecordBatch, reads: Sequence[str], needed: Bools) -> Value:
    """Return the value of a node that reads these columns. Rows that do not need it may get null instead."""
    rows = np.flatnonzero(needed)
    if len(rows) > _FEW * batch.num_rows:
        return node.evaluate(batch)
    places = np.full(batch.num_rows, -1)
    places[rows] = np.arange(len(rows))
    part = batch.select(reads).take(as_arrow(rows))
    return _column(node, part).take(as_arrow(places, nulls=places < 0))


def _column(node: SqlNode, batch: pa.RecordBatch) -> pa.Array:
    return as_column(node.evaluate(batch), batch.num_rows)


def _arrays(values: list[Value], rows: int) -> tuple[list[pa.Array], bool]:
    """Return the values as arrays of one length, and whether all of them are scalars."""
    is_constant = all(isinstance(value, pa.Scalar) for value in values)
    rows = 1 if is_constant else rows
    return [as_column(value, rows) for value in values], is_constant
