"""Value, list and map state of a `KeyedProcessFunction`: what it keeps for the key that it is called for.

A state is declared as an attribute of the function; each subtask binds a copy of its own. What is kept lies in a dict
by the key's slot. With a `ttl` it is also known when each value was written (processing time): a value that is older is
never seen, and soon forgotten.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import ConfigError, PlanError, UserFunctionError
from headgate.operators.expiry import Expiry
from headgate.operators.state_values import StoredKeys, StoredValues
from headgate.quantities import microseconds
from headgate.records.canonical import Int64s, flat_ranges

Duration = float | str | timedelta
#: Column of a state's table: when each value was written, or nothing in a state without `ttl`.
WRITTEN: Final = "written"
#: About what Python takes for an entry of a dict, and of a list, beside the value.
_PER_KEY, _PER_ELEMENT = 100, 8
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


class State(ABC, Generic[Cell, Times]):
    """Base of all states; `Cell` is what one key has, `Times` when it was written."""

    _word: str

    def __init__(self, ttl: Duration | None, name: str | None) -> None:
        self.name = name or ""
        self._ttl = None if ttl is None else _positive(self._what, ttl)
        self._cells: dict[int, Cell] = {}
        self._times: dict[int, Times] = {}
        self._expiry: Expiry | None = None
        self._at = Current()
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
            for slot in self._expiry.due(now):
                oldest = self._prune(slot, now) if slot in self._times else None
                if oldest is not None:
                    self._expiry.watch(slot, oldest)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Keys have other slots from now on."""
        self._cells = {numbers[slot]: cell for slot, cell in self._cells.items()}
        self._times = {numbers[slot]: times for slot, times in self._times.items()}
        if self._expiry is not None:
            self._expiry.renumber(numbers)

    def frozen(self) -> Self:
        """A copy for a snapshot: what changes later does not change it."""
        mine = copy.copy(self)
        mine._cells, mine._times = self._copies()
        return mine

    @abstractmethod
    def _bind(self) -> None:
        """The name is known: make what needs it."""

    @abstractmethod
    def _copies(self) -> tuple[dict[int, Cell], dict[int, Times]]: ...

    @abstractmethod
    def columns(self) -> tuple[Int64s, dict[str, pa.Array]]:
        """All that is held: the key's slot of each row, and columns, the last of them WRITTEN."""

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
            raise UserFunctionError(
                f"{self._what} is of a key, and there is none now: use it in process, process_element and on_timer"
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
        return pa.array(np.fromiter(chain.from_iterable(lists), np.int64, rows))


class ValueState(State[Any, int]):
    """One value for each key, such as `count = hg.ValueState(pa.int64(), ttl="1 h")`.

    Declared as an attribute of a `KeyedProcessFunction`; the attribute's name is the state's, unless `name` is given.
    """

    _word = "value"

    def __init__(self, type: pa.DataType, *, ttl: Duration | None = None, name: str | None = None) -> None:
        super().__init__(ttl, name)
        self._type = type
        self._values = StoredValues(type, self._what)

    def value(self, default: Any = None) -> Any:
        """This key's value; `default` where there is none."""
        slot = self._at.slot
        stored = self._cells.get(slot)
        if stored is None or (self._ttl is not None and self._is_old(self._times[slot])):
            return default
        return self._values.read(stored)

    def update(self, value: Any) -> None:
        """Keep this value; None keeps none. Raises UserFunctionError for a value that is not of the type."""
        slot = self._for_writing()
        if value is None:
            self._remove(slot)
            return
        stored = self._values.check(value)
        before = self._cells.get(slot)
        self.nbytes += self._values.size(stored) - (-_PER_KEY if before is None else self._values.size(before))
        self._cells[slot] = stored
        if self._ttl is not None:
            self._times[slot] = self._at.now
            self._watch(slot, self._at.now)

    def clear(self) -> None:
        self._remove(self._for_writing())

    def _remove(self, slot: int) -> None:
        stored = self._cells.pop(slot, None)
        if stored is not None:
            self.nbytes -= self._values.size(stored) + _PER_KEY
            self._times.pop(slot, None)

    def _bind(self) -> None:
        self._values = StoredValues(self._type, self._what)

    def _copies(self) -> tuple[dict[int, Any], dict[int, int]]:
        return self._cells.copy(), self._times.copy()

    def columns(self) -> tuple[Int64s, dict[str, pa.Array]]:
        written = self._written([self._times.values()], len(self._cells))
        return self.slots, {"value": self._values.column(list(self._cells.values())), WRITTEN: written}

    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        cells = dict(zip(slots.tolist(), self._values.of_column(columns["value"]), strict=True))
        self._cells |= cells
        self.nbytes += sum(map(self._values.size, cells.values())) + _PER_KEY * len(cells)
        if self._ttl is not None:
            for slot, written in zip(cells, _times(columns[WRITTEN], now), strict=True):
                self._times[slot] = written
                self._watch(slot, written)

    def _prune(self, slot: int, now: int) -> int | None:
        assert self._ttl is not None
        written = self._times[slot]
        if written + self._ttl > now:
            return written
        self._remove(slot)
        return None


class ListState(State[list[Any], list[int]]):
    """A list for each key, such as `seen = hg.ListState(pa.float64())`; with `ttl` each element grows old by itself.

    Declared as an attribute of a `KeyedProcessFunction`; the attribute's name is the state's, unless `name` is given.
    """

    _word = "list"

    def __init__(self, type: pa.DataType, *, ttl: Duration | None = None, name: str | None = None) -> None:
        super().__init__(ttl, name)
        self._type = type
        self._values = StoredValues(type, self._what)

    def get(self) -> list[Any]:
        """This key's elements, in the order in which they were added; a list of the caller's own."""
        slot = self._at.slot
        if self._ttl is not None and slot in self._times:
            self._prune(slot, self._at.now)
        return [self._values.read(stored) for stored in self._cells.get(slot, ())]

    def add(self, value: Any) -> None:
        """One more at the end. Raises UserFunctionError for a value that is not of the type."""
        self._append(self._for_writing(), [self._values.check(value)])

    def add_all(self, values: Iterable[Any]) -> None:
        """All of them at the end, or none if one is not of the type."""
        self._append(self._for_writing(), [self._values.check(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        """These in place of what is there."""
        slot, checked = self._for_writing(), [self._values.check(value) for value in values]
        self._remove(slot)
        self._append(slot, checked)

    def clear(self) -> None:
        self._remove(self._for_writing())

    def _append(self, slot: int, stored: list[Any]) -> None:
        self._extend(slot, stored, [self._at.now] * len(stored) if self._ttl is not None else [])

    def _extend(self, slot: int, stored: list[Any], written: list[int]) -> None:
        if not stored:
            return
        cell = self._cells.get(slot)
        if cell is None:
            cell = self._cells[slot] = []
            self.nbytes += _PER_KEY
        cell += stored
        self.nbytes += self._size(stored)
        if self._ttl is not None:
            self._times.setdefault(slot, []).extend(written)
            self._watch(slot, written[0])

    def _size(self, stored: list[Any]) -> int:
        return sum(map(self._values.size, stored)) + len(stored) * _PER_ELEMENT

    def _remove(self, slot: int) -> None:
        cell = self._cells.pop(slot, None)
        if cell is not None:
            self.nbytes -= self._size(cell) + _PER_KEY
            self._times.pop(slot, None)

    def _bind(self) -> None:
        self._values = StoredValues(self._type, self._what)

    def _copies(self) -> tuple[dict[int, list[Any]], dict[int, list[int]]]:
        cells = dict(zip(self._cells, map(list, self._cells.values()), strict=True))
        return cells, dict(zip(self._times, map(list, self._times.values()), strict=True))

    def columns(self) -> tuple[Int64s, dict[str, pa.Array]]:
        counts = np.fromiter(map(len, self._cells.values()), np.int64, len(self._cells))
        values = self._values.column(list(chain.from_iterable(self._cells.values())))
        written = self._written(self._times.values(), len(values))
        _, begins = flat_ranges(np.zeros(len(counts), np.int64), counts)
        columns = {"values": values, WRITTEN: written}
        return self.slots, {
            name: pa.LargeListArray.from_arrays(pa.array(begins), each) for name, each in columns.items()
        }

    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        values = iter(self._values.of_column(columns["values"].flatten()))
        written = iter(_times(columns[WRITTEN].flatten(), now))
        for slot, count in zip(slots.tolist(), columns["values"].value_lengths().to_pylist(), strict=True):
            times = [next(written) for _ in range(count)]
            self._extend(slot, [next(values) for _ in range(count)], times)

    def _prune(self, slot: int, now: int) -> int | None:
        assert self._ttl is not None
        times, cell = self._times[slot], self._cells[slot]
        old = next((place for place, written in enumerate(times) if written + self._ttl > now), len(times))
        if old == len(times):
            self._remove(slot)
            return None
        self.nbytes -= self._size(cell[:old])
        del cell[:old], times[:old]
        return times[0]


class MapState(State[dict[Any, Any], dict[Any, int]]):
    """A map for each key, such as `seats = hg.MapState(pa.string(), pa.int64())`; with `ttl` each entry grows old by
    itself. Keys of the map are numbers, times, booleans, strings or binaries.

    Declared as an attribute of a `KeyedProcessFunction`; the attribute's name is the state's, unless `name` is given.
    """

    _word = "map"

    def __init__(
        self, key_type: pa.DataType, type: pa.DataType, *, ttl: Duration | None = None, name: str | None = None
    ) -> None:
        super().__init__(ttl, name)
        self._key_type, self._type = key_type, type
        self._bind()

    def get(self, key: Any, default: Any = None) -> Any:
        """The value under `key`; `default` where there is none."""
        stored = self._fresh().get(self._keys.check(key))
        return default if stored is None else self._values.read(stored)

    def put(self, key: Any, value: Any) -> None:
        """Keep a value under `key`. Raises UserFunctionError for what is not of the types."""
        self._put(self._for_writing(), self._keys.check(key), self._values.check(value), self._at.now)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """All of them, or none if one is not of the types."""
        slot = self._for_writing()
        checked = [(self._keys.check(key), self._values.check(value)) for key, value in entries.items()]
        for key, stored in checked:
            self._put(slot, key, stored, self._at.now)

    def remove(self, key: Any) -> None:
        """Also when it is not there."""
        self._drop(self._for_writing(), self._keys.check(key))

    def contains(self, key: Any) -> bool:
        return self._keys.check(key) in self._fresh()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Entries as they are now; the map may be changed meanwhile."""
        return iter([(key, self._values.read(stored)) for key, stored in self._fresh().items()])

    def keys(self) -> Iterator[Any]:
        return iter(list(self._fresh()))

    def values(self) -> Iterator[Any]:
        return iter([self._values.read(stored) for stored in self._fresh().values()])

    def is_empty(self) -> bool:
        return not self._fresh()

    def clear(self) -> None:
        slot = self._for_writing()
        for key in list(self._cells.get(slot, ())):
            self._drop(slot, key)

    def _fresh(self) -> dict[Any, Any]:
        """This key's entries, none of them too old."""
        slot = self._at.slot
        if self._ttl is not None and slot in self._times and self._may_be_old(slot):
            self._prune(slot, self._at.now)
        return self._cells.get(slot, {})

    def _may_be_old(self, slot: int) -> bool:
        """The times stand in the order of writing, so that the first says it for all."""
        return self._is_old(next(iter(self._times[slot].values())))

    def _put(self, slot: int, key: Any, stored: Any, written: int) -> None:
        cell = self._cells.get(slot)
        if cell is None:
            cell = self._cells[slot] = {}
            self.nbytes += _PER_KEY
        before = cell.get(key)
        if before is not None:
            self.nbytes -= self._size(key, before)
        self.nbytes += self._size(key, stored)
        cell[key] = stored
        if self._ttl is not None:
            times = self._times.setdefault(slot, {})
            times.pop(key, None)  # to stand at the end
            times[key] = written
            self._watch(slot, written)

    def _drop(self, slot: int, key: Any) -> None:
        cell = self._cells.get(slot)
        if cell is None or key not in cell:
            return
        self.nbytes -= self._size(key, cell.pop(key))
        if self._ttl is not None:
            del self._times[slot][key]
        if not cell:
            del self._cells[slot]
            self._times.pop(slot, None)
            self.nbytes -= _PER_KEY

    def _size(self, key: Any, stored: Any) -> int:
        return self._keys.size(key) + self._values.size(stored) + _PER_KEY

    def _bind(self) -> None:
        self._keys = StoredKeys(self._key_type, f"{self._what}, key")
        self._values = StoredValues(self._type, self._what)

    def _copies(self) -> tuple[dict[int, dict[Any, Any]], dict[int, dict[Any, int]]]:
        cells = dict(zip(self._cells, map(dict, self._cells.values()), strict=True))
        return cells, dict(zip(self._times, map(dict, self._times.values()), strict=True))

    def columns(self) -> tuple[Int64s, dict[str, pa.Array]]:
        counts = np.fromiter(map(len, self._cells.values()), np.int64, len(self._cells))
        # With `ttl` in the order of the times, which is that of writing.
        orders = self._cells if self._ttl is None else self._times
        keys = [key for slot in self._cells for key in orders[slot]]
        values = [cell[key] for slot, cell in self._cells.items() for key in orders[slot]]
        columns = {
            "map key": self._keys.column(keys),
            "value": self._values.column(values),
            WRITTEN: self._written((self._times[slot].values() for slot in self._times), len(keys)),
        }
        return np.repeat(self.slots, counts), columns

    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        keys, values = self._keys.of_column(columns["map key"]), self._values.of_column(columns["value"])
        written = _times(columns[WRITTEN], now)
        for at, slot in enumerate(slots.tolist()):
            self._put(slot, keys[at], values[at], written[at])

    def _prune(self, slot: int, now: int) -> int | None:
        assert self._ttl is not None
        times = self._times[slot]
        while times:
            key, written = next(iter(times.items()))
            if written + self._ttl > now:
                return written
            self._drop(slot, key)
        return None


def _times(column: pa.Array, now: int) -> list[int]:
    times: list[int] = column.fill_null(now).to_pylist()
    return times


def _positive(what: str, ttl: Duration) -> int:
    try:
        found = microseconds(ttl)
    except (ConfigError, OverflowError, ValueError) as error:
        raise PlanError(f"{what}: ttl: {getattr(error, 'message', error)}") from None
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
