"""`StoredValues`: checks and stores the values of keyed state.

`StoredValues` checks a value against its Arrow type when a function writes it. Stored values never change, so a
snapshot copies only the dict that holds them. Stored values are Python values. A user could change a list or a dict
later, so `StoredValues` copies it at each write and each read. A value of any other nested type is stored as an Arrow
array with this one value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.conversion import CONVERSION_ERRORS, converted, shown
from headgate.records.arrow import plain_type
from headgate.records.canonical import check_keyable


def _is_text(value: str) -> bool:
    """Return whether UTF-8 can encode the string. A string with lone surrogates cannot be encoded."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


#: Types whose Python values are stored without a conversion. Such a value is exactly of this class, and passes the
#: check.
_AS_THEY_ARE: dict[pa.DataType, tuple[type, Callable[[Any], bool]]] = {
    pa.int64(): (int, lambda value: -(1 << 63) <= value < 1 << 63),
    pa.float64(): (float, lambda value: True),
    pa.bool_(): (bool, lambda value: True),
    pa.string(): (str, _is_text),
    pa.binary(): (bytes, lambda value: True),
}


#: Types with finer values than Python has: a `datetime.time` has no nanoseconds.
_FINER_THAN_PYTHON = {pa.time64("ns")}


class _Unfit(Exception):
    """Raised for a value that Arrow must convert. Arrow then also checks whether the value fits."""


@dataclass(frozen=True, slots=True)
class _Copying:
    """Functions that copy values of one Arrow type deeply: lists, dicts, and immutable values in them.

    `taken` copies a user's value, and raises _Unfit if Arrow must convert the value. `given` copies a stored value.
    """

    taken: Callable[[Any], Any]
    given: Callable[[Any], Any]
    is_leaf: bool = False


def _copying(kind: pa.DataType) -> _Copying | None:
    """Return the functions that copy values of this type, or None if Arrow must convert the values."""
    if kind in _AS_THEY_ARE:
        return _Copying(_leaf_check(*_AS_THEY_ARE[kind]), lambda value: value, is_leaf=True)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        copyings = [_copying(field.type) for field in kind]
        if len(set(names)) < len(names) or not all(field.nullable for field in kind):
            return None
        if None in copyings:
            return None
        return _of_struct(dict(zip(names, copyings, strict=True)))  # type: ignore[arg-type]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _copying(kind.value_type)
        return None if element is None or not kind.value_field.nullable else _of_list(element)
    return None


def _leaf_check(python: type, fits: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if value is None or (type(value) is python and fits(value)):
            return value
        raise _Unfit

    return take


def _of_struct(fields: dict[str, _Copying]) -> _Copying:
    takers = [(name, field.taken) for name, field in fields.items()]
    givers = [(name, field.given) for name, field in fields.items()]

    def take(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict or value.keys() != fields.keys():
            raise _Unfit
        return {name: take(value[name]) for name, take in takers}

    def give(value: Any) -> Any:
        return None if value is None else {name: give(value[name]) for name, give in givers}

    is_flat = all(field.is_leaf for field in fields.values())
    return _Copying(take, _copied if is_flat else give)


def _of_list(element: _Copying) -> _Copying:
    def take(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise _Unfit
        return [element.taken(item) for item in value]

    def give(value: Any) -> Any:
        return None if value is None else [element.given(item) for item in value]

    return _Copying(take, _copied if element.is_leaf else give)


def _copied(value: Any) -> Any:
    return None if value is None else value.copy()


def _size(value: Any) -> int:
    """Return about how many bytes a Python value needs."""
    inner = value.values() if type(value) is dict else value if type(value) is list else ()
    return sys.getsizeof(value) + sum(map(_size, inner))


class StoredValues:
    """The checks and conversions of stored values of one Arrow type. `what` names the state in errors."""

    def __init__(self, kind: pa.DataType, what: str) -> None:
        if not isinstance(kind, pa.DataType):
            raise PlanError(f"{what}: the type must be a pyarrow.DataType such as pa.int64(), not {kind!r}")
        self.type = plain_type(kind)
        if pa.types.is_null(self.type) or pa.types.is_run_end_encoded(self.type) or pa.types.is_union(self.type):
            raise PlanError(f"{what}: {kind} cannot be the type of a state")
        self._what = what
        self._copying = _copying(self.type)
        is_nested = pa.types.is_nested(self.type)
        self._is_array = (is_nested and self._copying is None) or self.type in _FINER_THAN_PYTHON
        self._is_plain = not is_nested and not self._is_array

    def check(self, value: object) -> Any:
        """Return a user's value in its stored form. Raises TypeError for None, and for a value that does not fit."""
        if value is None:
            raise TypeError(f"{self._what}: None cannot be stored; call remove or clear() instead")
        if self._copying is not None:
            try:
                return self._copying.taken(value)
            except _Unfit:
                pass
        try:
            array = converted([value.as_py() if isinstance(value, pa.Scalar) else value], self.type)
            array.validate(full=True)
            stored = array if self._is_array else array[0].as_py()
        except CONVERSION_ERRORS as error:
            raise TypeError(f"{self._what}: {shown(value)} does not fit {self.type}: {error}") from None
        if array.null_count:
            raise TypeError(f"{self._what}: {shown(value)} is null, which cannot be stored; call clear() instead")
        return stored

    def read(self, stored: Any) -> Any:
        """Return a stored value in the form that users see."""
        if self._is_plain:
            return stored
        return stored[0].as_py() if self._is_array or self._copying is None else self._copying.given(stored)

    def size(self, stored: Any) -> int:
        """Return about how many bytes a stored value needs."""
        if self._is_plain:
            return sys.getsizeof(stored)
        return int(stored.nbytes) + sys.getsizeof(stored) if self._is_array else _size(stored)

    def column(self, stored: Sequence[Any]) -> pa.Array:
        """Return stored values as an Arrow array."""
        if self._is_array:
            return pa.concat_arrays(stored) if stored else pa.nulls(0, self.type)
        return pa.array(stored, self.type)

    def of_column(self, column: pa.Array) -> list[Any]:
        """Return the stored values of an Arrow array that `column` returned."""
        if self._is_array:
            return [pa.concat_arrays([column.slice(row, 1)]) for row in range(len(column))]
        values: list[Any] = column.to_pylist()
        return values


class StoredKeys(StoredValues):
    """The stored keys of a map state, whose types are not nested. Two map keys are equal if they would be equal as keys
    of a stream."""

    def __init__(self, kind: pa.DataType, what: str) -> None:
        super().__init__(kind, what)
        try:
            check_keyable(self.type)
        except PlanError as error:
            raise PlanError(f"{what}: {error.message}") from None
        self._has_zone = pa.types.is_timestamp(self.type) and self.type.tz is not None

    def check(self, value: object) -> Any:
        return self._as_key(super().check(value))

    def read(self, stored: Any) -> Any:
        return pa.scalar(stored, self.type).as_py() if self._has_zone else super().read(stored)

    def of_column(self, column: pa.Array) -> list[Any]:
        return [self._as_key(value) for value in super().of_column(column)]

    def _as_key(self, value: Any) -> Any:
        """Return a map key in a form that a dict compares correctly.

        Two NaN objects are different keys in a dict, so all NaN become one object. In the hour that occurs twice when
        summer time ends, Python compares two different times of one zone as equal, so times become UTC.
        """
        if self._has_zone:
            return value.astimezone(UTC)
        return math.nan if value != value else value
