"""`StoredValues`: checks and stores the values of keyed state.

`StoredValues` checks a value against its Arrow type when a function writes it. Stored values never change, so a
snapshot copies only the dict that holds them. A user could change a list or a dict later, so `StoredValues` copies it
at each write and each read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.conversion import CONVERSION_ERRORS, converted, shown
from headgate.operators.keyed.plain_values import SIZES, Unfit, nanosecond_taker, plain_taker, utc_taker, zone_of
from headgate.records.arrow import plain_type
from headgate.records.canonical import check_keyable


@dataclass(frozen=True, slots=True)
class _Copying:
    """Functions that copy values of one Arrow type deeply: lists, dicts, and immutable values in them.

    `taken` copies a user's value, and raises Unfit if Arrow must convert the value. `given` copies a stored value.
    `is_leaf` says that the values are immutable.
    """

    taken: Callable[[Any], Any]
    given: Callable[[Any], Any]
    is_leaf: bool = False


def _copying(kind: pa.DataType) -> _Copying | None:
    """Return the functions that copy values of this type, or None if Arrow must convert the values."""
    if (plain := plain_taker(kind)) is not None:
        return _Copying(plain[1], lambda value: value, is_leaf=True)
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


def _of_struct(fields: dict[str, _Copying]) -> _Copying:
    takers = [(name, field.taken) for name, field in fields.items()]
    givers = [(name, field.given) for name, field in fields.items()]

    def take(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict or value.keys() != fields.keys():
            raise Unfit
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
            raise Unfit
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
    """The checks and conversions of stored values of one Arrow type. `what` names the state in errors.

    Values of most types are stored as the Python values that users see. Times with nanoseconds are stored as whole
    numbers, because Python has no such times. Nested values that `_copying` does not support are stored as Arrow arrays
    of one value.
    """

    def __init__(self, kind: pa.DataType, what: str) -> None:
        if not isinstance(kind, pa.DataType):
            raise PlanError(f"{what}: the type must be a pyarrow.DataType such as pa.int64(), not {kind!r}")
        self.type = plain_type(kind)
        if pa.types.is_null(self.type) or pa.types.is_run_end_encoded(self.type) or pa.types.is_union(self.type):
            raise PlanError(f"{what}: {kind} cannot be the type of a state")
        self._what = what
        copying = _copying(self.type)
        nanoseconds = nanosecond_taker(self.type)
        self._take = nanoseconds or (_refuse if copying is None else copying.taken)
        self._give = None if copying is None else copying.given
        self._is_whole_number = nanoseconds is not None
        self._is_array = pa.types.is_nested(self.type) and copying is None
        #: Whether stored values are immutable, and users see them as they are.
        self.is_plain = not (pa.types.is_nested(self.type) or self._is_whole_number)
        plain = plain_taker(self.type)
        #: About how many bytes a stored value needs, or None if values have different sizes.
        self.fixed_size = SIZES[int] if self._is_whole_number else None if plain is None else SIZES.get(plain[0])

    def check(self, value: object) -> Any:
        """Return a user's value in its stored form. Raises TypeError for None, and for a value that does not fit."""
        try:
            stored = self._take(value)
        except Unfit:
            return self._converted(value)
        if stored is None:
            raise TypeError(f"{self._what}: None cannot be stored; call remove or clear() instead")
        return stored

    def _converted(self, value: object) -> Any:
        """Return a user's value in its stored form, as Arrow converts it. Raises TypeError as `check` does."""
        if value is None:
            raise TypeError(f"{self._what}: None cannot be stored; call remove or clear() instead")
        try:
            array = converted([value.as_py() if isinstance(value, pa.Scalar) else value], self.type)
            array.validate(full=True)
            seen = None if self._is_array else array[0].as_py()  # raises an error for a value that Python cannot hold
            stored = array if self._is_array else array.view(pa.int64())[0].as_py() if self._is_whole_number else seen
            self.column([stored])  # Arrow takes some durations as numbers, but not as the timedelta that they make
        except CONVERSION_ERRORS as error:
            raise TypeError(f"{self._what}: {shown(value)} does not fit {self.type}: {error}") from None
        if array.null_count:
            raise TypeError(f"{self._what}: {shown(value)} is null, which cannot be stored; call clear() instead")
        return stored

    def read(self, stored: Any) -> Any:
        """Return a stored value in the form that users see."""
        if self.is_plain:
            return stored
        if self._is_whole_number:
            return pa.scalar(stored, self.type).as_py()
        return stored[0].as_py() if self._give is None else self._give(stored)

    def size(self, stored: Any) -> int:
        """Return about how many bytes a stored value needs."""
        if self.fixed_size is not None:
            return self.fixed_size
        if self.is_plain:
            return sys.getsizeof(stored)
        return int(stored.nbytes) + sys.getsizeof(stored) if self._is_array else _size(stored)

    def total_size(self, stored: Collection[Any]) -> int:
        """Return about how many bytes several stored values need."""
        return sum(map(self.size, stored)) if self.fixed_size is None else self.fixed_size * len(stored)

    def column(self, stored: Sequence[Any]) -> pa.Array:
        """Return stored values as an Arrow array."""
        if self._is_array:
            return pa.concat_arrays(stored) if stored else pa.nulls(0, self.type)
        return pa.array(stored, pa.int64()).view(self.type) if self._is_whole_number else pa.array(stored, self.type)

    def of_column(self, column: pa.Array) -> list[Any]:
        """Return the stored values of an Arrow array that `column` returned."""
        if self._is_array:
            return [pa.concat_arrays([column.slice(row, 1)]) for row in range(len(column))]
        values: list[Any] = (column.view(pa.int64()) if self._is_whole_number else column).to_pylist()
        return values


def _refuse(_: object) -> Any:
    raise Unfit


class StoredKeys(StoredValues):
    """The stored keys of a map state. Their type is not nested.

    Two map keys are equal if they would be equal as keys of a stream.
    """

    def __init__(self, kind: pa.DataType, what: str) -> None:
        super().__init__(kind, what)
        try:
            check_keyable(self.type)
        except PlanError as error:
            raise PlanError(f"{what}: {error.message}") from None
        self._zone = zone_of(self.type) if self.is_plain else None
        if self._zone is not None:
            self.is_plain, self._take = False, utc_taker(self.type)
        elif pa.types.is_floating(self.type):
            take = self._take
            self._take = lambda value: self._as_key(take(value))

    def _converted(self, value: object) -> Any:
        return self._as_key(super()._converted(value))

    def read(self, stored: Any) -> Any:
        return super().read(stored) if self._zone is None else stored.astimezone(self._zone)

    def of_column(self, column: pa.Array) -> list[Any]:
        return [self._as_key(value) for value in super().of_column(column)]

    def _as_key(self, value: Any) -> Any:
        """Return a map key in a form that a dict compares correctly.

        Two NaN objects are different keys in a dict, so all NaN become one object. In the hour that occurs twice when
        summer time ends, Python compares two different times of one zone as equal, so times become UTC.
        """
        if self._zone is not None:
            return value.astimezone(UTC)
        return math.nan if value != value else value
