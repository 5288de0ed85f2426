"""`PairTable`: a table of pairs of slots, such as (window, key) and (accumulator, value)."""

from __future__ import annotations

from headgate.records.canonical import Int64s
from headgate.state.words import WordTable


class PairTable:
    """A table that maps pairs of small non-negative numbers to slots.

    The table stores a pair as one word. The right number takes the low bits: as many as the largest right number needs.
    The left number takes the bits above. Words of pairs with few gaps therefore stay small, and a direct index finds
    them (see `WordTable`). When a right number needs more bits, the table encodes all words again. This is rare,
    because the range of right numbers at least doubles each time.
    """

    def __init__(self) -> None:
        self._words = WordTable()
        self._bits = 0

    def __len__(self) -> int:
        return len(self._words)

    @property
    def nbytes(self) -> int:
        return self._words.nbytes

    def find_or_add(self, left: Int64s | int, right: Int64s, *, most: int | None = None) -> Int64s:
        """Return the slot of each pair; new pairs get new slots.

        `right` is not empty. `left` may be one number for all pairs. If the caller knows that no right number is above
        `most`, the table need not look for the largest.
        """
        self._make_room(int(right.max()) if most is None else most)
        if isinstance(left, int):
            shifted = left << self._bits
            return self._words.find_or_add(right | shifted, most=shifted | (1 << self._bits) - 1)
        return self._words.find_or_add(right | (left << self._bits))

    def left(self, begin: int = 0) -> Int64s:
        """Return the left number of every pair, by slot, from slot `begin` on."""
        return self._words.column()[begin:] >> self._bits

    def right(self) -> Int64s:
        """Return the right number of every pair, by slot."""
        return self._words.column() & (1 << self._bits) - 1

    def frozen(self) -> PairTable:
        """Return a copy for reading only."""
        reader = PairTable()
        reader._words, reader._bits = self._words.frozen(), self._bits
        return reader

    def replace(self, left: Int64s, right: Int64s) -> None:
        """Replace all pairs by the given pairs, which are all different. Their slots are 0, 1, 2 ..."""
        self._bits = int(right.max()).bit_length() if len(right) else 0
        self._words.replace([right | (left << self._bits)])

    def _make_room(self, right: int) -> None:
        if right >> self._bits:
            left, rights = self.left(), self.right()
            self._bits = right.bit_length()
            self._words.replace([rights | (left << self._bits)])
