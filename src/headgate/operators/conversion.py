"""Converts users' values to Arrow and back. A value that would change is an error, not a silent loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from numbers import Number
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The exceptions that `converted` and `cast` raise.
CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)

#: Types for which Arrow raises an error instead of changing a value. Fractions are the exception: `converted` refuses
#: them.
_STRICT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
#: Types, and the classes of values that Arrow stores unchanged in them, or refuses. Of other classes it may change a
#: value, for example a float that becomes an integer, or a `pandas.Timedelta` with nanoseconds.
_EXACT: Final[tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...]] = (
    (pa.types.is_integer, frozenset({int})),
    (pa.types.is_float64, frozenset({float, int})),
    (pa.types.is_boolean, frozenset({bool})),
    (pa.types.is_decimal, frozenset({Decimal, int})),
    (pa.types.is_string, frozenset({str})),
    (pa.types.is_large_string, frozenset({str})),
    (pa.types.is_binary, frozenset({bytes})),
    (pa.types.is_large_binary, frozenset({bytes})),
    (pa.types.is_fixed_size_binary, frozenset({bytes})),
    (pa.types.is_date, frozenset({date})),
    (pa.duration("us").equals, frozenset({timedelta})),
)


def converted(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return the values as an Arrow array of `data_type`.

    Raises one of CONVERSION_ERRORS for a value of another type, and for a value that the type would change.
    """
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        # pa.array would cut 1.5 to 1 silently.
        for kind in set(map(type, values)):
            if issubclass(kind, float | Decimal | np.floating):
                raise TypeError(f"{kind.__name__} is not converted to {data_type}")
    if any(is_such(data_type) for is_such in _STRICT):
        return pa.array(values, data_type)
    at_once = _converted_at_once(values, data_type)
    if at_once is not None:
        return at_once
    array = pa.array(values, data_type)
    for given, stored in zip(values, array.to_pylist(), strict=True):
        if not is_kept(given, stored):
            raise ValueError(f"it would become {shown(stored)}")
    return array


def _converted_at_once(values: list[Any], data_type: pa.DataType) -> pa.Array | None:
    """Convert values to a type that may lose a part of them, if their classes or a comparison of whole columns show
    that nothing is lost.

    Otherwise return None: the caller compares the values one by one.
    """
    if _are_exact(values, data_type):
        return pa.array(values, data_type)
    kinds = set(map(type, values)) - {type(None)}
    if pa.types.is_timestamp(data_type) and kinds == {datetime}:
        exact = pa.array(values, pa.timestamp("us", data_type.tz))  # a datetime has microseconds
        array = exact if data_type.unit == "us" else exact.cast(data_type, safe=False)
        return array if data_type.unit == "us" or array.cast(exact.type).equals(exact) else None
    if pa.types.is_float32(data_type) and kinds == {float}:
        array = pa.array(values, data_type)
        return array if pc.is_inf(array).equals(pc.is_inf(pa.array(values, pa.float64()))) else None
    return None


def _are_exact(values: Sequence[Any], data_type: pa.DataType) -> bool:
    """Return whether Arrow stores each of these values unchanged, or refuses it. False if that is not known.

    It looks only at the classes of the values, at the names in structs, and at the zones of times of day.
    """
    kinds = set(map(type, values)) - {type(None)}
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        if not kinds <= {list, tuple}:
            return False
        return _are_exact(list(chain.from_iterable(filter(None, values))), data_type.value_type)
    if pa.types.is_struct(data_type):
        return kinds <= {dict} and _have_exact_fields([row for row in values if row is not None], data_type)
    if pa.types.is_time64(data_type):  # Arrow drops a zone
        return kinds <= {time} and all(each is None or each.tzinfo is None for each in values)
    return any(is_such(data_type) and kinds <= exact for is_such, exact in _EXACT)


def _have_exact_fields(rows: list[dict[Any, Any]], data_type: pa.StructType) -> bool:
    """Return whether structs have no other fields than their type, which Arrow would drop, and only exact values."""
    fields = list(data_type)
    names = {field.name for field in fields}
    if len(names) < len(fields) or not all(map(names.issuperset, rows)):
        return False
    return all(_are_exact([row.get(field.name) for row in rows], field.type) for field in fields)


def cast(column: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return the column cast to `data_type`. A cast to a shorter float type may round.

    Raises one of CONVERSION_ERRORS for a value that the type cannot hold. Arrow's own casts do not raise: they make
    1e300 infinite, drop the time when a timestamp becomes a date, and round decimals.
    """
    result = column.cast(data_type)
    if pa.types.is_floating(data_type) and pa.types.is_floating(column.type):
        is_lost = pc.not_equal(pc.is_inf(result), pc.is_inf(column))
    elif pa.types.is_nested(data_type):
        is_lost = pa.array([not is_kept(*pair) for pair in zip(column.to_pylist(), result.to_pylist(), strict=True)])
    elif _may_lose(column.type, data_type):
        is_lost = pc.not_equal(result.cast(column.type), column)
    else:
        return result
    row = pc.index(is_lost, True).as_py()
    if row >= 0:
        raise ValueError(f"{shown(column[row].as_py())} would become {shown(result[row].as_py())}")
    return result


def _may_lose(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether Arrow's cast between these types may change a value silently."""
    if pa.types.is_boolean(wanted):
        return not pa.types.is_boolean(given)
    if pa.types.is_decimal(wanted):
        return bool(pa.types.is_floating(given))
    return bool(pa.types.is_date(wanted) and pa.types.is_timestamp(given))


def shown(value: object) -> str:
    """Return a user's value as text for an error: at most 200 characters of its `repr`, and its type."""
    text = repr(value)
    return f"{text if len(text) <= 200 else text[:200] + '...'} ({type(value).__name__})"


def is_kept(given: Any, stored: Any) -> bool:
    """Return whether Arrow stored the value `given` unchanged, as `stored`.

    A rounded float counts as unchanged, and so does a value that Arrow converts to another kind, such as a number to a
    time.
    """
    if isinstance(given, np.generic | np.ndarray | pa.Scalar):
        given = given.as_py() if isinstance(given, pa.Scalar) else given.tolist()
    if given is None or stored is None:
        return stored is None
    if isinstance(given, Number) and isinstance(stored, Number):
        return _same_number(given, stored)
    if isinstance(given, dict):
        return _same_fields(given, stored) if isinstance(stored, dict) else is_kept(list(given.items()), stored)
    if isinstance(given, list | tuple):
        inner = list(stored.values()) if isinstance(stored, dict) else stored
        return len(given) == len(inner) and all(map(is_kept, given, inner))
    return _same_time(given, stored)


def _same_number(given: Any, stored: Any) -> bool:
    if isinstance(stored, float) and isinstance(given, float):
        return math.isnan(given) == math.isnan(stored) and math.isinf(given) == math.isinf(stored)
    return bool(given == stored)


def _same_fields(given: dict[Any, Any], stored: dict[Any, Any]) -> bool:
    return given.keys() <= stored.keys() and all(is_kept(given.get(name), value) for name, value in stored.items())


def _same_time(given: Any, stored: Any) -> bool:
    if isinstance(given, datetime) and isinstance(stored, datetime):
        return _in_utc(given) == _in_utc(stored)
    if isinstance(given, datetime) and isinstance(stored, date):
        return given.date() == stored and given.time() == time()
    if isinstance(given, time | timedelta) and isinstance(stored, time | timedelta):
        return bool(given == stored)
    return True


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
