"""Convert columns to canonical 64-bit words: equal values have equal words in every Arrow layout.

Integers, dates, times and timestamps become their integer. Floats become the bits of the float64; all NaNs become the
same word, and -0.0 becomes 0.0. Strings and binaries become their bytes in little-endian words, padded with zeros. A
null has the words of 0 or of an empty string, and a separate mask marks the nulls. Values of nested types have no
words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.compat import cast
from headgate.errors import PlanError

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_WORD = 8
_HEAD = 2 * _WORD
_LOW_BYTES = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], np.uint64)
_NO_TAIL = np.zeros(0, np.uint64)

# Types are compared by their ids: that is one look-up, while `pa.types` costs several calls per column and batch.
_DICTIONARY: Final = pa.lib.Type_DICTIONARY
_BOOL: Final = pa.lib.Type_BOOL
_VIEWS: Final = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary()}
_BYTES: Final = frozenset(
    kind.id
    for kind in (
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
    )
)
#: The memory layout of fixed-width types. Other types of at most 64 bits are integers of their width.
_DTYPES: Final[dict[int, np.dtype[np.generic]]] = {
    getattr(pa, name)().id: np.dtype(name)
    for name in (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
} | {kind.id: np.dtype(np.int64) for kind in (pa.timestamp("us"), pa.duration("us"), pa.time64("us"), pa.date64())}

#: Integers and times.
_INTEGERS: Final = frozenset(kind for kind, dtype in _DTYPES.items() if dtype.kind in "iu")


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values of this type are strings or binaries of any kind."""
    return kind.id in _BYTES


def is_integer(column: pa.Array) -> bool:
    """Return whether the words of a column are its raw values: integers or times, none of them null."""
    return column.type.id in _INTEGERS and not column.null_count


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values: a dictionary's value type, the large type of a view, or else the type itself.

    Arrow's `take` does not support views.
    """
    return value_type(kind.value_type) if kind.id == _DICTIONARY else _VIEWS.get(kind.id, kind)


def decoded(column: pa.Array) -> pa.Array:
    """Return the column converted to its value type."""
    kind = column.type.id
    if kind == _DICTIONARY:
        return decoded(column.dictionary_decode())
    return cast(column, _VIEWS[kind]) if kind in _VIEWS else column


def words_per_value(kind: pa.DataType) -> int:
    """Return the number of 64-bit words in a value of this fixed-width type. Raises PlanError for nested types."""
    if kind.id in _DTYPES:
        return 1
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return int(kind.byte_width) // _WORD
    if pa.types.is_null(kind) or (pa.types.is_primitive(kind) and kind.bit_width <= 64) or pa.types.is_decimal(kind):
        return 1
    raise PlanError(f"a column of type {kind} cannot be a key: only numbers, times, booleans, strings and binaries can")


def check_keyable(kind: pa.DataType) -> None:
    """Raise PlanError unless values of this type can be keys."""
    kind = value_type(kind)
    if not is_bytes(kind):
        words_per_value(kind)


def null_mask(column: pa.Array) -> Bools | None:
    """Return an array that is True at nulls, or None when the column has no null."""
    if column.type.id == _DICTIONARY and column.dictionary.null_count:
        column = column.dictionary_decode()
    if column.null_count == 0:
        return None
    mask: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def raw_values(column: pa.Array) -> npt.NDArray[np.generic]:
    """Return the values of a fixed-width column of at most 64 bits. The values at nulls are arbitrary.

    Times become integers, booleans uint8. The array is a view of the column's memory, except for booleans.
    """
    kind = column.type
    if kind.id == _BOOL:
        column = column.cast(pa.uint8())
        kind = column.type
    dtype = _dtype(kind)
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    values: npt.NDArray[np.generic] = np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize)
    return values


def _dtype(kind: pa.DataType) -> np.dtype[np.generic]:
    dtype = _DTYPES.get(kind.id)
    return np.dtype(f"<i{kind.bit_width // 8}") if dtype is None else dtype


def fixed_words(column: pa.Array) -> list[Int64s]:
    """Return the words of a fixed-width column: array i holds word i of each row, with 0 at nulls.

    The column must not be a dictionary.
    """
    kind, count = column.type, words_per_value(column.type)
    if kind.id == pa.lib.Type_NA:
        return [np.zeros(len(column), np.int64)]
    if count > 1:
        flat = np.frombuffer(column.buffers()[1], np.int64, len(column) * count, column.offset * count * _WORD)
        words = [flat[i::count] for i in range(count)]
    else:
        words = [_word(raw_values(column))]
    nulls = null_mask(column)
    return words if nulls is None else [np.where(nulls, 0, word) for word in words]


def _word(values: npt.NDArray[np.generic]) -> Int64s:
    if values.dtype.kind == "f":
        doubles = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
        doubles[np.isnan(doubles)] = np.nan
        return doubles.view(np.int64)
    return values.view(np.int64) if values.dtype.itemsize == _WORD else values.astype(np.int64)


def same_values(one: pa.Array, other: pa.Array) -> Bools:
    """Return for each row whether the values of two columns without nulls are equal. NaN equals NaN, and -0.0 equals
    0.0."""
    same = np.ones(len(one), np.bool_)
    if is_bytes(one.type):
        same &= pc.equal(one, other).to_numpy(zero_copy_only=False)
        return same
    for word, other_word in zip(fixed_words(one), fixed_words(other), strict=True):
        same &= word == other_word
    return same


def from_fixed_words(words: list[Int64s], nulls: Bools | None, kind: pa.DataType) -> pa.Array:
    """Return the column of type `kind` that has these `fixed_words` and this `null_mask`."""
    if pa.types.is_null(kind):
        return pa.nulls(len(words[0]))
    if pa.types.is_boolean(kind):
        return as_arrow(words[0].astype(np.bool_), nulls=nulls)
    if len(words) > 1:
        values: npt.NDArray[np.generic] = np.stack(words, axis=1)
    elif pa.types.is_floating(kind):
        values = words[0].view(np.float64).astype(_dtype(kind))
    else:
        values = words[0].astype(_dtype(kind), copy=False)
    return from_raw_values(values, nulls, kind)


def from_raw_values(values: npt.NDArray[np.generic], nulls: Bools | None, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of this fixed-width type (not boolean) over the values, without a copy."""
    valid = None if nulls is None else _bitmap(~nulls)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))])


