"""The options that every case gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How a case runs. With `quick` it takes seconds: enough to see that it works, not for figures to keep."""

    quick: bool
    #: Shows the user a line about the progress.
    say: Callable[[str], None]
