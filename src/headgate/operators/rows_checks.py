"""Checks the results of users' functions. No value is cast or filled in silently.

There is one exception: a dictionary column becomes a plain column of its values, as everywhere in a stream. All errors
are UserFunctionErrors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import UserFunctionError
from headgate.operators.conversion import CONVERSION_ERRORS, converted, shown
from headgate.operators.operator import function_name
from headgate.records.arrow import describe_difference, plain_batch, plain_schema

Function = Callable[..., Any]
Row = dict[str, Any]


#: The hint for a user who wrote a predicate on rows where a predicate on batches is needed.
ONE_ROW = "filter gives its function a RecordBatch; for a function of one row, as a dict, write filter(fn, rows=True)"
#: The hint for a user who wrote a function on frames of pandas, or on rows, where a function on batches is needed.
BATCHES = (
    "map_batches gives its function a pyarrow RecordBatch; for pandas write map_batches(fn, schema=..., "
    'frame="pandas"); for one row at a time use map'
)
#: The hint for a user who wrote a function on batches where a function on rows is needed.
ROWS = "the function gets one row, as a dict; for batches use map_batches"


@contextmanager
def hinting(hint: str, given: str) -> Iterator[None]:
    """Add `hint` to an error of a user's function that uses its argument as if it had another type.

    `given` is the name of the argument's type. Only an AttributeError or TypeError that names this type gets the hint.
    """
    try:
        yield
    except UserFunctionError as error:
        if isinstance(error.__context__, (AttributeError, TypeError)) and given in str(error.__context__):
            error.message += f"\n{hint}"
        raise


def row_mask(function: Function, results: Sequence[object]) -> pa.BooleanArray:
    """Return the mask of a batch, made from the predicate's result for each row."""
    for result in results:
        if result is not None and not isinstance(result, (bool, np.bool_)):
            must = "must return True, False or None for a row"
            raise UserFunctionError(f"filter: {function_name(function)} {must}, and returned {shown(result)}")
    return pa.array(results, pa.bool_())


def checked_mask(function: Function, result: object, rows: int) -> pa.BooleanArray:
    """Check that `result`, which a predicate returned for a batch of `rows` rows, is a mask, and return it."""
    name = function_name(function)
    if isinstance(result, np.ndarray) and result.dtype == np.bool_ and result.ndim == 1:
        result = pa.array(result)
    if not isinstance(result, pa.BooleanArray):
        got = f"{type(result).__name__} of {result.dtype}" if isinstance(result, np.ndarray) else type(result).__name__
        must = "a boolean pyarrow Array or NumPy array with one value per row"
        hint = f"; {ONE_ROW}" if isinstance(result, (bool, np.bool_)) else ""
        raise UserFunctionError(f"filter: {name} must return {must}, and returned {got}{hint}")
    if len(result) != rows:
        raise UserFunctionError(
            f"filter: {name} returned {len(result)} values for a batch of {rows} rows; return one per row"
        )
    return result


def checked_batch(function: Function, result: object, schema: pa.Schema) -> pa.RecordBatch:
    """Check the batch that a function on batches returned, and return it with the fields of the declared schema."""
    name = function_name(function)
    if not isinstance(result, pa.RecordBatch):
        must = "a pyarrow RecordBatch, a list of them or None"
        got = type(result).__name__
        raise UserFunctionError(f"{name} must return {must}, and returned {got}{_batch_remedy(result)}")
    if result.schema.equals(schema, check_metadata=True) and all(field.nullable for field in schema):
        return result
    if result.schema.names != schema.names or result.schema.types != schema.types:
        plain = plain_schema(result.schema)
        if plain.names != schema.names or plain.types != schema.types:
            raise UserFunctionError(
                f"{name} returned other columns than schema= declares: {_difference(schema, result.schema)}"
            )
        return _declared(name, plain_batch(result, plain).columns, schema)
    return _declared(name, result.columns, schema)


def _batch_remedy(result: object) -> str:
    """Return how to make a batch from `result`, as the end of an error message."""
    if isinstance(result, pa.Table):
        return "; use table.to_batches()"
    if (library := type(result).__module__.partition(".")[0]) in ("pandas", "polars"):
        return f'; write map_batches(fn, schema=..., frame="{library}")'
    if isinstance(result, dict):
        return "; use pa.RecordBatch.from_pydict(columns, schema=...), or for one row at a time use map"
    return "; return a list of the batches" if isinstance(result, Iterator) else ""


def _difference(expected: pa.Schema, got: pa.Schema) -> str:
    names = got.names
    twice = next((name for name in names if names.count(name) > 1), None)
    return describe_difference(expected, got) if twice is None else f"column {twice} occurs twice"


def batch_of_rows(function: Function, rows: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    """Check the rows that a function on rows returned, and return them as one batch of the declared schema."""
    name = function_name(function)
    names = set(schema.names)
    columns = _values(rows, schema.names)
    if columns is None:
        checked = [_checked_row(name, row, names) for row in rows]
        columns = [[row[column] for row in checked] for column in schema.names]
    pairs = zip(schema, columns, strict=True)
    return _declared(name, [_column(name, field, values) for field, values in pairs], schema)


def _values(rows: Sequence[Any], names: list[str]) -> list[list[object]] | None:
    """Return the values of each column, or None if not all rows are dicts with exactly these columns."""
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(names)}:
        return None
    try:
        return [list(map(itemgetter(column), rows)) for column in names]
    except KeyError:
        return None


def _checked_row(name: str, row: object, names: set[str]) -> Row:
    if not isinstance(row, dict):
        remedy = "; to drop rows, use filter or flat_map" if row is None else ""
        raise UserFunctionError(f"{name} must make rows that are dicts, and made {shown(row)}{remedy}")
    if row.keys() != names:
        wrong = [f"column {column} is missing" for column in sorted(names - row.keys())]
        wrong += [f"column {column} is not declared" for column in row if column not in names]
        raise UserFunctionError(
            f"{name} made a row with other columns than schema= declares: {'; '.join(wrong)}; the row is {shown(row)}"
        )
    return row


def _column(name: str, field: pa.Field, values: list[object]) -> pa.Array:
    try:
        return converted(values, field.type)
    except CONVERSION_ERRORS as error:
        culprit = next((value for value in values if not _fits(value, field.type)), None)
        what = f"{shown(culprit)} in column {field.name}, which schema= declares {field.type}"
        raise UserFunctionError(f"{name} made a row with {what}: {error}") from None


def _fits(value: object, data_type: pa.DataType) -> bool:
    try:
        converted([value], data_type)
    except CONVERSION_ERRORS:
        return False
    return True


def _declared(name: str, columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise UserFunctionError(f"{name} returned nulls in column {field.name}, which schema= declares as not null")
    return pa.RecordBatch.from_arrays(columns, schema=schema)
