"""The operators of windows with `time="processing"`: a row is in the window of the moment when it comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.operators.operator import MAX_TIME
from headgate.operators.windows.session_state import SessionState
from headgate.operators.windows.session_window import SessionAggregate
from headgate.operators.windows.time_shards import State, TimeShard
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_operator import WindowOperator
from headgate.operators.windows.window_state import WindowState
from headgate.records.canonical import Int64s
from headgate.state.snapshot import Snapshot


class ByClock(WindowOperator[State]):
    """The part that the operators have in common: the clock moves their time on, and watermarks only pass through.

    The time never goes back: if the clock of a restarted job is behind the checkpoint's, time stands still until the
    clock has caught up. A window that ended while the job was down fires when the job runs again. When the input ends,
    the open windows fire at once.
    """

    #: The time, in microseconds, at which windows may fire, or None if no window is open.
    _due: int | None = None

    def process(self, batch: pa.RecordBatch) -> None:
        self._advance_all(self._now())
        super().process(batch)
        self._set_due()

    def _times(self, shard: TimeShard[State], batch: pa.RecordBatch) -> Int64s:
        return np.full(batch.num_rows, shard.watermark)

    def process_watermark(self, time: int) -> None:
        self.output.emit_watermark(time)

    def next_time(self) -> int | None:
        return self._due

    def on_processing_time(self) -> None:
        self._move_to(self._now())

    def end_input(self) -> None:
        self._move_to(MAX_TIME)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        super().restore(snapshots)
        self._set_due()

    def _move_to(self, time: int) -> None:
        self._advance_all(time)
        self._set_due()

    def _set_due(self) -> None:
        numbers = [shard.state.next_number(shard.fired) for shard in self._shards]
        self._due = min((self._ends_at(number) for number in numbers if number is not None), default=None)

    def _now(self) -> int:
        return int(self._clock() * 1e6)


class ClockWindows(ByClock[WindowState], WindowAggregate):
    """The operator of `hg.tumble` and `hg.hop` by the clock. See `ByClock` and `WindowAggregate`."""

    what = "an aggregation of windows by the clock"


class ClockSessions(ByClock[SessionState], SessionAggregate):
    """The operator of `hg.session` by the clock. See `ByClock` and `SessionAggregate`."""

    what = "an aggregation of sessions by the clock"
