"""An operator's event time is the minimum over its channels, those that are idle or ended excepted."""

from __future__ import annotations

from headgate.records.elements import MAX_TIME, MIN_TIME


class WatermarkValve:
    """Merges the watermarks and statuses of a task's channels (Flink's StatusWatermarkValve).

    A channel that comes back from idleness counts again once it has reached the watermark that went out meanwhile, so
    that the output never goes back. A channel at MAX_TIME has ended and does not count either, until all have ended: or
    the task would be at the end of time as soon as those that are left are idle, and all their rows late (in Flink it
    is). Methods return what has changed for the task, or None.
    """

    def __init__(self, channels: int) -> None:
        self._times = [MIN_TIME] * channels
        self._active = [True] * channels
        self._aligned = [True] * channels
        self.output = MIN_TIME
        self._holding = channels  # how many channels that count are at `output`, and so hold it back
        self._output_active = True

    def on_watermark(self, channel: int, time: int) -> int | None:
        """A channel's watermark has come; returns the task's new one if it has moved."""
        before = self._times[channel]
        if time <= before:
            return None
        self._times[channel] = time
        if self._aligned[channel] and before < MAX_TIME:
            self._holding -= before == self.output
            if self._holding > 0:  # with a thousand channels the usual case, and then not all need a look
                return None
        if self._active[channel] and time >= self.output:
            self._aligned[channel] = True
        return self._advance()

    def on_status(self, channel: int, active: bool) -> tuple[int | None, bool | None]:
        """A channel turned idle or active: the task's new watermark and new status, each None if unchanged."""
        self._active[channel] = active
        self._aligned[channel] = active and self._times[channel] >= self.output
        return self._advance(), self._update_status()

    def end(self, channel: int) -> tuple[int | None, bool | None]:
        """A channel has ended and holds back no watermark, even if it was idle; returns what `on_status` does."""
        return self.on_watermark(channel, MAX_TIME), self._update_status()

    def _update_status(self) -> bool | None:
        left = [active for active, time in zip(self._active, self._times, strict=True) if time < MAX_TIME]
        if not left or any(left) == self._output_active:
            return None
        self._output_active = any(left)
        return self._output_active

    def _advance(self) -> int | None:
        times = [time for time, counts in zip(self._times, self._aligned, strict=True) if counts and time < MAX_TIME]
        lowest = min(times, default=MAX_TIME)
        self._holding = times.count(lowest)
        if not times and min(self._times) < MAX_TIME:
            return None
        if lowest <= self.output:
            return None
        self.output = lowest
        return lowest
