"""What the end of a job may take, whatever brought it about: one bound for all tests, and several tries to keep it.

A test that measures such a time has the machine for itself, as far as it is up to us; something else may still run
there and stretch any single end. So a test that fails for this reason alone is run again, and its best time counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _pytest.runner import runtestprotocol

#: From a kill, a cancel or an error until `wait()` has returned and nothing of the job is left, seconds.
END = 5.0

#: How often a test may try.
TRIES = 3

_LATE = pytest.StashKey[bool]()


class TooLate(AssertionError):
    """The end came, but not in time."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took >= seconds:
        raise TooLate(f"took {took:.1f} s, not {seconds:g} s at the most")


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None:
        item.stash[_LATE] = isinstance(call.excinfo.value, TooLate)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest's own, with fixtures made again for each try."""
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