def as_arrow(values: npt.NDArray[np.generic], nulls: Bools | None = None) -> pa.Array:
    """Return a NumPy array of numbers or booleans as an Arrow array. Numbers are not copied.

    `pa.array` would import pandas, which takes 0.15 s.
    """
    if values.dtype != np.bool_:
        return from_raw_values(values, nulls, pa.from_numpy_dtype(values.dtype))
    valid = None if nulls is None else _bitmap(~nulls)
    return pa.Array.from_buffers(pa.bool_(), len(values), [valid, _bitmap(values.astype(np.bool_, copy=False))])


def _bitmap(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


@dataclass(frozen=True, slots=True)
class PackedBytes:
    """Byte strings as zero-padded little-endian words.

    The first two words of string i are `first[i]` and `second[i]`; they hold up to 16 bytes. A longer string has its
    further words in `tail[tail_starts[i]:tail_starts[i] + tail_words(lengths[i])]`; tails lie one after the
    other.
    """

    first: UInt64s
    second: UInt64s
    lengths: Int64s
    tail_starts: Int64s
    tail: UInt64s

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Int64s) -> PackedBytes:
        """Return the strings of these rows, in this order, with their own tail."""
        lengths = self.lengths.take(rows)
        first, second = self.first.take(rows), self.second.take(rows)
        if not len(self.tail):
            return PackedBytes(first, second, lengths, np.zeros(len(rows), np.int64), self.tail)
        position, starts = flat_ranges(self.tail_starts.take(rows), tail_words(lengths))
        return PackedBytes(first, second, lengths, starts[:-1], self.tail.take(position))


def tail_words(lengths: Int64s) -> Int64s:
    """Return, for each length, the number of words that such a string has beyond its first two."""
    words: Int64s = np.maximum((lengths - (_HEAD - _WORD + 1)) >> 3, 0)
    return words


