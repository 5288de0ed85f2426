"""Hash the key of each row, and map a hash to a key group and a subtask.

A hash selects the key group that owns a key's state in a snapshot. Hashes must therefore never change, and test vectors
check them. Equal keys have equal hashes in every Arrow layout; see `canonical`. Key groups are Flink's: a key always
belongs to group `hash mod M`, where M is the maximum parallelism. Each subtask owns a range of groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.records.canonical import (
    Int64s,
    PackedBytes,
    UInt64s,
    decoded,
    dictionary_rows,
    fixed_words,
    flat_ranges,
    is_bytes,
    null_mask,
    pack,
    tail_words,
    through_dictionary,
)

#: Flink's limits (KeyGroupRangeAssignment).
MAX_PARALLELISM = 32768
_DEFAULT_LOWEST_MAX_PARALLELISM = 128

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SECOND, _THIRD = np.uint64(0xDAA66D2C7DDF743F), np.uint64(0x1715609F7C746C69)  # golden x 3, x 5 modulo 2^64
_COLUMN = np.uint64(0xD6E8FEB86659FD93)
_NULL = np.uint64(0x6E756C6C6B657921)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_GOLDEN_INT, _MIX_1_INT, _MIX_2_INT, _ALL_BITS = int(_GOLDEN), int(_MIX_1), int(_MIX_2), (1 << 64) - 1


def mix(words: UInt64s) -> UInt64s:
    """Mix the bits of the words in place and return them: the splitmix64 step (Steele, Lea, Flood 2014)."""
    words += _GOLDEN
    spread = words >> _SHIFT_1
    words ^= spread
    words *= _MIX_1
    words ^= np.right_shift(words, _SHIFT_2, out=spread)
    words *= _MIX_2
    words ^= np.right_shift(words, _SHIFT_3, out=spread)
    return words


def combine(hashes: UInt64s, more: UInt64s) -> UInt64s:
    """Fold the words of another column into hashes, in place. The order of columns matters."""
    hashes *= _COLUMN
    hashes += more
    return mix(hashes)


def hash_words(words: Sequence[Int64s]) -> UInt64s:
    """Return the hash of each row. Array i of `words` holds word i of each row."""
    hashes = mix(words[0].astype(np.uint64))
    for word in words[1:]:
        hashes = combine(hashes, word.view(np.uint64) if word.flags.c_contiguous else word.astype(np.uint64))
    return hashes


def hash_bytes(packed: PackedBytes) -> UInt64s:
    """Return the hashes of byte strings: scramble each word by its position, add the words and fold in the length."""
    hashes = _scramble(packed.first, _GOLDEN)
    if packed.second.any():
        hashes += _scramble(packed.second, _SECOND)
    if len(packed.tail):
        counts = tail_words(packed.lengths)
        position, starts = flat_ranges(np.zeros(len(counts), np.int64), counts)
        scrambled = _scramble(packed.tail, (position.view(np.uint64) << np.uint64(1)) * _GOLDEN + _THIRD)
        longer = np.flatnonzero(counts)
        hashes[longer] += np.add.reduceat(scrambled, starts[longer])
    return combine(hashes, packed.lengths.view(np.uint64))


def _scramble(words: UInt64s, factor: np.uint64 | UInt64s) -> UInt64s:
    """Return the words mapped by a bijection that an odd factor selects. 0 stays 0: padding does not change a hash."""
    words = words * factor
    spread = words >> _SHIFT_1
    words ^= spread
    words *= _MIX_1
    words ^= np.right_shift(words, _SHIFT_2, out=spread)
    return words


def key_hash(columns: Sequence[pa.Array]) -> UInt64s:
    """Return the hash of each row's key columns, uint64.

    Without columns all rows have the same key, and the array has a single hash. Raises PlanError for nested types.
    """
    if not columns:
        return mix(np.zeros(1, np.uint64))
    hashes = _column_hash(columns[0])
    for column in columns[1:]:
        hashes = combine(hashes, _column_hash(column))
    return hashes


def _column_hash(column: pa.Array) -> UInt64s:
    if column.type.id == pa.lib.Type_DICTIONARY:
        if not len(column.dictionary) or not through_dictionary(column):
            return _column_hash(decoded(column))
        hashes = _column_hash(column.dictionary).take(dictionary_rows(column))
    elif is_bytes(column.type):
        hashes = hash_bytes(pack(column))
    else:
        hashes = hash_words(fixed_words(column))
    nulls = null_mask(column)
    if nulls is not None:
        hashes[nulls] = _NULL
    return hashes


def hash_of_word(word: int) -> int:
    """Return the hash of a key of one word, an int64. It is the hash that `hash_words` returns for this key.

    For a few keys, Python's integers cost less than NumPy's arrays.
    """
    mixed = (word + _GOLDEN_INT) & _ALL_BITS
    mixed = ((mixed ^ mixed >> 30) * _MIX_1_INT) & _ALL_BITS
    mixed = ((mixed ^ mixed >> 27) * _MIX_2_INT) & _ALL_BITS
    return mixed ^ mixed >> 31


def key_groups(hashes: UInt64s, max_parallelism: int) -> Int64s:
    """Return the key group of each hash: its remainder by `max_parallelism`. For powers of two a mask is faster."""
    if max_parallelism & (max_parallelism - 1) == 0:
        return (hashes & np.uint64(max_parallelism - 1)).view(np.int64)
    return (hashes % np.uint64(max_parallelism)).view(np.int64)


def subtask_of_key_group(key_group: Int64s, parallelism: int, max_parallelism: int) -> Int64s:
    """Return the subtask that owns each key group."""
    return key_group * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups that a subtask owns."""
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    return range(first, ((subtask + 1) * max_parallelism - 1) // parallelism + 1)


def default_max_parallelism(parallelism: int) -> int:
    """Return Flink's default: the power of two at or above 1.5 x parallelism, from 128 to 32768."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), _DEFAULT_LOWEST_MAX_PARALLELISM), MAX_PARALLELISM)
