"""The texts and prices of Nexmark. Texts are taken from pools, which are made once in each process."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.nexmark.numbered_events import bits
from headgate.records.canonical import Int64s, UInt64s, as_arrow
from headgate.records.hashing import mix

#: The bits of a word that a price uses.
PRICE_BITS: Final = 36
_DIGIT_BITS = 12
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
#: A special character takes the place of about 1/13 of the letters: of so many of the 256 bytes.
_SPECIAL_BYTES = 256 // 13

_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000
#: Of this many channels, one has no id in its URLs.
_WITHOUT_ID = 10
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES: Final = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
                 "Cheyenne")  # fmt: skip
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")


def prices(words: UInt64s) -> Int64s:
    """Return prices in cents: 100 times 10 to the power of 6 U, where U is uniform on [0, 1).

    The power is a product of three factors from tables. So it is the same on every processor, which a power of NumPy
    is not.
    """
    product = _powers(1)[bits(words, 2 * _DIGIT_BITS, _DIGIT_BITS)] * 100
    product *= _powers(2)[bits(words, _DIGIT_BITS, _DIGIT_BITS)]
    product *= _powers(3)[bits(words, 0, _DIGIT_BITS)]
    return np.rint(product, out=product).astype(np.int64)


@cache
def _powers(place: int) -> npt.NDArray[np.float64]:
    """Return 10 to the power of 6 d / 4096^place, for each digit d."""
    scale = 6 / (1 << _DIGIT_BITS * place)
    return np.array([10 ** (scale * digit) for digit in range(1 << _DIGIT_BITS)])


def taken(pool: pa.Array, rows: Int64s) -> pa.Array:
    """Return the texts of a pool at these places."""
    return pool.take(as_arrow(rows))


@cache
def texts(salt: int, count: int, lengths: range, special: str = "") -> pa.Array:
    """Return `count` random texts of lowercase letters. Equal arguments give equal texts.

    The length of each text is one of `lengths`. Each character is `special` with a probability of 20 in 256.

    >>> texts(1, 3, range(4, 6)).to_pylist() == texts(1, 3, range(4, 6)).to_pylist()
    True
    """
    width = lengths.stop - 1
    words = -(-width // 8)
    random = _random(salt, count * words).view(np.uint8).reshape(count, words * 8)[:, :width]
    sizes = lengths.start + (_random(salt + 1, count) % np.uint64(len(lengths))).view(np.int64)
    kept = _alphabet(special)[random][np.arange(width) < sizes[:, None]]
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(kept))


def _random(salt: int, count: int) -> UInt64s:
    return mix(np.arange(count, dtype=np.uint64) + mix(np.array([salt], np.uint64)))


def _alphabet(special: str) -> npt.NDArray[np.uint8]:
    """Return the character for each random byte."""
    letters: npt.NDArray[np.uint8] = _LETTERS[np.arange(256) * len(_LETTERS) >> 8]
    if special:
        letters[:: 256 // _SPECIAL_BYTES] = ord(special)
    return letters


@cache
def channels() -> pa.Array:
    """Return the names of all channels: those of the hot channels come last."""
    return pa.array([*(f"channel-{number}" for number in range(_CHANNELS)), *_HOT_CHANNELS])


@cache
def urls() -> pa.Array:
    """Return a URL for each of the `channels`."""
    folders = [texts(salt, _CHANNELS + len(_HOT_CHANNELS), range(3, 5), "_") for salt in (10, 20, 30)]
    ids = [f"&channel_id={_reversed(number)}" for number in range(_CHANNELS)] + [""] * len(_HOT_CHANNELS)
    has_none = np.concatenate([_random(40, _CHANNELS) % np.uint64(_WITHOUT_ID) == 0, np.zeros(4, np.bool_)])
    found = pc.if_else(as_arrow(has_none), "", pa.array(ids))
    base = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")
    return pc.binary_join_element_wise(base, found, "")


def _reversed(number: int) -> int:
    """Return the 32 bits of a number in reverse order, as the absolute value of an int of Java."""
    value = int(f"{number:032b}"[::-1], 2)
    return min(value, (1 << 32) - value)


def chosen_channels(words: UInt64s, first: int) -> Int64s:
    """Return a channel for each word, by 24 of its bits. One of two is a hot channel."""
    is_hot, which = bits(words, first, 1), bits(words, first + 1, 2)
    cold = bits(words, first + 3, 21) * _CHANNELS >> 21
    return np.where(is_hot, _CHANNELS + which, cold)


@cache
def names() -> pa.Array:
    """Return all names of persons."""
    return pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def emails() -> pa.Array:
    """Return 4,096 addresses."""
    parts = [pc.utf8_trim_whitespace(texts(salt, 4096, range(3, longest), " "))
             for salt, longest in ((50, 7), (60, 5))]  # fmt: skip
    return pc.binary_join_element_wise(pc.binary_join_element_wise(*parts, "@"), ".com", "")


@cache
def four_digits() -> pa.Array:
    """Return the texts 0000 to 9999."""
    return pa.array([f"{number:04}" for number in range(10_000)])
