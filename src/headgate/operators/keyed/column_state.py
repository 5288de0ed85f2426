"""`ColumnState`: one value per key in a NumPy array, which a `KeyedBatchFunction` reads and writes for many keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.conversion import shown
from headgate.operators.keyed.state_base import WRITTEN, Duration, KeyedState
from headgate.records.canonical import Bools, Int64s, as_arrow
from headgate.state.growable import Growable

Values = npt.NDArray[Any]
_NO_SLOTS: Final = np.zeros(0, np.int64)


class ColumnState(KeyedState):
    """A state of one number, boolean or time for each key, which a `KeyedBatchFunction` reads and writes as an array.

    Declare it as an attribute of the function. A key that has no value yet has the value `default`: 0, False or NaT if
    you give none. A time is a `datetime64` in UTC, a duration a `timedelta64`. Without `name`, the state has the
    attribute's name. With `ttl`, a value expires this long after it was written, in processing time: it is `default`
    again.

    ```python
    class Largest(hg.KeyedBatchFunction):
        largest = hg.ColumnState(pa.float64(), default=-math.inf)

        def process(self, batch, keys, ctx):
            largest = self.largest.values()
            np.maximum.at(largest, keys.of_row, batch["price"])
            self.largest.update(largest)
            return pa.record_batch({"shop": batch["shop"].take(pa.array(keys.first)), "largest": largest})
    ```
    """

    _word = "column"

    def __init__(
        self, type: pa.DataType, *, default: Any = None, ttl: Duration | None = None, name: str | None = None
    ) -> None:
        super().__init__(ttl, name)
        self._type = type
        self._dtype = _dtype(type, self._what)
        self._slots = _NO_SLOTS
        try:
            value = _empty(self._dtype) if default is None else default
            self._default = self._fitting(np.asarray(value), ())[()]
        except TypeError as error:
            raise PlanError(f"default={default!r}: {error}") from None
        self._bind()

    def _bind(self) -> None:
        self._column: Growable[Any] = Growable(self._dtype, self._default)
        self._times: Growable[np.int64] | None = None if self._ttl is None else Growable(np.int64)

    def values(self) -> Values:
        """Return a copy of the values of the batch's keys, one per key. Only `update` changes the state."""
        values = self._column.values.take(self._slots)
        if self._times is not None:
            values[self._is_old(self._times.values.take(self._slots))] = self._default
        return values

    def update(self, values: Any, *, where: Any = None) -> None:
        """Set the values of the batch's keys. `values` is an array with one value per key, or one value for all keys.

        With `where`, an array with one boolean per key, set only the keys for which it is true. Raises TypeError for a
        value that does not fit the type.
        """
        slots = self._slots
        if not len(slots):
            raise RuntimeError(f"{self._what} needs the keys of a batch, and there are none: use it in process")
        values = self._fitting(np.asarray(values), slots.shape)
        if where is not None:
            where = np.asarray(where)
            if where.dtype != np.bool_ or where.shape != slots.shape:
                raise TypeError(f"{self._what}: where= must have one boolean for each of {len(slots)} keys")
            slots = slots[where]
            values = values[where] if values.shape else values
        self._column.values[slots] = values
        if self._times is not None:
            self._times.values[slots] = self._at.now

    def _fitting(self, values: Values, shape: tuple[int, ...]) -> Values:
        """Return the values in the type of the state. Raises TypeError if one of them does not fit."""
        if values.shape not in (shape, ()):
            raise TypeError(f"{self._what}: there are {len(self._slots)} keys, and values of the shape {values.shape}")
        if values.dtype == self._dtype:
            return values
        is_number = values.dtype.kind in "biuf" and self._dtype.kind in "biuf"
        if not is_number and values.dtype.kind != self._dtype.kind:
            raise TypeError(f"{self._what}: {shown(_first(values))} does not fit {self._type}")
        with np.errstate(all="ignore"):
            fitting = values.astype(self._dtype)
            is_lost = _is_lost(values, fitting)
        if is_lost.any():
            raise TypeError(f"{self._what}: {shown(_first(values[is_lost]))} does not fit {self._type}")
        return fitting

    # --- for the operator

    def enter(self, slots: Int64s, size: int) -> None:
        """Make these slots the keys of the batch. The operator has `size` slots."""
        self._slots = slots
        self._grow(size)

    def leave(self) -> None:
        """Record that there is no batch."""
        self._slots = _NO_SLOTS

    @property
    def nbytes(self) -> int:
        return self._column.nbytes + (0 if self._times is None else self._times.nbytes)

    @property
    def slots(self) -> Int64s:
        """The slots of the keys whose value is not the default."""
        values = self._column.values
        is_set = values != self._default
        if self._default != self._default:  # NaN or NaT
            is_set &= values == values
        if self._times is not None:
            is_set &= ~self._is_old(self._times.values)
        return np.flatnonzero(is_set)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        size = len(numbers)
        kept = np.fromiter(numbers, np.int64, size)
        self._grow(int(kept[-1]) + 1 if size else 0)
        self._column.replace(self._column.values.take(kept))
        if self._times is not None:
            self._times.replace(self._times.values.take(kept))

    def frozen(self) -> Self:
        reader = super().frozen()
        reader._column = self._column.frozen()
        reader._times = None if self._times is None else self._times.frozen()
        return reader

    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        chosen = np.array(slots, np.int64)
        times = pa.nulls(len(slots), pa.int64()) if self._times is None else as_arrow(self._times.values.take(chosen))
        return chosen, {"value": pa.array(self._column.values.take(chosen), self._type), WRITTEN: times}

    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        self._grow(int(slots.max()) + 1)
        self._column.values[slots] = _array(columns["value"])
        if self._times is not None:
            self._times.values[slots] = _array(columns[WRITTEN].fill_null(now))

    def _grow(self, size: int) -> None:
        if size > len(self._column):
            self._column.resize(size)
            if self._times is not None:
                self._times.resize(size)

    def _is_old(self, written: Int64s) -> Bools:
        assert self._ttl is not None
        return written + self._ttl <= self._at.now


