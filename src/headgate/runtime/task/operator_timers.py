"""The processing-time timers of operators. The task runs them between two batches, also while it has no input."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.operators.operator import Operator
from headgate.runtime.task.chain import ToOperator
from headgate.runtime.task.clocks import SYSTEM, Clocks


def operator_timers(entries: Sequence[ToOperator], clocks: Clocks = SYSTEM) -> list[OperatorTimers]:
    """Return an `OperatorTimers` for each operator that uses processing time."""
    timed = [entry for entry in entries if type(entry.operator).next_time is not Operator.next_time]
    return [OperatorTimers(entry, clocks) for entry in timed]


class OperatorTimers:
    """The processing-time timers of one operator (a `Timed`).

    A back-pressured task does not run timers, because the task's output has no room for the rows that timers emit.
    """

    def __init__(self, entry: ToOperator, clocks: Clocks) -> None:
        self._entry = entry
        self._clocks = clocks

    @property
    def deadline(self) -> float | None:
        at = self._entry.operator.next_time()
        return None if at is None else self._clocks.monotonic_at(at / 1e6)

    def on_time(self, now: float) -> None:
        deadline = self.deadline
        if deadline is not None and now >= deadline:
            self._entry.on_processing_time()
