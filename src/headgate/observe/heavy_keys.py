"""Find the keys that have most of a subtask's rows, from a sample of the rows and in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]

#: How many hashes a summary keeps.
KEPT: Final = 1024
#: A key with at least this share of the rows is hot.
_LARGE: Final = 0.3
#: A key with at least this share is hot if it has `_UNEVEN` times the rows of an average key.
_NOTABLE, _UNEVEN = 0.1, 3.0
#: The most keys that are named.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that has many of the rows of one subtask. `key` is its text, `share` its share of the rows, 0 to 1."""

    key: str
    share: float
    subtask: int


class HeavyKeys:
    """The weights of the heaviest hashes among all that were added: a Misra-Gries summary.

    A weight that the summary returns is too small by at most the total weight divided by `KEPT`. A hash that is heavier
    than that is always kept. After each `add`, the smaller weights are cut off as when two summaries are merged
    (Agarwal and others, Mergeable Summaries, 2012).
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._hashes: UInt64s = np.zeros(0, np.uint64)
        self._weights: npt.NDArray[np.float64] = np.zeros(0)
        self.total = 0.0

    def add(self, hashes: UInt64s, weights: npt.NDArray[np.float64]) -> None:
        """Add hashes with their weights. A hash may appear more than once."""
        self.total += float(weights.sum())
        found, places = np.unique(np.concatenate((self._hashes, hashes)), return_inverse=True)
        sums = np.bincount(places, np.concatenate((self._weights, weights))).astype(np.float64)
        if len(found) > self._kept:
            sums -= np.partition(sums, -self._kept - 1)[-self._kept - 1]
            found, sums = found[sums > 0], sums[sums > 0]
        self._hashes, self._weights = found, sums

    def __len__(self) -> int:
        return len(self._hashes)

    def shares(self) -> list[tuple[int, float]]:
        """Return (hash, share of the total weight), the largest share first."""
        order = np.argsort(-self._weights, kind="stable")
        total = max(self.total, 1.0)
        return [(int(self._hashes[at]), float(self._weights[at]) / total) for at in order]


def hot(shares: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return those of (hash, share) that are hot, at most three. `shares` has the largest share first.

    A key is hot if it has 30 % of the rows. It is also hot if it has 10 % and three times the rows of an average key.
    """
    least = max(_NOTABLE, _UNEVEN / max(1, len(shares)))
    return [each for each in shares[:_NAMED] if each[1] >= min(_LARGE, least)]


def shown(values: Mapping[str, object], longest: int) -> str:
    """Return the text of a key: `column=value` for each column. Long values are cut to `longest` characters."""
    return ", ".join(f"{column}={_value(value, longest)}" for column, value in values.items())


def _value(value: object, longest: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, str | bytes):
        return repr(value[:longest]) + ("..." if len(value) > longest else "")
    text = str(value)
    return text[:longest] + ("..." if len(text) > longest else "")
