"""The interface of the locks that the pools use: `threading.Lock` in a TaskManager, a checking lock in tests."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Lock(Protocol):
    """A non-reentrant lock that is used only as `with lock:`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


LockFactory = Callable[[], Lock]
