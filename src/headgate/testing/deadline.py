"""The error of a test whose pipeline does not finish a step in time."""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from collections.abc import Set
from pathlib import Path
from typing import Final

from headgate.operators.conversion import shown

#: The names of all threads of a job begin with this.
_THREAD_PREFIX: Final = "headgate-"
_PACKAGE: Final = str(Path(__file__).parents[1])
_PYTHON: Final = sysconfig.get_path("stdlib")


def overdue(what: object, timeout: float, others: Set[threading.Thread]) -> TimeoutError:
    """Return the error of a step `what` that took longer than `timeout` seconds.

    Its message shows the stacks of the user's functions that run at that moment, by thread. The threads `others` belong
    to other jobs.
    """
    frames, stacks = sys._current_frames(), []
    for thread in threading.enumerate():
        is_of_job = thread.name.startswith(_THREAD_PREFIX) and thread not in others
        if is_of_job and thread.ident in frames:
            stack = traceback.extract_stack(frames[thread.ident])
            user_frames = [frame for frame in stack if not _is_engine(frame.filename)]
            if user_frames:
                lines = "".join(traceback.format_list(user_frames)).rstrip()
                stacks.append(f"{thread.name.removeprefix(_THREAD_PREFIX)} is at\n{lines}")
    running = "\n".join(stacks) if stacks else "None of your functions is running."
    step = what if isinstance(what, str) else shown(what)
    return TimeoutError(f"the pipeline did not finish {step} within {timeout:g} s. {running}")


def _is_engine(file: str) -> bool:
    is_standard_library = file.startswith(_PYTHON) and "site-packages" not in file
    return is_standard_library or file.startswith((_PACKAGE, "<"))
