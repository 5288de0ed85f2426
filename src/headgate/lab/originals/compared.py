"""The figures of an original and of ours side by side, and whether they are the same within 25 %."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from headgate.bench.report import Figure

#: How far both may differ, as a share.
_SAME: Final = 0.25
#: A name, and the values of all rounds.
Side = tuple[str, Sequence[float]]


def compared(quantity: str, unit: str, theirs: Side, ours: Side, ratio: str) -> tuple[list[Figure], bool]:
    """Return the figures of both sides and of the ratio of ours to theirs, and whether both are the same.

    `ratio` is the name of the third figure. An original whose median is 0 is not the same as anything.
    """
    figures = [Figure(f"{name}: {quantity}", unit, tuple(values)) for name, values in (theirs, ours)]
    share = median(ours[1]) / median(theirs[1]) if median(theirs[1]) else float("nan")
    target = f"target {1 - _SAME} to {1 + _SAME}"
    return [*figures, Figure(f"{ratio}: {quantity}", target, (share,))], abs(share - 1) <= _SAME
