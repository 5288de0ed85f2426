"""How a diagnosis writes a duration."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a duration with two digits, in seconds or milliseconds.

    >>> [duration(each) for each in (0.0123, 0.0998, 0.33, 2.6, 150.4)]
    ['12 ms', '0.1 s', '0.33 s', '2.6 s', '150 s']
    """
    if seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 99.5 else f"{seconds:.0f} s"
