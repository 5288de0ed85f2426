"""Ctrl-C while a program waits for a job."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.api.results import finish


class Interrupted:
    """A job whose `wait` is interrupted, and then its `cancel` too."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def wait(self) -> Any:
        self.done.append("wait")
        raise KeyboardInterrupt("first")

    def cancel(self) -> None:
        self.done.append("cancel")
        raise KeyboardInterrupt("second")


def test_a_second_interrupt_leaves_only_the_first_in_the_traceback() -> None:
    job = Interrupted()
    with pytest.raises(KeyboardInterrupt) as caught:
        finish(job)  # type: ignore[arg-type]
    assert job.done == ["wait", "cancel"]
    assert caught.value.args == ("first",)
    assert caught.value.__context__ is None
