"""Locks that turn a deadlock, or a callback under a lock, into a failure on one thread."""

from __future__ import annotations

import pytest

from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.segment import MemorySegment


class CheckedLocks:
    """Makes the locks of one NetworkBufferPool: first its factory lock, then its queue lock, then local ones.

    Taking a lock twice, or against the order factory, local, queue, is what deadlocks with threads; here it raises.
    """

    def __init__(self) -> None:
        self.made = 0
        self.held: list[int] = []

    def __call__(self) -> _CheckedLock:
        rank = {0: 0, 1: 2}.get(self.made, 1)
        self.made += 1
        return _CheckedLock(self, rank)

    def assert_free(self) -> None:
        """Fail if the calling thread holds a lock. Callbacks call it, because they run without locks."""
        assert not self.held, f"a callback ran with locks of rank {self.held} held"


class _CheckedLock:
    def __init__(self, locks: CheckedLocks, rank: int) -> None:
        self._locks = locks
        self._rank = rank

    def __enter__(self) -> None:
        held = self._locks.held
        assert all(rank < self._rank for rank in held), f"lock of rank {self._rank} taken while holding {held}"
        held.append(self._rank)

    def __exit__(self, *_: object) -> None:
        self._locks.held.remove(self._rank)


def request_one(pool: LocalBufferPool, subpartition: int = 0) -> MemorySegment | None:
    """A segment, one of the overdraft if need be, or None."""
    segments = pool.request_many(1, subpartition, overdraft=True)
    return segments[0] if segments else None


@pytest.fixture
def locks() -> CheckedLocks:
    return CheckedLocks()


@pytest.fixture
def new_locks() -> type[CheckedLocks]:
    """The factory of lock factories, for tests that make many pools."""
    return CheckedLocks