def _dtype(kind: pa.DataType, what: str) -> np.dtype[Any]:
    """Return the NumPy type of the values. Raises PlanError if NumPy has none."""
    if not isinstance(kind, pa.DataType):
        raise PlanError(f"{what}: the type must be a pyarrow.DataType such as pa.int64(), not {kind!r}")
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    if pa.types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if pa.types.is_duration(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    if pa.types.is_date32(kind):
        return np.dtype("datetime64[D]")
    raise PlanError(
        f"{what}: {kind} cannot be the type of a column state: only numbers, booleans, timestamps, durations and "
        "date32 can; keep other values in a hg.ValueState of a hg.KeyedProcessFunction"
    )


def _empty(dtype: np.dtype[Any]) -> Any:
    return dtype.type("NaT") if dtype.kind in "mM" else dtype.type(0)


def _first(values: Values) -> Any:
    return next((value.item() if isinstance(value, np.generic) else value for value in values.flat), None)


def _is_lost(given: Values, fitting: Values) -> Bools:
    """Return which values changed by more than the rounding of a float."""
    if fitting.dtype.kind == "f":
        return np.asarray(np.isinf(fitting) != np.isinf(given))
    if given.dtype.kind in "iu" and fitting.dtype.kind in "iu":
        limits = np.iinfo(fitting.dtype)
        return np.asarray((given < limits.min) | (given > limits.max))
    if given.dtype.kind == "f" or (given.dtype.kind in "iu" and fitting.dtype.kind == "b"):
        return np.ones(given.shape, np.bool_)
    if given.dtype.kind == "b" and fitting.dtype.kind != "b":
        return np.zeros(given.shape, np.bool_)
    return np.asarray((given != fitting) & (given == given))


def _array(column: pa.Array) -> Values:
    values: Values = column.to_numpy(zero_copy_only=False)
    return values
