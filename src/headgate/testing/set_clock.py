"""The processing-time clock of a test: it moves only when the test advances it."""

from __future__ import annotations

from functools import partial
from typing import Any

from headgate.errors import ConfigError
from headgate.operators.keyed.keyed_process import KeyedProcess
from headgate.operators.operator import OperatorFactory
from headgate.testing.moments import in_microseconds, shown_moment


class SetClock:
    """A clock that starts at 1970-01-01T00:00Z. `now` is in microseconds since that moment.

    Only the test's thread sets the clock. The tasks' threads call the clock to read it in seconds.
    """

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> float:
        # The middle of the microsecond, so that rounding of the float never gives an earlier microsecond.
        return (self.now + 0.5) / 1e6

    def advance(self, moment: object) -> None:
        """Move the clock to `moment`. Raises ConfigError if `moment` is earlier than the clock."""
        now = in_microseconds("advance_clock", moment)
        if now < self.now:
            raise ConfigError(
                f"advance_clock: {shown_moment(now)} is before {shown_moment(self.now)}; give a later time"
            )
        self.now = now


class _OnTaskClock(KeyedProcess):
    """A keyed process whose task runs on the machine's clock, while its timers run on the test's clock.

    The task cannot wait for a time of the test's clock. So `next_time` returns 0 if a timer is due now by the test's
    clock, otherwise None.
    """

    def next_time(self) -> int | None:
        due = super().next_time()
        return 0 if due is not None and due <= int(self._clock() * 1e6) else None


def on_clock(factory: OperatorFactory, clock: SetClock, *, in_task: bool) -> OperatorFactory:
    """Return a factory whose operator reads `clock`. Return the factory itself if it does not make a keyed process.

    With `in_task`, a task drives the operator and polls it on the machine's clock. Otherwise the test drives the
    operator.
    """
    if not isinstance(factory, partial) or factory.func is not KeyedProcess:
        return factory
    keywords: dict[str, Any] = {**factory.keywords, "clock": clock}
    return partial(_OnTaskClock if in_task else KeyedProcess, *factory.args, **keywords)
