"""Copies of what an operator holds, made between two batches for a snapshot: nothing is worked out then, so the task
stands still for a moment only. From the copy the snapshot is made later, on another thread.

Columns that only grow at their end (keys, and what stands for them) are not even copied: both go on with the same
array, until the operator throws out what is not used any more, and then it takes a new one.
"""

from __future__ import annotations

import copy
from typing import Protocol, Self, TypeVar, runtime_checkable

Holder = TypeVar("Holder")


@runtime_checkable
class Freezable(Protocol):
    """What knows how to be copied for a snapshot."""

    def frozen(self) -> Self:
        """What is held now, for reading only; what changes later does not change it."""


def frozen(holder: Holder) -> Holder:
    """A copy of the object, and of those of its attributes that can be frozen. What else it has must be immutable, or
    not be read."""
    mine = copy.copy(holder)
    for name, part in vars(holder).items():
        if isinstance(part, Freezable):
            setattr(mine, name, part.frozen())
    return mine
