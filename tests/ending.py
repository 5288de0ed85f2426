"""The time that the end of a job may take: one bound for all tests, and several tries to keep it.

Other programs can delay any single end. So pytest-rerunfailures runs a test that fails with `TooLate` up to twice again
(pyproject.toml); its best time counts. No other test runs beside a test with the mark `alone`. Tests with the mark
`ends` cost more: `make test` runs them beside other tests with a wider bound, and `make soak` runs them alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds from a kill, a cancel or an error until `wait()` has returned and the job has left nothing running.
END = 25.0 if "PYTEST_XDIST_WORKER" in os.environ else 5.0


class TooLate(AssertionError):
    """The job ended, but too late."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took >= seconds:
        raise TooLate(f"took {took:.1f} s; at most {seconds:g} s are allowed")
