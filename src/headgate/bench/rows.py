"""The rows of `keyed-sum`: row i depends on i alone, so they can be made anywhere and in any cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

KEYS = 1000
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])

# SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)

#: The upper 20 bits of a row's random word choose its key, the lower 44 are its value.
_VALUE_BITS = np.uint64(44)
_VALUE_MASK = np.uint64((1 << 44) - 1)
_KEY_BITS = np.uint64(20)


def keyed_rows(start: int, n: int) -> pa.RecordBatch:
    """Rows `start` to `start + n`: `key` is uniform on 0 to 999, `value` uniform on [0, 1)."""
    word = _random_words(start, n)
    value = (word & _VALUE_MASK).view(np.int64).astype(np.float64)
    value *= 2.0**-44
    word >>= _VALUE_BITS
    word *= np.uint64(KEYS)
    word >>= _KEY_BITS
    return pa.RecordBatch.from_arrays([pa.array(word.view(np.int64)), pa.array(value)], schema=SCHEMA)


def _random_words(start: int, n: int) -> np.ndarray:
    """SplitMix64's numbers `start` to `start + n`, in place as far as possible: this is on the measured path."""
    word = np.arange(start, start + n, dtype=np.uint64)
    word *= _GAMMA
    scratch = np.empty_like(word)
    for shift, factor in _MIX:
        word ^= np.right_shift(word, shift, out=scratch)
        word *= factor
    word ^= np.right_shift(word, _LAST_SHIFT, out=scratch)
    return word
