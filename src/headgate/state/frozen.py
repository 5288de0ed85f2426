"""Copies the state of an operator between two batches, for a snapshot.

The task waits only for the copy. Another thread computes the snapshot from the copy later. Columns that only grow at
their end, such as the columns of keys, need no copy: the operator and the copy share one array. When the operator
removes unused entries, the operator creates a new array, and the copy keeps the old array.

Classes that are compiled (see pyproject.toml) have no `__dict__`, so `frozen` cannot copy them. They copy themselves.
"""

from __future__ import annotations

import copy
from typing import Protocol, Self, TypeVar, runtime_checkable

Holder = TypeVar("Holder")


@runtime_checkable
class Freezable(Protocol):
    """An object that can copy itself for a snapshot."""

    def frozen(self) -> Self:
        """Return a copy for reading only. Later changes of the original do not change the copy."""


def frozen(holder: Holder) -> Holder:
    """Return a copy of the object, with a frozen copy of each freezable attribute.

    The copy and the object share all other attributes. These must be immutable, or readers must not use them.
    """
    duplicate = copy.copy(holder)
    for name, part in vars(holder).items():
        if isinstance(part, Freezable):
            setattr(duplicate, name, part.frozen())
    return duplicate
