"""A test that would wait for ever: how long it waits, and what it is told then."""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import Final

import headgate
from headgate.operators.conversion import shown

#: Threads of tasks, of readers, and of what else a job has.
_OURS: Final = "headgate-"
_PACKAGE: Final = str(Path(headgate.__file__).parent)
_PYTHON: Final = sysconfig.get_path("stdlib")


def overdue(what: object, timeout: float) -> TimeoutError:
    """The error of a pipeline that is not through with `what`: it shows which functions of the user's are at work."""
    frames, found = sys._current_frames(), []
    for thread in threading.enumerate():
        if thread.name.startswith(_OURS) and thread.ident in frames:
            stack = traceback.extract_stack(frames[thread.ident])
            yours = [frame for frame in stack if not _is_ours(frame.filename)]
            if yours:
                lines = "".join(traceback.format_list(yours)).rstrip()
                found.append(f"{thread.name.removeprefix(_OURS)} is at\n{lines}")
    works = "\n".join(found) if found else "No function of yours is at work."
    said = what if isinstance(what, str) else shown(what)
    return TimeoutError(f"the pipeline is not through with {said} after {timeout:g} s. {works}")


def _is_ours(file: str) -> bool:
    is_pythons = file.startswith(_PYTHON) and "site-packages" not in file
    return is_pythons or file.startswith((_PACKAGE, "<"))
