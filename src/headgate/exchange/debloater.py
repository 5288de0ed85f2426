"""Buffer debloating: how large buffers have to be for what is in flight to be about `target` seconds of work.

Rule, defaults and vectors are Flink's (BufferDebloater, FLIP-183). Pure: throughput and the number of buffers
in use come in, the size to announce to the producers comes out. The number of buffers and their memory stay as they
are; only so much of each is filled.
"""

from __future__ import annotations

from typing import Final


class BufferDebloater:
    """One input gate's buffer size, in bytes; it starts at `largest`."""

    def __init__(self, *, target: float, samples: int, threshold_percentages: int, smallest: int, largest: int) -> None:
        self._target = target
        self._alpha = 2 / (samples + 1)
        self._threshold = threshold_percentages / 100
        self._smallest = min(smallest, largest)
        self._largest = largest
        self._announced = largest
        self.size = largest
        #: How long what is in flight would take to consume, seconds.
        self.time_to_consume = 0.0

    def recalculate(self, throughput: float, buffers: int) -> int | None:
        """The gate consumed `throughput` bytes/s while it had data, and `buffers` are in use. Returns a new size when
        producers should get, else None."""
        buffers = max(1, buffers)
        self.size = self._average(throughput * self._target / buffers)
        self.time_to_consume = self.size * buffers / throughput if throughput else 0.0
        if not self._is_news():
            return None
        self._announced = self.size
        return self.size

    def _average(self, instant: float) -> int:
        """Exponential moving average; growing is limited so that it takes as many steps as shrinking."""
        moved = self.size + self._alpha * (min(instant, 2 * self.size) - self.size)
        return max(self._smallest, min(int(moved), self._largest))

    def _is_news(self) -> bool:
        if self.size in (self._smallest, self._largest):
            return self.size != self._announced
        return abs(self.size - self._announced) >= self._announced * self._threshold


#: Messages are not made smaller than this: below it their own bytes and steps cost more than what is in them.
MESSAGE_FLOOR: Final = 4 << 10


def debloated_message_size(message_size: int, buffer_size: int, segment_size: int) -> int:
    """Messages shrink with the buffers that carry them (ours: Flink's records are no smaller for debloating)."""
    return max(min(MESSAGE_FLOOR, message_size), message_size * buffer_size // segment_size)
