"""`AggregateFunction`: aggregates that users write. They work on batches: on the rows and the states of many groups at
once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import PlanError, UserFunctionError
from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.aggregates.aggregates import Aggregate, OfColumns, Where
from headgate.operators.operator import call_user, function_name
from headgate.records.arrow import plain_schema
from headgate.records.canonical import Int64s, as_arrow
from headgate.state.frozen import frozen
from headgate.state.growable import Growable
from headgate.state.renumber import OneRowPerSlot
from headgate.state.row_log import RowLog

#: What a user's function returns for states: columns by name, as Arrow or NumPy arrays, or a batch.
States: TypeAlias = pa.RecordBatch | Mapping[str, Any]
#: The accumulator compacts its log when it has this many states more than twice the number of slots.
_SLACK = 1 << 16


class AggregateFunction(ABC):
    """The base class of your own aggregates. A subclass says what it keeps for each group (`state`), the type of its
    result (`type`), and how to compute both.

    A group is a key, or a key and a window. The state of a group is a row with the columns of `state`. The methods get
    and return the states of many groups at once: as a RecordBatch, or as a dict of NumPy or Arrow arrays. Checkpoints
    hold the states as they are. To use the function in `aggregate`, call an instance with the names of columns, and
    with `where=` if you like.

    >>> import numpy as np
    >>> class Product(hg.AggregateFunction):
    ...     state = pa.schema({"product": pa.float64()})
    ...     type = pa.float64()
    ...     def create(self, count):
    ...         return {"product": np.ones(count)}
    ...     def accumulate(self, values, groups, count):
    ...         products = np.ones(count)
    ...         np.multiply.at(products, groups, values.column(0).to_numpy())
    ...         return {"product": products}
    ...     def merge(self, states, others):
    ...         return {"product": pc.multiply(states["product"], others["product"])}
    ...     def result(self, states):
    ...         return states["product"]
    >>> product = Product()
    >>> rows = [{"city": "Rome", "km": 7}, {"city": "Oslo", "km": 3}, {"city": "Rome", "km": 5}]
    >>> trips = hg.StreamEnvironment().from_source(hg.sources.iterable([rows]))
    >>> totals = trips.key_by("city").aggregate(final=True, product=product("km"))
    >>> sorted(totals.collect()["product"].to_pylist())
    [3.0, 35.0]
    """

    #: The columns of a state.
    state: pa.Schema
    #: The type of the result.
    type: pa.DataType

    @abstractmethod
    def create(self, count: int) -> States:
        """Return the states of `count` groups without rows."""

    @abstractmethod
    def accumulate(self, values: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> States:
        """Return the states of `count` groups, each computed only from the group's rows in `values`.

        `values` has the columns that the user named. `groups` has the number of each row's group, from 0. Each group
        has at least one row.
        """

    @abstractmethod
    def merge(self, states: pa.RecordBatch, others: pa.RecordBatch) -> States:
        """Combine row i of `states` with row i of `others`: return the state of a group that has the rows of both."""

    @abstractmethod
    def result(self, states: pa.RecordBatch) -> Any:
        """Return the result for each state: an Arrow or NumPy array of `type`."""

    def __call__(self, *columns: str, where: Where = None) -> Aggregate:
        """Return the aggregate of these columns, for `aggregate(...)`."""
        name = type(self).__name__
        if not columns or not all(isinstance(column, str) for column in columns):
            raise PlanError(f"{name}: call it with the names of its columns, not with {columns!r}")
        for attribute, kind in (("state", pa.Schema), ("type", pa.DataType)):
            if not isinstance(getattr(self, attribute, None), kind):
                raise PlanError(f"{name}: the class must set {attribute} to a pyarrow.{kind.__name__}")
        if not len(self.state):
            raise PlanError(f"{name}: state must have a column at least")
        for kept in (*self.state.types, self.type):
            plain = plain_schema(pa.schema([("", kept)])).types[0]
            if plain != kept or "view" in str(kept):
                use = f"; use {plain}" if plain != kept else ""
                raise PlanError(f"{name}: states and results cannot have the type {kept}{use}")
        return UserAggregate("user", columns[0], where, function=self, columns=columns)


@dataclass(frozen=True, slots=True)
class UserAggregate(OfColumns):
    """An aggregate whose function a user wrote."""

    function: AggregateFunction | None = None

    def output_field(self, name: str, schema: pa.Schema) -> pa.Field:
        """Return the field of the result. Raises PlanError for a missing column."""
        for column in self.columns:
            if schema.get_field_index(column) < 0:
                names = ", ".join(schema.names)
                raise PlanError(f"{name}={self}: there must be one column {column!r}; the columns are: {names}")
        assert self.function is not None
        return pa.field(name, self.function.type)

    @property
    def of_no_rows(self) -> Any:
        """The result for the state of a group without rows."""
        assert self.function is not None
        return UserAccumulator(self.function).of_no_rows()

    def own_accumulator(self, schema: pa.Schema) -> Accumulator:
        """Return the accumulator, which holds the states."""
        assert self.function is not None
        return UserAccumulator(self.function)

    def __str__(self) -> str:
        where = [] if self.where is None else [f"where={self.where_text!r}"]
        return f"{type(self.function).__name__}({', '.join([*map(repr, self.columns), *where])})"


class UserAccumulator(Accumulator):
    """The accumulator of a user's aggregate: a log of states, and the position of each slot's state in it."""

    def __init__(self, function: AggregateFunction) -> None:
        self._function = function
        self._log = RowLog([field.type for field in function.state])
        self._positions = Growable(np.int64, -1)
        self._picker = OneRowPerSlot()
        self._numbers = Growable(np.int64)

    @property
    def nbytes(self) -> int:
        return self._log.nbytes + self._positions.nbytes + self._picker.nbytes + self._numbers.nbytes

    def update(self, size: int, slots: Int64s, column: pa.Array | None, times: Int64s | None) -> None:
        assert column is not None
        self._positions.resize(size)
        if not len(slots):
            return
        touched, groups = self._grouped(slots)
        values = pa.RecordBatch.from_arrays(column.flatten(), [field.name for field in column.type])
        accumulate = self._function.accumulate
        added = call_user(accumulate, values, groups, len(touched))
        self._put(touched, self._checked(accumulate, added, len(touched)))

    def _grouped(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """Return the different slots, and for each row the index of its slot among them."""
        size = len(self._positions)
        touched = slots.take(self._picker.pick(slots, size))
        self._numbers.resize(max(len(self._numbers), size))
        self._numbers.values[touched] = np.arange(len(touched))
        return touched, self._numbers.values.take(slots)

    def _put(self, slots: Int64s, states: pa.RecordBatch) -> None:
        """Merge states into these slots, which are all different."""
        positions = self._positions.values.take(slots)
        held, fresh = np.flatnonzero(positions >= 0), np.flatnonzero(positions < 0)
        if len(held):
            others = states.take(as_arrow(held))
            merged = call_user(self._function.merge, self._states(positions.take(held)), others)
            self._append(slots.take(held), self._checked(self._function.merge, merged, len(held)))
        if len(fresh):
            self._append(slots.take(fresh), states.take(as_arrow(fresh)))
        if len(self._log) > 2 * len(self._positions) + _SLACK:
            self._compact()

    def _append(self, slots: Int64s, states: pa.RecordBatch) -> None:
        begin = self._log.append(states.columns, np.arange(len(slots)))
        self._positions.values[slots] = np.arange(begin, begin + len(slots))

    def _states(self, positions: Int64s) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._log.take(positions), schema=self._function.state)

    def _of(self, slots: Int64s) -> pa.RecordBatch:
        """Return the states of these slots, also of those without a row."""
        positions = self._positions.values.take(slots)
        empty = np.flatnonzero(positions < 0)
        if not len(empty):
            return self._states(positions)
        create = self._function.create
        created = self._checked(create, call_user(create, len(empty)), len(empty))
        there = np.flatnonzero(positions >= 0)
        both = pa.Table.from_batches([self._states(positions.take(there)), created], self._function.state)
        order = np.empty(len(slots), np.int64)
        order[np.concatenate([there, empty])] = np.arange(len(slots))
        columns = [column.combine_chunks() for column in both.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._function.state).take(as_arrow(order))

    def absorb(self, size: int, slots: Int64s, other: Self, others: Int64s) -> None:
        self._positions.resize(size)
        positions = other._positions.values.take(others)
        filled = np.flatnonzero(positions >= 0)
        # Read before the first `_put`: if `other` is this accumulator, that may move all states.
        slots, states = slots.take(filled), other._states(positions.take(filled))
        while len(slots):  # several `others` may go to one slot: each round merges one into each slot
            chosen = self._picker.pick(slots, size)
            self._put(slots.take(chosen), states.take(as_arrow(chosen)))
            left = np.ones(len(slots), np.bool_)
            left[chosen] = False
            slots, states = slots[left], states.filter(as_arrow(left))

    def of_no_rows(self) -> Any:
        """Return the result for a group without rows."""
        self._positions.resize(1)
        return self.result(np.zeros(1, np.int64))[0].as_py()

    def result(self, slots: Int64s) -> pa.Array:
        result, kind = self._function.result, self._function.type
        found = _column(result, call_user(result, self._of(slots)), kind)
        if len(found) != len(slots):
            raise UserFunctionError(
                f"{function_name(result)} returned {len(found)} results for {len(slots)} states; return one for each"
            )
        return found

    def keep(self, slots: Int64s) -> None:
        self._positions.replace(self._positions.values.take(slots))
        self._compact()

    def _compact(self) -> None:
        """Remove from the log the states that no slot has."""
        held = np.flatnonzero(self._positions.values >= 0)
        self._log.keep(self._positions.values.take(held))
        positions = np.full(len(self._positions), -1)
        positions[held] = np.arange(len(held))
        self._positions.replace(positions)

    def columns(self, slots: Int64s) -> list[pa.Array]:
        return [as_arrow(self._positions.values.take(slots) >= 0), *self._snapshot(slots)]

    def _snapshot(self, slots: Int64s) -> list[pa.Array]:
        """Return the columns of the states, null for slots without a row. No user's function is called."""
        positions = self._positions.values.take(slots)
        there = np.flatnonzero(positions >= 0)
        places = np.full(len(slots), -1)
        places[there] = np.arange(len(there))
        return [column.take(as_arrow(places, nulls=places < 0)) for column in self._log.take(positions.take(there))]

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._positions.resize(size)
        there = np.flatnonzero(columns[0].to_numpy(zero_copy_only=False))
        states = pa.RecordBatch.from_arrays(list(columns[1:]), schema=self._function.state)
        self._append(slots.take(there), states.take(as_arrow(there)))

    def frozen(self) -> Self:
        return frozen(self)

    def _checked(self, function: Any, states: Any, count: int) -> pa.RecordBatch:
        """Return, as a batch, what a user's function returned for `count` states. Raises UserFunctionError if it does
        not fit."""
        schema, name = self._function.state, function_name(function)
        if not isinstance(states, pa.RecordBatch | Mapping):
            raise UserFunctionError(
                f"{name} returned {type(states).__name__}; return a dict of arrays, or a RecordBatch"
            )
        names = states.schema.names if isinstance(states, pa.RecordBatch) else list(states)
        if sorted(names) != sorted(schema.names):
            raise UserFunctionError(f"{name} returned the columns {names}; the state has {schema.names}")
        columns = [_column(function, states[field.name], field.type) for field in schema]
        if any(len(column) != count for column in columns):
            lengths = ", ".join(str(len(column)) for column in columns)
            raise UserFunctionError(f"{name} returned columns of {lengths} rows; there are {count} groups")
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(function: Any, values: Any, kind: pa.DataType) -> pa.Array:
    """Convert a column that a user's function returned to an Arrow array of this type. Raises UserFunctionError."""
    try:
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=False)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return column if column.type == kind else column.cast(kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserFunctionError(
            f"{function_name(function)} returned {type(values).__name__}, which is no column of {kind}: {error}"
        ) from None
