"""A table of pairs of slots: (window, key), (accumulator, value) and the like."""

from __future__ import annotations

from typing import Self

from headgate.records.canonical import Int64s
from headgate.state.frozen import frozen
from headgate.state.words import WordTable


class PairTable:
    """Pairs of small non-negative numbers to slots.

    A pair is one word: the right number in as few low bits as all right numbers need, the left one above. So words stay
    small where pairs are dense, and are then found by direct indexing; when the right numbers outgrow their bits, which
    then double their range, all words are written again.
    """

    def __init__(self) -> None:
        self._words = WordTable()
        self._bits = 0

    def __len__(self) -> int:
        return len(self._words)

    @property
    def nbytes(self) -> int:
        return self._words.nbytes

    def find_or_add(self, left: Int64s | int, right: Int64s) -> Int64s:
        """The slot of each pair, at least one; new pairs get new slots. `left` may be the same for all."""
        self._make_room(int(right.max()))
        return self._words.find_or_add(right | (left << self._bits))

    def left(self, begin: int = 0) -> Int64s:
        """The left number of every pair, by slot, from slot `begin` on."""
        return self._words.column()[begin:] >> self._bits

    def right(self) -> Int64s:
        """The right number of every pair, by slot."""
        return self._words.column() & (1 << self._bits) - 1

    def frozen(self) -> Self:
        """What is held now, for reading."""
        return frozen(self)

    def replace(self, left: Int64s, right: Int64s) -> None:
        """Hold these pairs, all different, as slots 0, 1, 2 ... and nothing else."""
        self._bits = int(right.max()).bit_length() if len(right) else 0
        self._words.replace([right | (left << self._bits)])

    def _make_room(self, right: int) -> None:
        if right >> self._bits:
            left, rights = self.left(), self.right()
            self._bits = right.bit_length()
            self._words.replace([rights | (left << self._bits)])
