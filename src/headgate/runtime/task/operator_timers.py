"""What an operator has to do by the clock: its task sees to it between two batches, also while there is no input."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import Operator
from headgate.runtime.task.chain import ToOperator


def operator_timers(entries: Sequence[ToOperator], writers: Sequence[RecordWriter]) -> list[OperatorTimers]:
    """For those operators of a task that have something to do by the clock."""
    timed = [entry for entry in entries if type(entry.operator).next_time is not Operator.next_time]
    return [OperatorTimers(entry, writers) for entry in timed]


class OperatorTimers:
    """It is a `Timed`. Nothing is due while the task is back-pressured: what timers emit would have no room."""

    def __init__(self, entry: ToOperator, writers: Sequence[RecordWriter]) -> None:
        self._entry = entry
        self._writers = writers

    @property
    def deadline(self) -> float | None:
        at = self._entry.operator.next_time()
        if at is None or not all(writer.is_available for writer in self._writers):
            return None
        return time.monotonic() + at / 1e6 - time.time()

    def on_time(self, now: float) -> None:
        deadline = self.deadline
        if deadline is not None and time.monotonic() >= deadline:
            self._entry.on_processing_time()
