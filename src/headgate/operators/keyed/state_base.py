"""`State`: the base of value, list and map state.

A state holds a dict of cells, by the slot of the key. With a `ttl` it also holds the processing time at which each
value was written. An expired value is never returned, and is removed soon.
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
#: The column of a state's table with the time at which each value was written; null in a state without `ttl`.
WRITTEN: Final = "written"
_NO_KEY = -1

Cell = TypeVar("Cell")
Times = TypeVar("Times")


class Current:
    """The current key's slot, and the processing time in microseconds. A function's states and context share it."""

    __slots__ = ("now", "slot")

    def __init__(self) -> None:
        self.slot = _NO_KEY
        self.now = 0

    def leave(self) -> None:
        """Note that there is no current key."""
        self.slot = _NO_KEY


class State(OtherNames, ABC, Generic[Cell, Times]):
    """The base of all states. `Cell` is what one key holds, `Times` are the times at which that was written."""

    _word: str

    def __init__(self, ttl: Duration | None, name: str | None) -> None:
        self.name = name or ""
        self._ttl = None if ttl is None else _positive(self._what, ttl)
        self._cells: dict[int, Cell] = {}
        self._times: dict[int, Times] = {}
        self._expiry: Expiry | None = None
        self._at = Current()
        #: The slots whose cells no snapshot shares; None before the first snapshot: all of them.
        self._owned: set[int] | None = None
        self.nbytes = 0

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    @property
    def _what(self) -> str:
        return f"{self._word} state {self.name!r}" if self.name else f"a {self._word} state"

    # --- for the operator

    def bound(self, name: str, at: Current) -> Self:
        """Return an empty copy for one subtask. `name` is the attribute's."""
        state = copy.copy(self)
        state.name = self.name or name
        state._cells, state._times, state._at = {}, {}, at
        state._expiry = None if self._ttl is None else Expiry(self._ttl)
        state._bind()
        return state

    @property
    def table(self) -> str:
        """The name of the state's table in a snapshot."""
        return self._what

    @property
    def slots(self) -> Int64s:
        """The slots of the keys that hold something."""
        return np.fromiter(self._cells, np.int64, len(self._cells))

    @property
    def next_expiry(self) -> int | None:
        """When to call `expire`, in microseconds of processing time; None for never."""
        return None if self._expiry is None else self._expiry.next

    def expire(self, now: int) -> None:
        """Remove expired values; not always all of them in one call."""
        if self._expiry is not None:
            for slot in self._expiry.take_due(now):
                oldest = self._prune(slot, now) if slot in self._times else None
                if oldest is not None:
                    self._expiry.watch(slot, oldest)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Change the keys' slots to their new `numbers`, by old slot."""
        self._cells = {numbers[slot]: cell for slot, cell in self._cells.items()}
        self._times = {numbers[slot]: times for slot, times in self._times.items()}
        if self._owned is not None:
            self._owned = {numbers[slot] for slot in self._owned if slot in numbers}
        if self._expiry is not None:
            self._expiry.renumber(numbers)

    def frozen(self) -> Self:
        """Return a copy for a snapshot, which later changes of this state do not change."""
        reader = copy.copy(self)
        reader._cells, reader._times = self._cells.copy(), self._times.copy()
        self._owned = set()
        return reader

    @abstractmethod
    def _bind(self) -> None:
        """Make the parts that need the state's name, which is known now."""

    @abstractmethod
    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        """Return the cells of these slots for a snapshot: the slot of each row, and the columns, WRITTEN last.

        Each of the slots has a cell.
        """

    @abstractmethod
    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        """Restore columns that `columns` returned for other keys. Values without a time of writing get `now`."""

    @abstractmethod
    def _prune(self, slot: int, now: int) -> int | None:
        """Remove one key's expired values. Returns when the oldest remaining one was written; None if none remains."""

    def last_written(self, columns: Mapping[str, pa.Array]) -> int:
        """Return the latest time of writing in columns that `columns` returned; 0 without one."""
        written = columns[WRITTEN]
        return pc.max(written.flatten() if pa.types.is_large_list(written.type) else written).as_py() or 0

    # --- for the subclasses

    def _for_writing(self) -> int:
        slot = self._at.slot
        if slot == _NO_KEY:
            raise RuntimeError(
                f"{self._what} is of a key, and there is none now: use it in process, process_element and on_timer"
            )
        return slot

    def _make_own(self, slot: int) -> None:
        """Copy a key's cell before a change, if the last snapshot shares it."""
        if self._owned is not None and slot not in self._owned:
            self._owned.add(slot)
            if slot in self._cells:
                self._cells[slot] = copy.copy(self._cells[slot])
            if slot in self._times:
                self._times[slot] = copy.copy(self._times[slot])

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


def declared_states(function: object) -> dict[str, State[Any, Any]]:
    """Return the states among a function's attributes, by attribute. Raises PlanError when two have the same name."""
    states: dict[str, State[Any, Any]] = {}
    for attributes in (*(vars(base) for base in reversed(type(function).__mro__)), vars(function)):
        for attribute, value in attributes.items():
            states.pop(attribute, None)
            if isinstance(value, State):
                states[attribute] = value
    names: dict[str, str] = {}
    for attribute, state in states.items():
        name = state.name or attribute
        if names.setdefault(name, attribute) != attribute:
            raise PlanError(f"{type(function).__name__}: {names[name]} and {attribute} are both state {name!r}")
    return states
