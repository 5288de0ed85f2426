"""A job that cannot get past a row says so, and only then."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.runtime.master.restart_log import RestartLog


def repeats(caplog: pytest.LogCaptureFixture, *errors: hg.HeadgateError) -> list[str]:
    """Log a restart after each error. Returns the beginnings of the warnings about repeated errors."""
    restarts = RestartLog("job")
    for error in errors:
        restarts.restarts(None, error)
    messages = [record.getMessage() for record in caplog.records]
    assert [text for text in messages if "starts again" in text] == [
        f"job 'job' starts again from the beginning, after: {error}" for error in errors
    ]
    return [text[:28] for text in messages if "in a row" in text]


def test_each_third_failure_with_the_same_text_is_named(caplog: pytest.LogCaptureFixture) -> None:
    errors = [hg.UserFunctionError("boom") for _ in range(7)]
    assert repeats(caplog, *errors) == ["job 'job' has failed 3 times", "job 'job' has failed 6 times"]


def test_other_failures_in_between_start_the_count_again(caplog: pytest.LogCaptureFixture) -> None:
    boom, bang = hg.UserFunctionError("boom"), hg.DataError("bang")
    assert repeats(caplog, boom, boom, bang, boom, boom, bang) == []


def test_losses_of_processes_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    assert repeats(caplog, *[hg.TaskManagerLost("exit code 9") for _ in range(6)]) == []
