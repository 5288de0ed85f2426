from __future__ import annotations

from headgate.spark.failures import explain


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
