"""Values that a user's function keeps as state: checked against their Arrow type when they are written, and immutable
from then on, so that a copy of who has which is a snapshot.

Plain values are kept as Python has them; those of nested types, which a user could change behind our back, as arrays of
one value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.rows_checks import CONVERSION_ERRORS, converted, shown
from headgate.records.arrow import plain_type
from headgate.records.canonical import check_keyable

#: Types whose Python values need no conversion, if they are of just this class and the check is true.
_AS_THEY_ARE: dict[pa.DataType, tuple[type, Callable[[Any], bool]]] = {
    pa.int64(): (int, lambda value: -(1 << 63) <= value < 1 << 63),
    pa.float64(): (float, lambda value: True),
    pa.bool_(): (bool, lambda value: True),
    pa.string(): (str, str.isascii),  # others may have surrogates
    pa.binary(): (bytes, lambda value: True),
}


class StoredValues:
    """How values of one Arrow type are kept. `what` names them in errors."""

    def __init__(self, kind: pa.DataType, what: str) -> None:
        if not isinstance(kind, pa.DataType):
            raise PlanError(f"{what}: the type must be a pyarrow.DataType such as pa.int64(), not {kind!r}")
        self.type = plain_type(kind)
        if pa.types.is_null(self.type) or pa.types.is_run_end_encoded(self.type) or pa.types.is_union(self.type):
            raise PlanError(f"{what}: {kind} cannot be the type of a state")
        self._what = what
        self._is_nested = pa.types.is_nested(self.type)
        self._class: type | None
        self._fits: Callable[[Any], bool]
        self._class, self._fits = _AS_THEY_ARE.get(self.type, (None, bool))

    def check(self, value: object) -> Any:
        """The value as it is kept. Raises TypeError for None and for what does not fit the type."""
        if type(value) is self._class and self._fits(value):
            return value
        if value is None:
            raise TypeError(f"{self._what}: None cannot be kept; remove or clear() what is there instead")
        try:
            array = converted([value.as_py() if isinstance(value, pa.Scalar) else value], self.type)
            array.validate(full=True)
        except CONVERSION_ERRORS as error:
            raise TypeError(f"{self._what}: {shown(value)} is no {self.type}: {error}") from None
        return array if self._is_nested else array[0].as_py()

    def read(self, stored: Any) -> Any:
        """What the user gets."""
        return stored[0].as_py() if self._is_nested else stored

    def size(self, stored: Any) -> int:
        """About how many bytes it takes."""
        return int(stored.nbytes) + sys.getsizeof(stored) if self._is_nested else sys.getsizeof(stored)

    def column(self, stored: Sequence[Any]) -> pa.Array:
        """Many of them as Arrow has them."""
        if self._is_nested:
            return pa.concat_arrays(stored) if stored else pa.nulls(0, self.type)
        return pa.array(stored, self.type)

    def of_column(self, column: pa.Array) -> list[Any]:
        """What `column` was given."""
        if self._is_nested:
            return [pa.concat_arrays([column.slice(row, 1)]) for row in range(len(column))]
        values: list[Any] = column.to_pylist()
        return values


class StoredKeys(StoredValues):
    """Keys of a map state: plain values, equal as keys of a stream are."""

    def __init__(self, kind: pa.DataType, what: str) -> None:
        super().__init__(kind, what)
        try:
            check_keyable(self.type)
        except PlanError as error:
            raise PlanError(f"{what}: {error.message}") from None

    def check(self, value: object) -> Any:
        return _one_nan(super().check(value))

    def of_column(self, column: pa.Array) -> list[Any]:
        return [_one_nan(value) for value in super().of_column(column)]


def _one_nan(value: Any) -> Any:
    """A dict finds a NaN only if it is the same object."""
    return math.nan if value != value else value
