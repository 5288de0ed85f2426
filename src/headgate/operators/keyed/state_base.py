"""What value, list and map states have in common: whose they are, when what they hold ends, how it is found.

What is kept lies in a dict by the key's slot. With a `ttl` it is also known when each value was written (processing
time): a value that is older is never seen, and soon forgotten.
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
#: Column of a state's table: when each value was written, or nothing in a state without `ttl`.
WRITTEN: Final = "written"
_NO_KEY = -1

Cell = TypeVar("Cell")
Times = TypeVar("Times")


class Current:
    """Whom the function is called for now: the key's slot, and the processing time in microseconds."""

    __slots__ = ("now", "slot")

    def __init__(self) -> None:
        self.slot = _NO_KEY
        self.now = 0

    def leave(self) -> None:
        """It is not called for any key."""
        self.slot = _NO_KEY


class State(OtherNames, ABC, Generic[Cell, Times]):
    """Base of all states; `Cell` is what one key has, `Times` when it was written."""

    _word: str

    def __init__(self, ttl: Duration | None, name: str | None) -> None:
        self.name = name or ""
        self._ttl = None if ttl is None else _positive(self._what, ttl)
        self._cells: dict[int, Cell] = {}
        self._times: dict[int, Times] = {}
        self._expiry: Expiry | None = None
        self._at = Current()
        #: Slots whose cells no snapshot has; None: all of them, there was none.
        self._owned: set[int] | None = None
        self.nbytes = 0

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    @property
    def _what(self) -> str:
        return f"{self._word} state {self.name!r}" if self.name else f"a {self._word} state"

    # --- of the operator

    def bound(self, name: str, at: Current) -> Self:
        """A state of its own for one subtask, empty; `name` is the attribute's."""
        mine = copy.copy(self)
        mine.name = self.name or name
        mine._cells, mine._times, mine._at = {}, {}, at
        mine._expiry = None if self._ttl is None else Expiry(self._ttl)
        mine._bind()
        return mine

    @property
    def table(self) -> str:
        """What its table is called in a snapshot."""
        return self._what

    @property
    def slots(self) -> Int64s:
        """Keys that have something."""
        return np.fromiter(self._cells, np.int64, len(self._cells))

    @property
    def next_expiry(self) -> int | None:
        """When to call `expire`, in microseconds of processing time."""
        return None if self._expiry is None else self._expiry.next

    def expire(self, now: int) -> None:
        """Forget values that are too old; not always all at once."""
        if self._expiry is not None:
            for slot in self._expiry.take_due(now):
                oldest = self._prune(slot, now) if slot in self._times else None
                if oldest is not None:
                    self._expiry.watch(slot, oldest)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Keys have other slots from now on."""
        self._cells = {numbers[slot]: cell for slot, cell in self._cells.items()}
        self._times = {numbers[slot]: times for slot, times in self._times.items()}
        if self._owned is not None:
            self._owned = {numbers[slot] for slot in self._owned if slot in numbers}
        if self._expiry is not None:
            self._expiry.renumber(numbers)

    def frozen(self) -> Self:
        """A copy for a snapshot: what changes later does not change it."""
        mine = copy.copy(self)
        mine._cells, mine._times = self._cells.copy(), self._times.copy()
        self._owned = set()
        return mine

    @abstractmethod
    def _bind(self) -> None:
        """The name is known: make what needs it."""

    @abstractmethod
    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        """What is held for these keys, all of which have something: the slot of each row, and columns, the last of them
        WRITTEN."""

    @abstractmethod
    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        """Take what `columns` has returned for other keys. Without times of writing it was written `now`."""

    @abstractmethod
    def _prune(self, slot: int, now: int) -> int | None:
        """Forget what is too old of one key; returns when the oldest of what is left was written."""

    def last_written(self, columns: Mapping[str, pa.Array]) -> int:
        """The latest time in such columns."""
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
        """What this key has is about to change: leave what it had to the last snapshot."""
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
        found = microseconds(ttl)
    except ConfigError as error:
        raise PlanError(f"{what}: ttl: {error.message}") from None
    if found <= 0:
        raise PlanError(f"{what}: ttl={ttl!r} is impossible: it must be above 0")
    return found


def declared_states(function: object) -> dict[str, State[Any, Any]]:
    """The states among a function's attributes, by the attributes' names. Raises PlanError when two have one name."""
    found: dict[str, State[Any, Any]] = {}
    for attributes in (*(vars(base) for base in reversed(type(function).__mro__)), vars(function)):
        for attribute, value in attributes.items():
            found.pop(attribute, None)
            if isinstance(value, State):
                found[attribute] = value
    names: dict[str, str] = {}
    for attribute, state in found.items():
        name = state.name or attribute
        if names.setdefault(name, attribute) != attribute:
            raise PlanError(f"{type(function).__name__}: {names[name]} and {attribute} are both state {name!r}")
    return found
