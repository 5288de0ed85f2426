"""Values of users as Arrow has them: nothing is cut, dropped or filled in without a word."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import DataError

#: What `converted` raises.
CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)

#: What Arrow raises for a value that Python does not have.
_NOT_IN_PYTHON = (pa.ArrowException, OverflowError, ValueError, KeyError)

#: Arrow itself refuses what is not of these, once there are no fractions.
_STRICT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def converted(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """The values as an array of this type. Raises one of CONVERSION_ERRORS for what is no such value."""
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        # pa.array would cut 1.5 down to 1 without a word.
        for kind in set(map(type, values)):
            if issubclass(kind, float | Decimal | np.floating):
                raise TypeError(f"{kind.__name__} is not converted to {data_type}")
    array = pa.array(values, data_type)
    if not any(is_such(data_type) for is_such in _STRICT):
        for given, kept in zip(values, array.to_pylist(), strict=True):
            if not is_kept(given, kept):
                raise ValueError(f"it would become {shown(kept)}")
    return array


def cast(column: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """The column as this type. Floats may be rounded to shorter ones. Raises one of CONVERSION_ERRORS for a value that
    the type cannot hold; Arrow's own casts make 1e300 infinite, drop a date's time and round decimals."""
    made = column.cast(data_type)
    if pa.types.is_floating(data_type) and pa.types.is_floating(column.type):
        is_lost = pc.not_equal(pc.is_inf(made), pc.is_inf(column))
    elif pa.types.is_nested(data_type):
        is_lost = pa.array([not is_kept(*pair) for pair in zip(column.to_pylist(), made.to_pylist(), strict=True)])
    elif _may_lose(column.type, data_type):
        is_lost = pc.not_equal(made.cast(column.type), column)
    else:
        return made
    at = pc.index(is_lost, True).as_py()
    if at >= 0:
        raise ValueError(f"{shown(column[at].as_py())} would become {shown(made[at].as_py())}")
    return made


def _may_lose(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_boolean(wanted):
        return not pa.types.is_boolean(given)
    if pa.types.is_decimal(wanted):
        return bool(pa.types.is_floating(given))
    return bool(pa.types.is_date(wanted) and pa.types.is_timestamp(given))


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python has them. Raises DataError, which names the column, for a value that Python does not have: a
    time after the year 9999, or one in a zone that is unknown here."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows
    except _NOT_IN_PYTHON:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            python_values(column, name)
        raise


def python_values(column: pa.Array, name: str) -> list[Any]:
    """The same of one column."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except _NOT_IN_PYTHON as error:
        raise DataError(
            f"column {name!r} of type {column.type} has a value that Python does not have ({type(error).__name__}: "
            f"{error}); filter such rows with a SQL string, or work on batches, which keep the value"
        ) from None


def shown(value: object) -> str:
    """A user's value in an error: not more than fits on a line or two, and its type."""
    text = repr(value)
    return f"{text if len(text) <= 200 else text[:200] + '...'} ({type(value).__name__})"


def is_kept(given: Any, kept: Any) -> bool:
    """Whether what Arrow made of a value says the same. Floats may be rounded; what Arrow has another notion of (a
    number that is a time) is its to judge."""
    if isinstance(given, np.generic | np.ndarray | pa.Scalar):
        given = given.as_py() if isinstance(given, pa.Scalar) else given.tolist()
    if given is None or kept is None:
        return kept is None
    if isinstance(given, Number) and isinstance(kept, Number):
        return _same_number(given, kept)
    if isinstance(given, dict):
        return _same_fields(given, kept) if isinstance(kept, dict) else is_kept(list(given.items()), kept)
    if isinstance(given, list | tuple):
        inner = list(kept.values()) if isinstance(kept, dict) else kept
        return len(given) == len(inner) and all(map(is_kept, given, inner))
    return _same_time(given, kept)


def _same_number(given: Any, kept: Any) -> bool:
    if isinstance(kept, float) and isinstance(given, float):
        return math.isnan(given) == math.isnan(kept) and math.isinf(given) == math.isinf(kept)
    return bool(given == kept)


def _same_fields(given: dict[Any, Any], kept: dict[Any, Any]) -> bool:
    return given.keys() <= kept.keys() and all(is_kept(given.get(name), value) for name, value in kept.items())


def _same_time(given: Any, kept: Any) -> bool:
    if isinstance(given, datetime) and isinstance(kept, datetime):
        return _in_utc(given) == _in_utc(kept)
    if isinstance(given, datetime) and isinstance(kept, date):
        return given.date() == kept and given.time() == time()
    if isinstance(given, time | timedelta) and isinstance(kept, time | timedelta):
        return bool(given == kept)
    return True


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
