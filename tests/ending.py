"""The time that the end of a job may take: one bound for all tests, and several tries to keep it.

No other test runs beside a test that measures this time, but other programs may, and they can delay any single end. A
test that fails only because of the time therefore runs again; its best time counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _pytest.runner import runtestprotocol

#: Seconds from a kill, a cancel or an error until `wait()` has returned and the job has left nothing running.
END = 5.0

#: How often a test may try.
TRIES = 3

_LATE = pytest.StashKey[bool]()


class TooLate(AssertionError):
    """The job ended, but too late."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took >= seconds:
        raise TooLate(f"took {took:.1f} s; at most {seconds:g} s are allowed")


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None:
        item.stash[_LATE] = isinstance(call.excinfo.value, TooLate)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test as pytest does, but up to `TRIES` times while it is too late, each time with new fixtures."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(TRIES):
        item.stash[_LATE] = False
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not item.stash[_LATE]:
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
