"""The number of examples that Hypothesis tries: with `--examples some`, as in `make test`, a quarter of them."""

from __future__ import annotations

_SOME = 4
_divisor = 1


def try_some() -> None:
    """Try fewer examples in the modules that are imported from now on."""
    global _divisor
    _divisor = _SOME


def examples(every: int) -> int:
    """Return how many examples to try, of as many as `make soak` tries.

    >>> examples(100)
    100
    """
    return max(1, every // _divisor)
