"""The processing-time clock of a test: it moves only when the test advances it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import isclass, isfunction, signature
from typing import Any

from headgate.errors import ConfigError
from headgate.operators.operator import Operator, OperatorFactory
from headgate.operators.windows.clock_windows import ByClock
from headgate.operators.windows.window_operator import WindowOperator
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


def _if_due(due: int | None, clock: Callable[[], float]) -> int | None:
    """Return 0 if work is due now by the test's clock, otherwise None.

    A task runs on the machine's clock. It cannot wait for a time of the test's clock.
    """
    return 0 if due is not None and due <= int(clock() * 1e6) else None


class _Polled(Operator):
    """A base class of operators on the test's clock. Their task, on the machine's clock, polls their timers."""

    _clock: Callable[[], float]

    def next_time(self) -> int | None:
        return _if_due(super().next_time(), self._clock)


def reads_clock(kind: type[Operator]) -> bool:
    """Return whether operators of this kind go by a clock: their constructor takes the argument `clock`.

    Windows of event time take a clock too, but only to record when they emitted rows.
    """
    if issubclass(kind, WindowOperator):
        return issubclass(kind, ByClock)
    constructors = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    return any("clock" in signature(each).parameters for each in constructors if isfunction(each))


@cache
def _polled(kind: type[Operator]) -> type[Operator]:
    """Return a subclass that a task polls, if operators of this kind have timers."""
    has_timers = kind.next_time is not Operator.next_time
    return type(f"Polled{kind.__name__}", (_Polled, kind), {}) if has_timers else kind


def on_clock(factory: OperatorFactory, clock: SetClock, *, in_task: bool) -> OperatorFactory:
    """Return a factory whose operator reads `clock`. Return the factory itself for operators that read no clock.

    With `in_task`, a task drives the operator and polls it on the machine's clock. Otherwise the test drives the
    operator.
    """
    if not isinstance(factory, partial) or not isclass(factory.func):
        return factory
    kind: Any = factory.func
    if not reads_clock(kind):
        return factory
    keywords: dict[str, Any] = {**factory.keywords, "clock": clock}
    return partial(_polled(kind) if in_task else kind, *factory.args, **keywords)
