"""Copies the state of an operator between two batches, for a snapshot.

The task stops only for the copy. Another thread computes the snapshot from the copy later. Columns that only grow at
their end, such as those of keys, are not even copied: operator and copy share one array. When the operator removes
unused entries, it moves to a new array and leaves the old one to the copy.
"""

from __future__ import annotations

import copy
from typing import Protocol, Self, TypeVar, runtime_checkable

Holder = TypeVar("Holder")


@runtime_checkable
class Freezable(Protocol):
    """An object that can copy itself for a snapshot."""

    def frozen(self) -> Self:
        """Return a copy for reading only, which later changes of the original do not change."""


def frozen(holder: Holder) -> Holder:
    """Return a copy of the object whose freezable attributes are frozen. The copy shares all other attributes: they
    must be immutable, or readers must not use them."""
    duplicate = copy.copy(holder)
    for name, part in vars(holder).items():
        if isinstance(part, Freezable):
            setattr(duplicate, name, part.frozen())
    return duplicate
