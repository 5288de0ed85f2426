"""Finds the cause of the failure in Spark's long message about a failed barrier job."""

from __future__ import annotations

import re

CANCELLED = "its Spark job was cancelled"
WORKER_DIED = "its Python worker process died (killed, out of memory, or ended by a function, as by os._exit)"

_FAILED_TASK = re.compile(r"barrier task ResultTask\(\d+, (\d+)\)")
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure (?:(?!ExecutorLostFailure ).)*?Reason: (.+)")
_TRACEBACK = "Traceback (most recent call last):\n"
_END_OF_TRACEBACK = re.compile(r"\n SQLSTATE|\n\tat ")
#: The most characters of a traceback that are shown. Of a longer traceback only the end is shown.
_LONGEST = 20_000
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_EXCEPTION = re.compile(r"^(?:: )?[\w.$]+(?:Exception|Error): (.+)", re.M)


def explain(error: str) -> tuple[int | None, str]:
    """Return the index of the failed task and the cause of the failure. The index is None if Spark names no task."""
    task = _FAILED_TASK.search(error)
    index = int(task[1]) if task else None
    if lost := _EXECUTOR_LOST.search(error):
        return index, f"its Spark executor was lost: {lost[1]}"
    if "Python worker exited unexpectedly" in error:
        return index, WORKER_DIED
    if missing := _NO_MODULE.search(error):
        return index, (
            f"the executors' Python has no module {missing[1]!r}; install the same packages there as here, "
            "or set PYSPARK_PYTHON to an interpreter that has them"
        )
    if traceback := _traceback(error):
        return index, f"its Python worker raised an error\n{traceback}"
    if "SPARK_JOB_CANCELLED" in error or "part of cancelled job group" in error:  # the latter in Spark 3.5
        return index, CANCELLED
    reasons = _EXCEPTION.findall(error)
    return index, f"Spark: {reasons[1 if index is not None and len(reasons) > 1 else 0] if reasons else error.strip()}"


def _traceback(error: str) -> str:
    """Return the first traceback in Spark's message; "" if there is none.

    The traceback ends before the text that Spark adds. One regular expression for begin and end would be slow: it would
    look for the end again for each line that begins a traceback.
    """
    begin = error.find(_TRACEBACK)
    end = None if begin < 0 else _END_OF_TRACEBACK.search(error, begin)
    if end is None:
        return ""
    found = error[begin : end.start()].rstrip()
    return found if len(found) <= _LONGEST else f"{_TRACEBACK}...{found[-_LONGEST:]}"
