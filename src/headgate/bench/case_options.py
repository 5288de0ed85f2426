"""The options that every case gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a case. With `quick` a case takes seconds: it shows that it works, with figures of no use."""

    quick: bool
    #: A function that shows the user a line about the progress.
    say: Callable[[str], None]
    #: The mechanisms that an experiment of the lab compares, by name. Without names it compares its own choice.
    mechanisms: tuple[str, ...] = ()
    #: The seed of the first round of a simulated experiment. Each further round has the next one.
    seed: int = 0
    #: How many runs of mechanisms an experiment of the lab makes at the same time.
    at_once: int = 1
