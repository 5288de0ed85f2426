"""Buffer debloating: compute the buffer size with which the data in flight take about `target` seconds to consume.

The rule, the defaults and the test vectors are Flink's (BufferDebloater, FLIP-183). The calculation is pure: from the
throughput and the number of buffers in use it computes the size to announce to the producers. The number of buffers and
their memory do not change; a producer fills each buffer only up to that size.
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
        #: The time that the data in flight would take to consume, seconds.
        self.time_to_consume = 0.0

    def recalculate(self, throughput: float, buffers: int) -> int | None:
        """Update the size, and return it when it should be announced to the producers, else None.

        The gate consumed `throughput` bytes/s while it had data, and `buffers` are in use.
        """
        buffers = max(1, buffers)
        self.size = self._average(throughput * self._target / buffers)
        self.time_to_consume = self.size * buffers / throughput if throughput else 0.0
        if not self._is_news():
            return None
        self._announced = self.size
        return self.size

    def _average(self, instant: float) -> int:
        """Return the exponential moving average. Growth is limited, so that it takes as many steps as shrinking."""
        moved = self.size + self._alpha * (min(instant, 2 * self.size) - self.size)
        return max(self._smallest, min(int(moved), self._largest))

    def _is_news(self) -> bool:
        if self.size in (self._smallest, self._largest):
            return self.size != self._announced
        return abs(self.size - self._announced) >= self._announced * self._threshold


#: The smallest message, in bytes: below it the fixed costs of a message exceed the cost of its rows.
MESSAGE_FLOOR: Final = 4 << 10


def debloated_message_size(message_size: int, buffer_size: int, segment_size: int) -> int:
    """Return the message size for a buffer size: messages shrink with their buffers. Flink has no such rule."""
    return max(min(MESSAGE_FLOOR, message_size), message_size * buffer_size // segment_size)
