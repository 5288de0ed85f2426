"""`KeyTable`: maps keys of one or more columns to slots (0, 1, 2 ...), and back to columns of the same types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self

import numpy as np
import pyarrow as pa

from headgate.errors import PlanError
from headgate.records.canonical import (
    Bools,
    Int64s,
    PackedBytes,
    as_arrow,
    decoded,
    dictionary_rows,
    fixed_words,
    from_fixed_words,
    is_bytes,
    null_mask,
    pack,
    raw_values,
    through_dictionary,
    value_type,
    words_per_value,
)
from headgate.records.hashing import key_groups, key_hash
from headgate.state.interner import Interner
from headgate.state.snapshot import KEY_GROUP
from headgate.state.words import WordTable

#: One word of 64 bits marks the null columns of a key: one bit for each column. Its sign bit is not used.
_MOST_COLUMNS = 63


class _Codec(Protocol):
    """Encodes the values of one key column as `width` words of 64 bits, and decodes words to values. `KeyTable` uses
    it."""

    width: int

    @property
    def nbytes(self) -> int: ...

    def encode(self, column: pa.Array, *, add: bool = True) -> list[Int64s]:
        """Return the words of each row. If `add` is false, a value that would need a new word gets -1."""

    def column(self, words: list[Int64s], nulls: Bools | None) -> pa.Array:
        """Return the values of these words, null where `nulls` is true."""

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only the copy's method `column` may be used."""

    def keep(self, words: list[Int64s]) -> list[Int64s]:
        """Keep only the values of these words. Returns the new words of these values."""


class _FixedCodec:
    """The codec of numbers, times and booleans: the words hold the values themselves."""

    nbytes = 0

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.width = words_per_value(kind)

    def encode(self, column: pa.Array, *, add: bool = True) -> list[Int64s]:
        return fixed_words(decoded(column))

    def column(self, words: list[Int64s], nulls: Bools | None) -> pa.Array:
        return from_fixed_words(words, nulls, self._kind)

    def frozen(self) -> _FixedCodec:
        return self

    def keep(self, words: list[Int64s]) -> list[Int64s]:
        return words


class _BytesCodec:
    """The codec of strings and binaries: the word of a value is its id in an interner.

    The word of a null is 0. `keep` does not change this word.
    """

    width = 1

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._interner = Interner()

    @property
    def nbytes(self) -> int:
        return self._interner.nbytes

    def encode(self, column: pa.Array, *, add: bool = True) -> list[Int64s]:
        ids = self._ids(column, self._interner.find_or_add if add else self._interner.known_ids)
        nulls = null_mask(column)
        return [ids if nulls is None else np.where(nulls, 0, ids)]

    def _ids(self, column: pa.Array, find: Callable[[PackedBytes], Int64s]) -> Int64s:
        if not pa.types.is_dictionary(column.type):
            return find(pack(column))
        if not len(column.dictionary) or not through_dictionary(column):
            return self._ids(decoded(column), find)
        return find(pack(decoded(column.dictionary))).take(dictionary_rows(column))

    def column(self, words: list[Int64s], nulls: Bools | None) -> pa.Array:
        return self._interner.strings(words[0], nulls, self._kind)

    def frozen(self) -> _BytesCodec:
        reader = _BytesCodec(self._kind)
        reader._interner = self._interner.frozen()
        return reader

    def keep(self, words: list[Int64s]) -> list[Int64s]:
        used = np.zeros(len(self._interner), np.bool_)
        used[words[0]] = True
        self._interner.keep(np.flatnonzero(used))
        return [(np.cumsum(used) - 1).take(words[0])]


