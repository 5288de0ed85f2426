"""A job that cannot get past a row says so, and only then."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.runtime.master.repeated_failures import RepeatedFailures


def warnings(caplog: pytest.LogCaptureFixture, *errors: hg.HeadgateError) -> list[str]:
    failures = RepeatedFailures("job")
    for error in errors:
        failures.note(error)
    return [record.getMessage()[:29] for record in caplog.records]


def test_each_third_failure_with_the_same_text_is_named(caplog: pytest.LogCaptureFixture) -> None:
    errors = [hg.UserFunctionError("boom") for _ in range(7)]
    assert warnings(caplog, *errors) == ["job 'job' has failed 3 times ", "job 'job' has failed 6 times "]


def test_other_failures_in_between_start_the_count_again(caplog: pytest.LogCaptureFixture) -> None:
    boom, bang = hg.UserFunctionError("boom"), hg.DataError("bang")
    assert warnings(caplog, boom, boom, bang, boom, boom, bang) == []


def test_losses_of_processes_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(caplog, *[hg.TaskManagerLost("exit code 9") for _ in range(6)]) == []
