"""What every case is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`quick` means seconds instead of minutes: to see that a case works, not for figures to keep."""

    quick: bool
    #: Tells the user what is going on.
    say: Callable[[str], None]
