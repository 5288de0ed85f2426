"""A crash at a chosen line of a connector's code: an error that no `except Exception` catches."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


class SimulatedCrash(BaseException):
    """The program ends here."""


class LineCrash:
    """Counts the lines that a connector's code runs, and crashes before line `number`, counted from 0.

    The connector's code is that of its class, and of all modules in the same package. None: no crash, only count.
    """

    def __init__(self, connector: object, number: int | None = None) -> None:
        self._place = _place_of(type(connector))
        self._number = number
        self.lines = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count, and crash, within the block."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._place) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            if self.lines == self._number:
                self.lines += 1
                raise SimulatedCrash
            self.lines += 1
        return self._line


def _place_of(kind: type) -> str:
    """Return the file of a class, or the folder of its package with a slash."""
    module = sys.modules[kind.__module__]
    file = inspect.getsourcefile(kind) or ""
    return f"{Path(file).parent}/" if getattr(module, "__package__", "") else file
