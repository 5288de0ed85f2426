"""The lock the pools are given: `threading.Lock` in a TaskManager, a checking one in tests."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Lock(Protocol):
    """A plain, non-reentrant mutual exclusion used only as `with lock:`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


LockFactory = Callable[[], Lock]
