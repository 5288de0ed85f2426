"""WatermarkValve: compute a task's event time, the minimum over the channels that are neither idle nor ended."""

from __future__ import annotations

from headgate.records.elements import MAX_TIME, MIN_TIME


class WatermarkValve:
    """The merged watermark, `output`, and the merged status of a task's channels (Flink's StatusWatermarkValve).

    A channel that becomes active again counts only after it has reached the task's watermark. The task's watermark
    therefore never decreases. When all channels are idle, the task's watermark is the latest of their watermarks. The
    order in which they became idle does not matter.

    A channel at MAX_TIME has ended, and it does not count until all channels have ended. Otherwise the task would reach
    MAX_TIME as soon as its remaining channels are idle, as in Flink. All later rows of these channels would then be
    late.

    Times are event times, in microseconds since the epoch. Each method returns the task's new value, or None if the
    value has not changed.
    """

    def __init__(self, channels: int) -> None:
        self._times = [MIN_TIME] * channels
        self._active = [True] * channels
        self._aligned = [True] * channels
        self.output = MIN_TIME
        self._holding = channels  # the number of counting channels that are at `output`: they hold it back
        self._output_active = True

    def on_watermark(self, channel: int, time: int) -> int | None:
        """Handle a channel's watermark. Returns the task's new watermark if it has advanced."""
        before = self._times[channel]
        if time <= before:
            return None
        self._times[channel] = time
        if self._aligned[channel] and before < MAX_TIME:
            self._holding -= before == self.output
            if self._holding > 0:  # the usual case with many channels: no scan over all of them is needed
                return None
        if self._active[channel] and time >= self.output:
            self._aligned[channel] = True
        return self._advance()

    def on_status(self, channel: int, active: bool) -> tuple[int | None, bool | None]:
        """Handle a channel's change to idle or active. Returns the task's new watermark and its new status."""
        self._active[channel] = active
        self._aligned[channel] = active and self._times[channel] >= self.output
        return self._advance(), self._update_status()

    def end(self, channel: int) -> tuple[int | None, bool | None]:
        """Handle the end of a channel, which no longer holds back the watermark. Returns the values of `on_status`."""
        return self.on_watermark(channel, MAX_TIME), self._update_status()

    def _update_status(self) -> bool | None:
        remaining = [active for active, time in zip(self._active, self._times, strict=True) if time < MAX_TIME]
        if not remaining or any(remaining) == self._output_active:
            return None
        self._output_active = any(remaining)
        return self._output_active

    def _advance(self) -> int | None:
        counting = [time for time, counts in zip(self._times, self._aligned, strict=True) if counts and time < MAX_TIME]
        reached = min(counting) if counting else self._reached_by_idle_channels()
        self._holding = counting.count(reached)
        if reached <= self.output:
            return None
        self.output = reached
        return reached

    def _reached_by_idle_channels(self) -> int:
        """Return the latest time of the channels that have not ended, if all of these are idle.

        If all channels have ended, return MAX_TIME. If an active channel remains, it has not reached the task's time
        yet: return the task's time.
        """
        remaining = [each for each in zip(self._times, self._active, strict=True) if each[0] < MAX_TIME]
        if any(active for _, active in remaining):
            return self.output
        return max((time for time, _ in remaining), default=MAX_TIME)
