"""Conditions of aggregates: `where="price > 100"` counts only the rows for which the condition is true."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.compat import filter_batch
from headgate.errors import DataError, PlanError
from headgate.operators.rows import filter_predicate
from headgate.operators.sql.expressions import Expression
from headgate.records.canonical import Int64s, as_arrow

Condition: TypeAlias = Expression | pc.Expression
#: The name of an internal column with the numbers of the rows.
_NUMBER = "__row_number__"


def compiled(call: str, where: object, schema: pa.Schema) -> Condition:
    """Check a condition, and compile it if it is a SQL string. Raises PlanError, which names the call."""
    if isinstance(where, Expression):
        return where
    if not isinstance(where, str | pc.Expression):
        raise PlanError(f"{call}: where={where!r} must be a SQL string or a pyarrow Expression")
    try:
        condition: Condition = filter_predicate(where, schema)
    except PlanError as error:
        raise PlanError(f"{call}: where: {error.message.removeprefix('filter: ')}") from None
    return condition


def rows_where(condition: Condition, batch: pa.RecordBatch) -> Int64s:
    """Return the positions of the rows for which the condition is true. Null counts as false.

    Raises DataError if a value leaves the range of its type.
    """
    if isinstance(condition, Expression):
        mask = condition.evaluate(batch).cast(pa.bool_())
        return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    numbers = as_arrow(np.arange(batch.num_rows))
    numbered = pa.RecordBatch.from_arrays([*batch.columns, numbers], [*batch.schema.names, _NUMBER])
    try:
        rows: Int64s = filter_batch(numbered, condition).column(_NUMBER).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"where {condition}: {error}") from None
    return rows
