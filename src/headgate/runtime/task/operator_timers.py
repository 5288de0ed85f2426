"""What an operator has to do by the clock. Its task does it between two batches, also while there is no input."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headgate.operators.operator import Operator
from headgate.runtime.task.chain import ToOperator


def operator_timers(entries: Sequence[ToOperator]) -> list[OperatorTimers]:
    """For those operators of a task that have something to do by the clock."""
    timed = [entry for entry in entries if type(entry.operator).next_time is not Operator.next_time]
    return [OperatorTimers(entry) for entry in timed]


class OperatorTimers:
    """It is a `Timed`. Its task leaves it alone while it is back-pressured: what timers emit would have no room."""

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
