"""The watermarks and the idleness of one source subtask. The caller passes the time or a clock; no function of
this module waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.schemas import shown
from headgate.errors import DataError, PlanError
from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.records.canonical import raw_values

#: By timestamp unit: the factor and the divisor that turn times of this unit into microseconds.
_TO_US = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
#: An `out_of_orderness` without a bound: the only watermark comes at the end of the input, and no row is late.
UNBOUNDED = MAX_TIME - MIN_TIME


class WatermarkGenerator:
    """The watermark of one source subtask: the largest event time of its split, minus `out_of_orderness`.

    The watermark never goes back. If the reader reads one split after the other, only the current split counts. If it
    reads several splits at once, the watermark is the least of the open splits that are not idle. Times are
    microseconds since the epoch; a column without a zone is UTC. `idle_timeout` is in seconds of `clock`. It is None
    for bounded sources, which are never idle. `max_drift` is in microseconds, or None for no limit. Raises PlanError if
    `column` is missing or not a timestamp.
    """

    def __init__(self, column: str, schema: pa.Schema, *, out_of_orderness: int = 0,
                 on_null_time: Literal["error", "late"] = "error", idle_timeout: float | None = None,
                 max_drift: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        index = schema.get_field_index(column)
        if index < 0:
            raise PlanError(f"watermark: there is no column {column!r}; the source has: {shown(schema)}")
        type_ = schema.field(index).type
        if not pa.types.is_timestamp(type_):
            raise PlanError(f"watermark: column {column!r} is {type_}, not a timestamp; give the source a schema=")
        self.watermark = MIN_TIME
        self._column = column
        self._index = index
        self._times, self._by = _TO_US[type_.unit]
        self._out_of_orderness = out_of_orderness
        self._nulls_are_late = on_null_time == "late"
        self._split = 0
        self._largest = MIN_TIME
        self._idle = IdleTimer(idle_timeout, clock())
        self._max_drift = max_drift
        self._splits = OpenSplits(idle_timeout)
        self._clock = clock

    def observe(self, batch: pa.RecordBatch, split: int) -> int:
        """Return the watermark after a batch of the given split.

        Raises DataError for a null time if `on_null_time` is "error".
        """
        self._idle.restart(self._clock())
        if split != self._split:
            self._split, self._largest = split, MIN_TIME
        self._largest = max(self._largest, self._largest_time(batch))
        return self._advance(self._largest)

    def observe_splits(
        self, batch: pa.RecordBatch, rows_by_split: Sequence[tuple[int, int]], open_splits: Collection[int]
    ) -> int:
        """Return the watermark after a batch of a reader that reads several splits at once.

        The watermark is the least of the watermarks of the `open_splits` that are not idle. `rows_by_split` has the
        splits of the batch's rows, in order, as pairs (split, number of rows). Raises as `observe`.
        """
        now, start = self._clock(), 0
        self._splits.keep(open_splits, now)
        if batch.num_rows:
            self._idle.restart(now)
        for split, rows in rows_by_split:
            if rows:  # a reader may report the position of a split that has had no rows
                self._splits.observe(split, self._largest_time(batch.slice(start, rows)), now)
            start += rows
        return self.leave_idle_splits(now)

    def leave_idle_splits(self, now: float) -> int:
        """Return the watermark at `now`: splits that have become idle no longer hold it back."""
        return self._advance(self._splits.least(now))

    def splits_ahead(self, now: float) -> frozenset[int]:
        """Return the open splits that are more than `max_drift` ahead of the slowest one, so that they must wait.

        While splits wait, neither they nor the reader become idle.
        """
        ahead = frozenset[int]() if self._max_drift is None else self._splits.hold_ahead(self._max_drift, now)
        if ahead:
            self._idle.restart(now)
        return ahead

    def _advance(self, largest: int) -> int:
        if largest > MIN_TIME:
            self.watermark = max(self.watermark, min(largest - self._out_of_orderness, MAX_TIME - 1))
        return self.watermark

    def _largest_time(self, batch: pa.RecordBatch) -> int:
        """Return the largest event time of the batch, or MIN_TIME if it has none. Raises DataError for a null time."""
        times = batch.column(self._index)
        if times.null_count and not self._nulls_are_late:
            raise DataError(
                f"column {self._column!r} is null in {times.null_count} of {batch.num_rows} rows, so they have no "
                'event time; drop them in the source, or use hg.Watermark(..., on_null_time="late") for late ones'
            )
        if len(times) == times.null_count:
            return MIN_TIME
        if times.null_count:
            largest: int = pc.max(times).value
        else:  # NumPy's `max` takes a tenth of the time of Arrow's `max`
            values = raw_values(times)
            largest = values.item(0) if len(values) == 1 else int(values.max())
        return largest * self._times // self._by

    def reach(self, time: int) -> int:
        """Return the watermark after the reader has reported that event time has reached `time`."""
        self.watermark = max(self.watermark, min(time, MAX_TIME - 1))
        return self.watermark

    def position(self) -> int:
        """Return the watermark, which must survive a restart, as a JSON value. After a restart the idle clock starts
        again."""
        return self.watermark

    def restore(self, positions: Sequence[int], subtask: int, parallelism: int) -> None:
        """Resume from the positions of all earlier subtasks, by number.

        If the parallelism is unchanged, the watermark is the subtask's own position. If the parallelism has changed,
        the watermark is the least of all positions: the subtask may continue a split of any earlier subtask.
        """
        self.watermark = positions[subtask] if len(positions) == parallelism else min(positions)

    def split_times(self) -> dict[int, int]:
        """Return the largest event time of each split that is read at the same time as others. Splits that have had no
        rows are left out."""
        return self._splits.times()

    def holding_splits(self, now: float) -> dict[int, int]:
        """Return the open splits that hold back the watermark, each with its largest event time.

        These are the splits that are not idle and whose largest event time is the least. Without rows it is MIN_TIME.

        Any thread may call this method.
        """
        return self._splits.holding(now)

    def silence(self, now: float) -> float | None:
        """Return for how many seconds some split that holds back the watermark has had no rows.

        Pauses count. Return None if no open split holds it back. Any thread may call this method.
        """
        return self._splits.silence(now)

    def restore_splits(self, open_splits: Collection[int], times: Mapping[int, int]) -> None:
        """Resume with the largest event times of open splits, as `split_times` returned them before the restart.

        A split without further rows therefore holds back the watermark at the time of its last row, not at MIN_TIME.
        """
        self._splits.restore(open_splits, times, self._clock())

    def is_idle(self, now: float) -> bool:
        """Return whether the reader has had no rows for `idle_timeout`. Pauses do not count."""
        return self._idle.is_over(now)

    def pause(self, now: float) -> None:
        """Stop the idle clocks, because back-pressure holds the reader back. Repeated calls change nothing."""
        self._idle.pause(now)
        self._splits.pause(now)

    def resume(self, now: float) -> None:
        """Let the idle clocks run again, because the reader may read."""
        self._idle.resume(now)
        self._splits.resume(now)


class OpenSplits:
    """The largest event time of each split that a reader reads at the same time as others, and which splits are idle.

    A split is idle if it has had no rows for `timeout` seconds. Pauses do not count. With a `timeout` of None, no
    split is ever idle.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._largest: dict[int, int] = {}
        self._timers: dict[int, IdleTimer] = {}

    def keep(self, splits: Collection[int], now: float) -> None:
        """Add the splits that are new, and forget those that are no longer among `splits`."""
        for split in self._largest.keys() - set(splits):
            del self._largest[split], self._timers[split]
        for split in splits:
            if split not in self._largest:
                self._largest[split], self._timers[split] = MIN_TIME, IdleTimer(self._timeout, now)

    def restore(self, splits: Collection[int], times: Mapping[int, int], now: float) -> None:
        """Add `splits`, whose largest event times before a restart were `times`."""
        self.keep(splits, now)
        self._largest.update(times)

    def times(self) -> dict[int, int]:
        """Return the largest event time of each split that has had rows."""
        return {split: time for split, time in self._largest.items() if time > MIN_TIME}

    def observe(self, split: int, largest: int, now: float) -> None:
        """Record rows of a split, with their largest event time. A split that is no longer open does not count."""
        if split in self._largest:
            self._largest[split] = max(self._largest[split], largest)
            self._timers[split].restart(now)

    def least(self, now: float) -> int:
        """Return the least of the largest event times of all splits that are not idle.

        If all splits are idle, those that have had rows count. If there are none, return MIN_TIME.
        """
        times = [time for split, time in self._largest.items() if not self._timers[split].is_over(now)]
        return min(times or [time for time in self._largest.values() if time > MIN_TIME], default=MIN_TIME)

    def hold_ahead(self, drift: int, now: float) -> frozenset[int]:
        """Return the splits whose time is more than `drift` above `least`. Their idle clocks stop, those of the others
        run."""
        limit = self.least(now) + drift
        ahead = frozenset(split for split, time in self._largest.items() if time > limit)
        for split, timer in self._timers.items():
            (timer.pause if split in ahead else timer.resume)(now)
        return ahead

    def holding(self, now: float) -> dict[int, int]:
        """Return the splits that are not idle and have the least of the largest event times, with this time."""
        largest, timers = self._largest.copy(), self._timers.copy()  # the task thread may change them now
        active = {split: time for split, time in largest.items() if split in timers and not timers[split].is_over(now)}
        least = min(active.values(), default=MIN_TIME)
        return {split: time for split, time in active.items() if time == least}

    def silence(self, now: float) -> float | None:
        """Return the longest time for which one of the `holding` splits has had no rows, or None if there is none.

        Pauses count, since event time stands then, too.
        """
        timers = self._timers.copy()  # the task thread may change them now
        held = [timers[split] for split in self.holding(now) if split in timers]
        return max((now - timer.restarted_at for timer in held), default=None)

    def pause(self, now: float) -> None:
        for timer in self._timers.values():
            timer.pause(now)

    def resume(self, now: float) -> None:
        for timer in self._timers.values():
            timer.resume(now)


class IdleTimer:
    """A timer that is over `timeout` seconds after the last `restart`. Pauses do not count. With a `timeout` of None,
    the timer is never over."""

    def __init__(self, timeout: float | None, now: float) -> None:
        self._timeout = timeout
        #: The time of the last `restart`, without regard to pauses.
        self.restarted_at = now
        self._since = now
        self._paused_at: float | None = None

    def restart(self, now: float) -> None:
        self.restarted_at = self._since = now
        if self._paused_at is not None:
            self._paused_at = now

    def pause(self, now: float) -> None:
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: float) -> None:
        if self._paused_at is not None:
            self._since += now - self._paused_at
            self._paused_at = None

    def is_over(self, now: float) -> bool:
        if self._timeout is None:
            return False
        paused_at = self._paused_at  # the task thread may change it now
        return (now if paused_at is None else paused_at) - self._since >= self._timeout
