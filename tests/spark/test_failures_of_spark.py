from __future__ import annotations

import time

import pytest

from headgate.spark.failures import explain

TRACEBACK = "Traceback (most recent call last):\n"


def test_a_missing_package_is_explained() -> None:
    error = "... barrier task ResultTask(4, 1) finished ...\nModuleNotFoundError: No module named 'headgate'\n"
    index, reason = explain(error)
    assert index == 1
    assert "no module 'headgate'; install the same packages there" in reason


def test_an_unknown_failure_keeps_the_innermost_reason() -> None:
    error = (
        "An error occurred while calling o1.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted: barrier task ResultTask(3, 0) finished unsuccessfully.\n"
        'java.io.IOException: Cannot run program "/no/python": error=2\n\tat java.lang.ProcessBuilder.start\n'
    )
    assert explain(error) == (0, 'Spark: Cannot run program "/no/python": error=2')
    assert explain("the connection broke") == (None, "Spark: the connection broke")


@pytest.mark.parametrize("end", ["\n SQLSTATE: 39000", "\n\tat org.apache.spark.Thing"])
def test_what_a_worker_raised_is_shown(end: str) -> None:
    raised = f'{TRACEBACK}  File "a.py", line 1\nValueError: this\n\nDuring:\n\n{TRACEBACK}KeyError: that'
    assert explain(f"org.apache.spark.PythonException: {raised}{end}\n\tat java") == (
        None,
        f"its Python worker raised an error\n{raised}",
    )


def test_a_traceback_without_an_end_is_none() -> None:
    assert explain(f"a.b.FirstException: it broke\n{TRACEBACK}ValueError: this") == (None, "Spark: it broke")


@pytest.mark.parametrize(
    "line",
    [TRACEBACK, "ExecutorLostFailure ", "ExecutorLostFailure \n", "barrier task ResultTask(1, ", "a" * 99 + "\n",
     "a.", "ModuleNotFoundError: No module named '", f"{TRACEBACK}\n\tat "],
)  # fmt: skip
def test_no_text_takes_long(line: str) -> None:
    """A function's error may say anything."""
    begun = time.process_time()
    explain(line * (2_000_000 // len(line)))
    assert time.process_time() - begun < 10  # a search that is not linear takes far longer


def test_a_long_error_is_shown_in_part() -> None:
    _, reason = explain(f"{TRACEBACK}{'x' * 1_000_000}\nValueError: the end\n\tat java")
    assert len(reason) < 25_000
    assert reason.endswith("ValueError: the end")