def flat_ranges(starts: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return (all positions of the ranges, one range after the other; the offset of each range in that array).

    Range i has `counts[i]` positions from `starts[i]`. The offsets end with the total number of positions.
    """
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    return np.repeat(starts - firsts[:-1], counts) + np.arange(firsts[-1]), firsts


def pack(column: pa.Array) -> PackedBytes:
    """Pack a column of strings or binaries, not a dictionary. Nulls count as empty."""
    offsets, data = _bytes_of(column)
    begins, lengths = offsets[:-1], np.diff(offsets)
    nulls = null_mask(column)
    if nulls is not None:
        lengths[nulls] = 0
    longest = int(lengths.max()) if len(lengths) else 0
    first = _load(data, begins, lengths)
    if longest <= _WORD:
        none = np.zeros(len(lengths), np.int64)
        return PackedBytes(first, none.view(np.uint64), lengths, none, _NO_TAIL)
    second = _load(data, begins + _WORD, lengths - _WORD)
    if longest <= _HEAD:
        return PackedBytes(first, second, lengths, np.zeros(len(lengths), np.int64), _NO_TAIL)
    counts = tail_words(lengths)
    position, starts = flat_ranges(np.zeros(len(counts), np.int64), counts)
    done = _HEAD + (position << 3)
    tail = _load(data, np.repeat(begins, counts) + done, np.repeat(lengths, counts) - done)
    return PackedBytes(first, second, lengths, starts[:-1], tail)


def unpack(packed: PackedBytes, nulls: Bools | None, kind: pa.DataType) -> pa.Array:
    """Return packed strings or binaries as a column of type `kind`: the inverse of `pack`."""
    counts = np.maximum((packed.lengths + (_WORD - 1)) >> 3, 1)
    _, starts = flat_ranges(np.zeros(len(counts), np.int64), counts)
    words = np.empty(starts[-1], "<u8")
    words[starts[:-1]] = packed.first
    has_second = np.flatnonzero(counts > 1)
    words[starts[has_second] + 1] = packed.second[has_second]
    into, _ = flat_ranges(starts[:-1] + 2, tail_words(packed.lengths))
    if len(into):
        words[into] = packed.tail
    used = np.full(len(words), _WORD)
    used[starts[1:] - 1] = packed.lengths - ((counts - 1) << 3)
    data = words.view(np.uint8).reshape(-1, _WORD)[np.arange(_WORD) < used[:, None]]
    offsets = np.zeros(len(packed) + 1, np.int64)
    np.cumsum(packed.lengths, out=offsets[1:])
    plain = pa.large_string() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pa.large_binary()
    valid = None if nulls is None else _bitmap(~nulls)
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(plain, len(packed), buffers).cast(kind)


def _bytes_of(column: pa.Array) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return a column's offsets, starting at 0, and its bytes, followed by one word of padding."""
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    column = decoded(column)
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, ends, data = column.buffers()
    if ends is None or len(column) == 0:
        return np.zeros(len(column) + 1, np.int64), np.zeros(_WORD, np.uint8)
    dtype = np.dtype(np.int64 if wide else np.int32)
    offsets = np.frombuffer(ends, dtype, len(column) + 1, column.offset * dtype.itemsize).astype(np.int64)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    padded = np.zeros(size + _WORD, np.uint8)
    if size:
        padded[:size] = np.frombuffer(data, np.uint8, size, first)
    return offsets - first, padded


def _load(data: npt.NDArray[np.uint8], at: Int64s, lengths: Int64s) -> UInt64s:
    """Return a word for each position: eight bytes, which are 0 beyond the length. Positions need no alignment."""
    every = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u8"), data, strides=(1,))
    loaded: UInt64s = every[np.minimum(at, len(every) - 1)]
    loaded &= _LOW_BYTES.take(lengths, mode="clip")
    return loaded


def through_dictionary(column: pa.DictionaryArray) -> bool:
    """Return whether the dictionary of a column has at most as many values as the column has rows.

    Work on the values is then cheaper than work on the rows.
    """
    return len(column.dictionary) <= len(column)


def dictionary_rows(column: pa.DictionaryArray) -> Int64s:
    """Return the position in the dictionary of each row's value, with 0 at nulls."""
    indices: Int64s = pc.fill_null(column.indices, 0).cast(pa.int64()).to_numpy()
    return indices
