"""`KeyedState`: the base class of all states; and `State`: the base class of value, list and map state.

A `State` holds a dict of cells by slot. With a `ttl`, the state also holds the processing time at which each value was
written. The state never returns an expired value, and removes it soon.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import ConfigError, PlanError
from headgate.operators.keyed.expiry import Expiry
from headgate.other_names import OtherNames
from headgate.quantities import microseconds
from headgate.records.canonical import Int64s, as_arrow

Duration = float | str | timedelta
#: The column of a state's table with the time at which each value was written. Without `ttl`, the column is null.
WRITTEN: Final = "written"
_NO_KEY = -1

Cell = TypeVar("Cell")
Times = TypeVar("Times")


class Current:
    """The current key's slot, and the processing time in microseconds. The states and the context of a function share
    this object."""

    __slots__ = ("now", "slot")

    def __init__(self) -> None:
        self.slot = _NO_KEY
        self.now = 0

    def leave(self) -> None:
        """Record that there is no current key."""
        self.slot = _NO_KEY


class KeyedState(OtherNames, ABC):
    """The base class of everything that a function declares as state. A slot is the number of a stream's key."""

    _word: str

    def __init__(self, ttl: Duration | None, name: str | None) -> None:
        self.name = name or ""
        self._ttl = None if ttl is None else _positive(self._what, ttl)
        self._at = Current()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    @property
    def _what(self) -> str:
        return f"{self._word} state {self.name!r}" if self.name else f"a {self._word} state"

    def bound(self, name: str, at: Current) -> Self:
        """Return an empty copy of the state for one subtask. `name` is the name of the attribute."""
        state = copy.copy(self)
        state.name = self.name or name
        state._at = at
        state._bind()
        return state

    @property
    def table(self) -> str:
        """The name of the state's table in a snapshot."""
        return self._what

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the state in bytes."""

    @property
    @abstractmethod
    def slots(self) -> Int64s:
        """The slots of the keys that have state."""

    @abstractmethod
    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Renumber the keys' slots: `numbers` gives the new slot of each old slot that stays, in ascending order."""

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Later changes of this state do not change the copy."""
        return copy.copy(self)

    @abstractmethod
    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        """Return the state of these slots for a snapshot: the slot of each row, and the columns. The last column is
        WRITTEN.

        Each of the slots has state.
        """

    @abstractmethod
    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        """Restore columns that `columns` returned. A value without a time of writing gets the time `now`."""

    def last_written(self, columns: Mapping[str, pa.Array]) -> int:
        """Return the latest time of writing in columns that `columns` returned, or 0 if they have no such time."""
        written = columns[WRITTEN]
        return pc.max(written.flatten() if pa.types.is_large_list(written.type) else written).as_py() or 0

    @abstractmethod
    def _bind(self) -> None:
        """Make the parts of an empty state. Its name is known when this method is called."""


class State(KeyedState, Generic[Cell, Times]):
    """The base class of states that a function reads and writes for one key at a time.

    `Cell` is the content of one key; `Times` are the times at which its values were written.
    """

    nbytes: int = 0

    def __init__(self, ttl: Duration | None, name: str | None) -> None:
        super().__init__(ttl, name)
        self._cells: dict[int, Cell] = {}
        self._times: dict[int, Times] = {}
        self._expiry: Expiry | None = None

    def _bind(self) -> None:
        self._cells, self._times, self.nbytes = {}, {}, 0
        self._expiry = None if self._ttl is None else Expiry(self._ttl)

    @property
    def slots(self) -> Int64s:
        """The slots of the keys that have a cell."""
        return np.fromiter(self._cells, np.int64, len(self._cells))

    @property
    def next_expiry(self) -> int | None:
        """The processing time, in microseconds, at which to call `expire`. None means never."""
        return None if self._expiry is None else self._expiry.next

    def expire(self, now: int) -> None:
        """Remove expired values. One call may leave some of them for the next call."""
        if self._expiry is not None:
            for slot in self._expiry.take_due(now):
                oldest = self._prune(slot, now) if slot in self._times else None
                if oldest is not None:
                    self._expiry.watch(slot, oldest)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Renumber the keys' slots: `numbers` gives the new slot of each old slot."""
        self._cells = {numbers[slot]: cell for slot, cell in self._cells.items()}
        self._times = {numbers[slot]: times for slot, times in self._times.items()}
        if self._expiry is not None:
            self._expiry.renumber(numbers)

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Later changes of this state do not change the copy."""
        reader = super().frozen()
        reader._cells, reader._times = self._cells.copy(), self._times.copy()
        return reader

    @abstractmethod
    def _prune(self, slot: int, now: int) -> int | None:
        """Remove one key's expired values. Returns the time at which the oldest remaining value was written, or None if
        no value remains."""

    # --- for the subclasses

    def _for_writing(self) -> int:
        slot = self._at.slot
        if slot == _NO_KEY:
            raise RuntimeError(
                f"{self._what} needs a current key, and there is none: use it in process, process_element and on_timer"
            )
        return slot

    def _watch(self, slot: int, written: int) -> None:
        assert self._expiry is not None
        self._expiry.watch(slot, written)

    def _is_old(self, written: int) -> bool:
        assert self._ttl is not None
        return written + self._ttl <= self._at.now

    def _written(self, lists: Iterable[Iterable[int]], rows: int) -> pa.Array:
        if self._ttl is None:
            return pa.nulls(rows, pa.int64())
        return as_arrow(np.fromiter(chain.from_iterable(lists), np.int64, rows))


def _positive(what: str, ttl: Duration) -> int:
    try:
        length = microseconds(ttl)
    except ConfigError as error:
        raise PlanError(f"{what}: ttl: {error.message}") from None
    if length <= 0:
        raise PlanError(f"{what}: ttl={ttl!r} is impossible: it must be above 0")
    return length


def declared_states(function: object, kind: type) -> dict[str, Any]:
    """Return the states among a function's attributes, by the attribute's name.

    Raises PlanError if two states have the same name, or if a state is not of this kind.
    """
    states: dict[str, KeyedState] = {}
    for attributes in (*(vars(base) for base in reversed(type(function).__mro__)), vars(function)):
        for attribute, value in attributes.items():
            states.pop(attribute, None)
            if isinstance(value, KeyedState):
                states[attribute] = value
    names: dict[str, str] = {}
    for attribute, state in states.items():
        name = state.name or attribute
        if names.setdefault(name, attribute) != attribute:
            raise PlanError(f"{type(function).__name__}: {names[name]} and {attribute} are both named {name!r}")
        if not isinstance(state, kind):
            raise PlanError(
                f"{type(function).__name__}: {attribute} is a hg.{type(state).__name__}; a hg.KeyedProcessFunction has "
                "hg.ValueState, hg.ListState and hg.MapState, and a hg.KeyedBatchFunction has hg.ColumnState"
            )
    return states
