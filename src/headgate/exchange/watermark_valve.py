"""An operator's event time is the minimum over its channels, those that are idle or ended excepted."""

from __future__ import annotations

from headgate.records.elements import MAX_TIME, MIN_TIME


class WatermarkValve:
    """Merges the watermarks and statuses of a task's channels (Flink's StatusWatermarkValve).

    A channel that comes back from idleness counts again once it has reached the watermark that went out meanwhile, so
    that the output never goes back. Methods return what has changed for the task, or None.
    """

    def __init__(self, channels: int) -> None:
        self._times = [MIN_TIME] * channels
        self._active = [True] * channels
        self._aligned = [True] * channels
        self.output = MIN_TIME
        self._output_active = True

    def watermark(self, channel: int, time: int) -> int | None:
        """A channel's watermark has come; returns the task's new one if it has moved."""
        if time <= self._times[channel]:
            return None
        self._times[channel] = time
        if self._active[channel] and time >= self.output:
            self._aligned[channel] = True
        return self._advance()

    def status(self, channel: int, active: bool) -> tuple[int | None, bool | None]:
        """A channel turned idle or active: the task's new watermark and new status, each None if unchanged."""
        self._active[channel] = active
        self._aligned[channel] = active and self._times[channel] >= self.output
        any_active = any(self._active)
        changed = any_active if any_active != self._output_active else None
        self._output_active = any_active
        return (self._advance() if any_active else None), changed

    def end(self, channel: int) -> int | None:
        """A channel has ended: it does not hold back the others, even if it was idle."""
        self._active[channel] = self._aligned[channel] = True
        return self.watermark(channel, MAX_TIME)

    def _advance(self) -> int | None:
        times = [time for time, aligned in zip(self._times, self._aligned, strict=True) if aligned]
        if not times:
            return None
        lowest = min(times)
        if lowest <= self.output:
            return None
        self.output = lowest
        return lowest
