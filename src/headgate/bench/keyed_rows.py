"""The rows of the keyed cases. Row i depends only on i, so any process can make any range of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.records.canonical import UInt64s

KEYS = 1000
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])
STRING_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.float64())])
PAIR_SCHEMA = pa.schema([("area", pa.int64()), ("key", pa.string()), ("value", pa.float64())])

# SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)

#: The upper 32 bits of a row's random word choose its key, the lower 32 are its value.
_HALF = np.uint64(32)
_LOW_HALF = np.uint64((1 << 32) - 1)

#: A string key is this prefix and the key's number in hexadecimal.
_PREFIX = b"key-"
_STRING = np.dtype([("prefix", f"S{len(_PREFIX)}"), ("digits", ">u8")])
#: The number of values of the first column of a key of two columns.
_AREAS = 32

#: The steps that spread the eight half bytes of a 32-bit number over eight bytes. A step is a shift and a mask.
_SPREAD = (
    (np.uint64(16), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(8), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(4), np.uint64(0x0F0F0F0F0F0F0F0F)),
)
_EVERY_BYTE = np.uint64(0x0101010101010101)
_NIBBLE = np.uint64(4)
_TO_CARRY = np.uint64(6)
_ZERO, _TO_LETTER = np.uint64(ord("0")), np.uint64(ord("a") - ord("9") - 1)


def keyed_rows(start: int, n: int, keys: int = KEYS) -> pa.RecordBatch:
    """Return rows `start` to `start + n`: `key` is uniform on 0 to `keys - 1`, `value` uniform on [0, 1)."""
    key, value = _keys_and_values(start, n, keys)
    return pa.RecordBatch.from_arrays([pa.array(key.view(np.int64)), value], schema=SCHEMA)


def string_keyed_rows(start: int, n: int, keys: int = KEYS) -> pa.RecordBatch:
    """Return the rows of `keyed_rows` with keys as strings of 12 characters. The cost does not depend on `keys`."""
    key, value = _keys_and_values(start, n, keys)
    return pa.RecordBatch.from_arrays([_strings(key), value], schema=STRING_SCHEMA)


def pair_keyed_rows(start: int, n: int, keys: int = KEYS) -> pa.RecordBatch:
    """Return the rows of `keyed_rows` with keys of two columns, an integer of 32 values and a string."""
    key, value = _keys_and_values(start, n, keys)
    area, rest = key % _AREAS, key // _AREAS
    return pa.RecordBatch.from_arrays([pa.array(area.view(np.int64)), _strings(rest), value], schema=PAIR_SCHEMA)


def _keys_and_values(start: int, n: int, keys: int) -> tuple[UInt64s, pa.Array]:
    word = _random_words(start, n)
    value = (word & _LOW_HALF).view(np.int64).astype(np.float64)
    value *= 2.0**-32
    word >>= _HALF
    word *= np.uint64(keys)
    word >>= _HALF
    return word, pa.array(value)


def _strings(numbers: UInt64s) -> pa.Array:
    strings = np.empty(len(numbers), _STRING)
    strings["prefix"] = _PREFIX
    strings["digits"] = _hexadecimal(numbers)
    ends = np.arange(0, strings.nbytes + 1, _STRING.itemsize, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(strings))


def _hexadecimal(numbers: UInt64s) -> UInt64s:
    """Return the eight hexadecimal digits of each number below 2^32 as ASCII. The first digit is in the highest
    byte."""
    digits = numbers
    for shift, mask in _SPREAD:
        digits = (digits | digits << shift) & mask
    letters = (digits + _EVERY_BYTE * _TO_CARRY) >> _NIBBLE & _EVERY_BYTE
    return digits + _EVERY_BYTE * _ZERO + letters * _TO_LETTER


def _random_words(start: int, n: int) -> UInt64s:
    """Return SplitMix64's numbers `start` to `start + n`. It works in place, because the measured job calls it for each
    batch."""
    word = np.arange(start, start + n, dtype=np.uint64)
    word *= _GAMMA
    scratch = np.empty_like(word)
    for shift, factor in _MIX:
        word ^= np.right_shift(word, shift, out=scratch)
        word *= factor
    word ^= np.right_shift(word, _LAST_SHIFT, out=scratch)
    return word