class KeyTable:
    """A table that maps keys to slots. A key has one value for each of `types`.

    NaN equals NaN, -0.0 equals 0.0, and a null is a key value like others. Without columns all rows have the same key.

    Raises PlanError for nested types, which cannot be keys, and for more than 63 columns.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        if len(types) > _MOST_COLUMNS:
            raise PlanError(f"{len(types)} key columns are too many: at most {_MOST_COLUMNS} are possible")
        values = [value_type(kind) for kind in types]
        self._codecs: list[_Codec] = [_BytesCodec(kind) if is_bytes(kind) else _FixedCodec(kind) for kind in values]
        self._table = WordTable(max(sum(codec.width for codec in self._codecs), 1))
        self._nullable = False

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + sum(codec.nbytes for codec in self._codecs)

    def find_or_add(self, columns: Sequence[pa.Array], rows: int) -> Int64s:
        """Return the slot of each row's key; new keys get new slots.

        `rows` is the length of each column. There may be no columns.
        """
        words = [word for codec, column in zip(self._codecs, columns, strict=True) for word in codec.encode(column)]
        nulls = _null_bits(columns, rows)
        if nulls is not None and not self._nullable:
            self._widen()
        if self._nullable:
            words.append(np.zeros(rows, np.int64) if nulls is None else nulls)
        return self._table.find_or_add(*(words or [np.zeros(rows, np.int64)]))

    def known_slots(self, columns: Sequence[pa.Array], rows: int) -> Int64s:
        """Return the slot of each row's key, or -1 if the key is unknown. Nothing is added."""
        words = [word for c, column in zip(self._codecs, columns, strict=True) for word in c.encode(column, add=False)]
        nulls = _null_bits(columns, rows)
        if self._nullable:
            words.append(np.zeros(rows, np.int64) if nulls is None else nulls)
        slots = self._table.known_slots(*(words or [np.zeros(rows, np.int64)]))
        return slots if nulls is None or self._nullable else np.where(nulls, -1, slots)

    def keys(self, slots: Int64s) -> list[pa.Array]:
        """Return the keys of these slots: one array for each key column, of the column's value type."""
        words = [self._table.column(index).take(slots) for index in range(sum(c.width for c in self._codecs))]
        bits = self._table.column(len(words)).take(slots) if self._nullable else None
        columns, begin = [], 0
        for index, codec in enumerate(self._codecs):
            nulls = None if bits is None else (bits >> index & 1).astype(np.bool_)
            columns.append(codec.column(words[begin : begin + codec.width], nulls))
            begin += codec.width
        return columns

    def columns(self, slots: Int64s, names: Sequence[str], max_parallelism: int) -> dict[str, pa.Array]:
        """Return the first columns of a snapshot's table: copies of the key group and the key of each slot."""
        keys = self.keys(slots)
        groups = key_groups(key_hash(keys), max_parallelism).astype(np.int32)
        columns = {KEY_GROUP: as_arrow(groups if keys else np.repeat(groups, len(slots)))}
        return columns | {f"key {name}": key for name, key in zip(names, keys, strict=True)}

    def frozen(self) -> KeyTable:
        """Return a copy for a snapshot. Only the copy's methods `keys` and `columns` may be used."""
        reader = KeyTable(())
        reader._table, reader._nullable = self._table.frozen(), self._nullable
        reader._codecs = [codec.frozen() for codec in self._codecs]
        return reader

    def compact(self, live: Int64s) -> None:
        """Keep only the keys of the slots `live`, which are all different. Their new slots are 0, 1, 2 ... in order."""
        words, begin = [], 0
        for codec in self._codecs:
            kept = [self._table.column(begin + index).take(live) for index in range(codec.width)]
            words += codec.keep(kept)
            begin += codec.width
        if self._nullable:
            words.append(self._table.column(begin).take(live))
        self._table.replace(words or [np.zeros(min(len(live), 1), np.int64)])

    def _widen(self) -> None:
        """Add to each key the word that marks its null columns. The first null causes this."""
        self._nullable = True
        words = [self._table.column(index) for index in range(sum(codec.width for codec in self._codecs))]
        self._table.replace([*(word.copy() for word in words), np.zeros(len(self), np.int64)])


def check_key_groups(table: pa.Table, keys: int, max_parallelism: int) -> None:
    """Check that every row of state names the key group of its key. Raises ValueError.

    The first column of `table` names the key group; the next `keys` columns are the key. If the group were wrong, one
    subtask would get the row of state, and another subtask would get the input rows of that key.
    """
    for batch in table.to_batches():
        stated = raw_values(batch.columns[0])
        groups = np.broadcast_to(key_groups(key_hash(batch.columns[1 : 1 + keys]), max_parallelism), len(stated))
        if (wrong := np.flatnonzero(stated != groups)).size:
            row = wrong[0]
            raise ValueError(f"a row of state names key group {stated[row]}, but its key has {groups[row]}")


def _null_bits(columns: Sequence[pa.Array], rows: int) -> Int64s | None:
    """Return a word for each row: bit i is set if column i is null. Returns None if no row has a null."""
    bits: Int64s | None = None
    for index, column in enumerate(columns):
        nulls = null_mask(column)
        if nulls is not None:
            bits = np.zeros(rows, np.int64) if bits is None else bits
            bits |= nulls.astype(np.int64) << index
    return bits
