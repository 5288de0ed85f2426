"""Value, list and map state of a `KeyedProcessFunction`. Each method reads or changes the state of the current key.

The user declares a state as an attribute of the function. Each subtask makes a copy of its own. To add another kind of
state, subclass `State` and implement its abstract methods. `KeyedProcess` finds every attribute that is a `State`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from headgate.operators.keyed.state_base import WRITTEN, Duration, State
from headgate.operators.keyed.state_values import StoredKeys, StoredValues
from headgate.records.canonical import Int64s, as_arrow, flat_ranges

#: About how many bytes Python needs for an entry of a dict, and for an entry of a list, without the value.
_PER_KEY: Final = 100
_PER_ELEMENT: Final = 8


class ValueState(State[Any, int]):
    """A state of one value for each key, of an Arrow type.

    Declare it as an attribute of a `KeyedProcessFunction`. Without `name`, the state has the attribute's name. With
    `ttl`, a value expires this long after it was written, in processing time.

    ```python
    class Count(hg.KeyedProcessFunction):
        count = hg.ValueState(pa.int64(), ttl="1 h")

        def process(self, batch, ctx):
            self.count.update(self.count.value(0) + batch.num_rows)
            return {"shop": ctx.key[0], "rows": self.count.value()}
    ```
    """

    _word = "value"

    def __init__(self, type: pa.DataType, *, ttl: Duration | None = None, name: str | None = None) -> None:
        super().__init__(ttl, name)
        self._type = type
        self._values = StoredValues(type, self._what)

    def value(self, default: Any = None) -> Any:
        """Return the current key's value, or `default` if the key has no value."""
        slot = self._at.slot
        stored = self._cells.get(slot)
        if stored is None or (self._ttl is not None and self._is_old(self._times[slot])):
            return default
        return stored if self._values.is_plain else self._values.read(stored)

    def update(self, value: Any) -> None:
        """Set the current key's value. None removes the value. Raises TypeError for a value that does not fit the
        type."""
        slot = self._for_writing()
        if value is None:
            self._remove(slot)
            return
        stored, values = self._values.check(value), self._values
        before = self._cells.get(slot)
        if before is None:
            self.nbytes += values.size(stored) + _PER_KEY
        elif values.fixed_size is None:
            self.nbytes += values.size(stored) - values.size(before)
        self._cells[slot] = stored
        if self._ttl is not None:
            self._times[slot] = self._at.now
            self._watch(slot, self._at.now)

    def clear(self) -> None:
        """Remove the current key's value."""
        self._remove(self._for_writing())

    def _remove(self, slot: int) -> None:
        stored = self._cells.pop(slot, None)
        if stored is not None:
            self.nbytes -= self._values.size(stored) + _PER_KEY
            self._times.pop(slot, None)

    def _bind(self) -> None:
        super()._bind()
        self._values = StoredValues(self._type, self._what)

    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        values = self._values.column([self._cells[slot] for slot in slots])
        written = self._written([[self._times[slot]] for slot in slots] if self._times else [], len(slots))
        return np.array(slots, np.int64), {"value": values, WRITTEN: written}

    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        cells = dict(zip(slots.tolist(), self._values.of_column(columns["value"]), strict=True))
        self._cells |= cells
        self.nbytes += self._values.total_size(cells.values()) + _PER_KEY * len(cells)
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
    """A state of a list for each key; `type` is the Arrow type of its elements.

    Declare it as an attribute of a `KeyedProcessFunction`. Without `name`, the state has the attribute's name. With
    `ttl`, each element expires this long after it was written, in processing time.

    ```python
    class Prices(hg.KeyedProcessFunction):
        prices = hg.ListState(pa.float64(), ttl="1 h")

        def process_element(self, row, ctx):
            self.prices.add(row["price"])
            return {"shop": row["shop"], "highest": max(self.prices)}
    ```
    """

    _word = "list"

    def __init__(self, type: pa.DataType, *, ttl: Duration | None = None, name: str | None = None) -> None:
        super().__init__(ttl, name)
        self._type = type
        self._values = StoredValues(type, self._what)
        #: In a copy for a snapshot: how many elements of each list the snapshot has.
        self._lengths: Mapping[int, int] = {}

    def get(self) -> list[Any]:
        """Return a copy of the current key's list, in the order in which the function added the elements.

        To read the elements once, iterate over the state itself: this does not copy the list.
        """
        cell = self._fresh()
        return cell.copy() if self._values.is_plain else list(map(self._values.read, cell))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the elements that the current key's list has now, in the order in which they were added.

        The function may change the list during the iteration.
        """
        cell = self._fresh()
        elements = islice(cell, len(cell))
        return elements if self._values.is_plain else map(self._values.read, elements)

    def __len__(self) -> int:
        """Return the number of elements in the current key's list."""
        return len(self._fresh())

    def add(self, value: Any) -> None:
        """Append a value to the current key's list. Raises TypeError if the value does not fit the type."""
        self._append(self._for_writing(), [self._values.check(value)])

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all values to the current key's list. If one value does not fit the type, append none and raise
        TypeError."""
        self._append(self._for_writing(), [self._values.check(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        """Replace the current key's list. If a value does not fit the type, change nothing and raise TypeError."""
        slot, checked = self._for_writing(), [self._values.check(value) for value in values]
        self._remove(slot)
        self._append(slot, checked)

    def clear(self) -> None:
        """Remove the current key's list."""
        self._remove(self._for_writing())

    def _fresh(self) -> list[Any]:
        """Remove the expired elements of the current key's list, and return the list."""
        slot = self._at.slot
        if self._ttl is not None and slot in self._times:
            self._prune(slot, self._at.now)
        return self._cells.get(slot, [])

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
        return self._values.total_size(stored) + len(stored) * _PER_ELEMENT

    def _remove(self, slot: int) -> None:
        cell = self._cells.pop(slot, None)
        if cell is not None:
            self.nbytes -= self._size(cell) + _PER_KEY
            self._times.pop(slot, None)

    def frozen(self) -> Self:
        """Return a copy for a snapshot. It shares the lists, which only grow, and reads only their present length."""
        reader = super().frozen()
        reader._lengths = dict(zip(self._cells, map(len, self._cells.values()), strict=True))
        return reader

    def _bind(self) -> None:
        super()._bind()
        self._values = StoredValues(self._type, self._what)

    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        lengths = self._lengths
        cells = [self._cells[slot][: lengths.get(slot)] for slot in slots]
        times = [self._times[slot][: lengths.get(slot)] for slot in slots] if self._times else []
        values = self._values.column(list(chain.from_iterable(cells)))
        written = self._written(times, len(values))
        _, begins = flat_ranges(np.zeros(len(cells), np.int64), np.fromiter(map(len, cells), np.int64, len(cells)))
        columns = {"values": values, WRITTEN: written}
        return np.array(slots, np.int64), {
            name: pa.LargeListArray.from_arrays(as_arrow(begins), column) for name, column in columns.items()
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
        if old:  # an iterator or a snapshot may still read the old list
            self.nbytes -= self._size(cell[:old])
            self._cells[slot], self._times[slot] = cell[old:], times[old:]
        return times[old]


class MapState(State[dict[Any, Any], dict[Any, int]]):
    """A state of a map for each key, from values of `key_type` to values of `type`.

    The map's keys are numbers, times, booleans, strings or binaries. Declare the state as an attribute of a
    `KeyedProcessFunction`. Without `name`, the state has the attribute's name. With `ttl`, each entry expires this long
    after it was written, in processing time.

    ```python
    class Sold(hg.KeyedProcessFunction):
        sold = hg.MapState(pa.string(), pa.int64())

        def process_element(self, row, ctx):
            self.sold.put(row["item"], self.sold.get(row["item"], 0) + 1)
            return {"shop": row["shop"], "items": len(list(self.sold.keys()))}
    ```
    """

    _word = "map"

    def __init__(
        self, key_type: pa.DataType, type: pa.DataType, *, ttl: Duration | None = None, name: str | None = None
    ) -> None:
        super().__init__(ttl, name)
        self._key_type, self._type = key_type, type
        #: The slots whose maps no snapshot shares. None, before the first snapshot, means all slots.
        self._owned: set[int] | None = None
        self._bind()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of `key`, or `default` if the map does not contain it."""
        stored = self._fresh().get(self._keys.check(key))
        return default if stored is None else self._values.read(stored)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key` in the map. Raises TypeError if the key or the value does not fit its type."""
        self._put(self._for_writing(), self._keys.check(key), self._values.check(value), self._at.now)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set all entries in the map. If one entry does not fit the types, set none and raise TypeError."""
        slot = self._for_writing()
        checked = [(self._keys.check(key), self._values.check(value)) for key, value in entries.items()]
        for key, stored in checked:
            self._put(slot, key, stored, self._at.now)

    def remove(self, key: Any) -> None:
        """Remove `key` and its value. Do nothing if the map does not contain `key`."""
        self._drop(self._for_writing(), self._keys.check(key))

    def contains(self, key: Any) -> bool:
        """Return whether the map contains `key`."""
        return self._keys.check(key) in self._fresh()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries that the map has now. The function may change the map during the iteration."""
        keys, values = self._keys.read, self._values.read
        if self._is_plain:
            return self._reading(dict.items)
        return self._reading(lambda cell: ((keys(key), values(stored)) for key, stored in cell.items()))

    def keys(self) -> Iterator[Any]:
        """Iterate over the keys that the map has now. The function may change the map during the iteration."""
        return self._reading(iter if self._is_plain else partial(map, self._keys.read))

    def values(self) -> Iterator[Any]:
        """Iterate over the values that the map has now. The function may change the map during the iteration."""
        if self._is_plain:
            return self._reading(dict.values)
        return self._reading(lambda cell: map(self._values.read, cell.values()))

    def is_empty(self) -> bool:
        """Return whether the map has no entries."""
        return not self._fresh()

    def clear(self) -> None:
        """Remove all entries of the current key's map."""
        slot = self._for_writing()
        for key in list(self._cells.get(slot, ())):
            self._drop(slot, key)

    def _fresh(self) -> dict[Any, Any]:
        """Remove the expired entries of the current key's map, and return the other entries."""
        slot = self._at.slot
        if self._ttl is not None and slot in self._times and self._may_be_old(slot):
            self._prune(slot, self._at.now)
        return self._cells.get(slot, {})

    def _may_be_old(self, slot: int) -> bool:
        """Return whether any entry has expired. The times are in the order of writing, so the first time is the
        oldest."""
        return self._is_old(next(iter(self._times[slot].values())))

    def _reading(self, iterate: Callable[[dict[Any, Any]], Iterable[Any]]) -> Iterator[Any]:
        """Return an iterator of the current key's map. A change during the iteration copies the map first."""
        slot, cell = self._at.slot, self._fresh()
        if not cell:
            return iter(())
        self._readers[slot] = self._readers.get(slot, 0) + 1
        return self._read(slot, cell, iterate)

    def _read(
        self, slot: int, cell: dict[Any, Any], iterate: Callable[[dict[Any, Any]], Iterable[Any]]
    ) -> Iterator[Any]:
        try:
            yield from iterate(cell)
        finally:
            if self._cells.get(slot) is cell and (remaining := self._readers.pop(slot, 1) - 1):
                self._readers[slot] = remaining

    def _make_own(self, slot: int) -> None:
        """Copy a key's map before a change, if the last snapshot or an iterator shares the map."""
        is_shared = self._readers.pop(slot, 0) > 0
        if self._owned is not None and slot not in self._owned:
            self._owned.add(slot)
            is_shared = True
            if slot in self._times:
                self._times[slot] = self._times[slot].copy()
        if is_shared and slot in self._cells:
            self._cells[slot] = self._cells[slot].copy()

    def _put(self, slot: int, key: Any, stored: Any, written: int) -> None:
        if self._readers or self._owned is not None:
            self._make_own(slot)
        cell = self._cells.get(slot)
        if cell is None:
            cell = self._cells[slot] = {}
            self.nbytes += _PER_KEY
        before = cell.get(key)
        if before is None:
            self.nbytes += self._size(key, stored)
        elif self._values.fixed_size is None:
            self.nbytes += self._values.size(stored) - self._values.size(before)
        cell[key] = stored
        if self._ttl is not None:
            times = self._times.setdefault(slot, {})
            times.pop(key, None)  # the new time must come last
            times[key] = written
            self._watch(slot, written)

    def _drop(self, slot: int, key: Any) -> None:
        cell = self._cells.get(slot)
        if cell is None or key not in cell:
            return
        self._make_own(slot)
        cell = self._cells[slot]
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
        super()._bind()
        self._keys = StoredKeys(self._key_type, f"{self._what}, key")
        self._values = StoredValues(self._type, self._what)
        self._is_plain = self._keys.is_plain and self._values.is_plain
        #: How many iterators read the map of a slot.
        self._readers: dict[int, int] = {}
        self._owned = None

    def frozen(self) -> Self:
        reader = super().frozen()
        self._owned = set()
        return reader

    def renumber(self, numbers: Mapping[int, int]) -> None:
        super().renumber(numbers)
        if self._owned is not None:
            self._owned = {numbers[slot] for slot in self._owned if slot in numbers}
        if self._readers:  # they would look for their map at its old slot
            self._owned, self._readers = set(), {}

    def columns(self, slots: Sequence[int]) -> tuple[Int64s, dict[str, pa.Array]]:
        # With `ttl`, the entries are in the order in which they were written. A restore must keep this order.
        orders: list[Iterable[Any]] = [self._times[slot] if self._times else self._cells[slot] for slot in slots]
        keys = [key for order in orders for key in order]
        values = [self._cells[slot][key] for slot, order in zip(slots, orders, strict=True) for key in order]
        written = self._written([self._times[slot].values() for slot in slots] if self._times else [], len(keys))
        columns = {"map key": self._keys.column(keys), "value": self._values.column(values), WRITTEN: written}
        return np.repeat(slots, [len(self._cells[slot]) for slot in slots]).astype(np.int64), columns

    def load(self, slots: Int64s, columns: Mapping[str, pa.Array], now: int) -> None:
        keys, values = self._keys.of_column(columns["map key"]), self._values.of_column(columns["value"])
        written = _times(columns[WRITTEN], now)
        for at, slot in enumerate(slots.tolist()):
            self._put(slot, keys[at], values[at], written[at])

    def _prune(self, slot: int, now: int) -> int | None:
        assert self._ttl is not None
        old, oldest = [], None
        for key, written in self._times[slot].items():
            if written + self._ttl > now:
                oldest = written
                break
            old.append(key)
        for key in old:
            self._drop(slot, key)
        if old and oldest is not None:
            # The old dict would look for its first key among all dropped keys.
            self._times[slot] = dict(self._times[slot])
        return oldest


def _times(column: pa.Array, now: int) -> list[int]:
    times: list[int] = column.fill_null(now).to_pylist()
    return times
