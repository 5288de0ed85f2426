"""What Spark says when a barrier job fails, in one line instead of a hundred."""

from __future__ import annotations

import re

CANCELLED = "its Spark job was cancelled"
WORKER_DIED = "its Python worker process died (killed, out of memory, or ended by a function, as by os._exit)"

_FAILED_TASK = re.compile(r"barrier task ResultTask\(\d+, (\d+)\)")
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure .*?Reason: (.+)")
_TRACEBACK = re.compile(r"(Traceback \(most recent call last\):\n.*?)(?=\n SQLSTATE|\n\tat )", re.S)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_EXCEPTION = re.compile(r"^(?:: )?[\w.$]+(?:Exception|Error): (.+)", re.M)


def explain(error: str) -> tuple[int | None, str]:
    """The failed task's index, if Spark names one, and the essence of its many lines."""
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
    if traceback := _TRACEBACK.search(error):
        return index, f"its Python worker raised an error\n{traceback[1].rstrip()}"
    if "SPARK_JOB_CANCELLED" in error or "part of cancelled job group" in error:  # the latter in Spark 3.5
        return index, CANCELLED
    reasons = _EXCEPTION.findall(error)
    return index, f"Spark: {reasons[1 if index is not None and len(reasons) > 1 else 0] if reasons else error.strip()}"
