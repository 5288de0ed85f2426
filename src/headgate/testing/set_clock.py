"""The processing-time clock of a test: it stands until the test advances it."""

from __future__ import annotations

from functools import partial
from typing import Any

from headgate.errors import ConfigError
from headgate.operators.keyed.keyed_process import KeyedProcess
from headgate.operators.operator import OperatorFactory
from headgate.testing.moments import in_microseconds, shown_moment


class SetClock:
    """Microseconds since 1970-01-01T00:00Z, where it begins. Read by the tasks' threads, set by the test's."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> float:
        return (self.now + 0.5) / 1e6  # seconds that are cut to the same microsecond

    def advance(self, moment: object) -> None:
        """Raises ConfigError for a moment before this one."""
        now = in_microseconds("advance_clock", moment)
        if now < self.now:
            raise ConfigError(
                f"advance_clock: {shown_moment(now)} is before {shown_moment(self.now)}; a clock never goes back"
            )
        self.now = now


class _InTask(KeyedProcess):
    """Its task's clock is the machine's, so it says only whether something is due: then it was due in 1970."""

    def next_time(self) -> int | None:
        due = super().next_time()
        return 0 if due is not None and due <= int(self._clock() * 1e6) else None


def on_clock(factory: OperatorFactory, clock: SetClock, *, in_task: bool) -> OperatorFactory:
    """The factory of an operator that reads this clock, if it reads one at all; in a task the task asks it when it has
    something to do."""
    if not isinstance(factory, partial) or factory.func is not KeyedProcess:
        return factory
    keywords: dict[str, Any] = {**factory.keywords, "clock": clock}
    return partial(_InTask if in_task else KeyedProcess, *factory.args, **keywords)
