"""The processing-time timers of operators. The task runs them between two batches, also while it has no input."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headgate.operators.operator import Operator
from headgate.runtime.task.chain import ToOperator


def operator_timers(entries: Sequence[ToOperator]) -> list[OperatorTimers]:
    """Return the timers of those operators that have something to do by the clock."""
    timed = [entry for entry in entries if type(entry.operator).next_time is not Operator.next_time]
    return [OperatorTimers(entry) for entry in timed]


class OperatorTimers:
    """The timers of one operator; a `Timed`. The task does not run them while it is back-pressured: their output would
    have no room."""

    def __init__(self, entry: ToOperator) -> None:
        self._entry = entry

    @property
    def deadline(self) -> float | None:
        at = self._entry.operator.next_time()
        return None if at is None else time.monotonic() + at / 1e6 - time.time()

    def on_time(self, now: float) -> None:
        deadline = self.deadline
        if deadline is not None and time.monotonic() >= deadline:
            self._entry.on_processing_time()
