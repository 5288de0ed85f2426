"""The time that the end of a job may take: one bound for all tests, and several tries to keep it.

No other test runs beside a test that measures this time, but other programs may, and they can delay any single end. So
pytest-rerunfailures runs a test that fails with `TooLate` up to twice again (pyproject.toml); its best time counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds from a kill, a cancel or an error until `wait()` has returned and the job has left nothing running.
END = 5.0


class TooLate(AssertionError):
    """The job ended, but too late."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took >= seconds:
        raise TooLate(f"took {took:.1f} s; at most {seconds:g} s are allowed")
