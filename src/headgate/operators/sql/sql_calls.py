"""Nodes of functions and of `case`: `Apply` calls a function on whole columns, `CaseWhen` chooses between values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql.sql_eval import SqlNode, Value
from headgate.records.canonical import as_arrow


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

    `values` has one element more than `conditions`. All values are calculated for all rows, which is fast. If that
    overflows, each value is calculated again, only for the rows that need it.
    """

    conditions: tuple[SqlNode, ...]
    values: tuple[SqlNode, ...]
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        try:
            return self._all_rows(batch)
        except pa.ArrowInvalid:
            return self._own_rows(batch)

    def _all_rows(self, batch: pa.RecordBatch) -> Value:
        nodes = (*self.conditions, *self.values)
        columns, is_constant = _arrays([node.evaluate(batch) for node in nodes], batch.num_rows)
        conditions, values = columns[: len(self.conditions)], columns[len(self.conditions) :]
        result = pc.case_when(pc.make_struct(*conditions), *values)
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


def _column(node: SqlNode, batch: pa.RecordBatch) -> pa.Array:
    value = node.evaluate(batch)
    return pa.repeat(value, batch.num_rows) if isinstance(value, pa.Scalar) else value


def _arrays(values: list[Value], rows: int) -> tuple[list[pa.Array], bool]:
    """Return the values as arrays of one length, and whether all of them are scalars."""
    is_constant = all(isinstance(value, pa.Scalar) for value in values)
    rows = 1 if is_constant else rows
    arrays = [pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value for value in values]
    return arrays, is_constant
