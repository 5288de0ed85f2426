"""Buffer debloating: choose a buffer size, so that a consumer needs about `target` seconds for the data in flight.

The rule, the defaults and the test vectors are Flink's (BufferDebloater, FLIP-183). The calculation is pure: it uses
only the throughput and the number of buffers in use. The consumer announces the size to its producers, and a producer
fills each buffer only up to this size. The number of buffers and their memory do not change.
"""

from __future__ import annotations

from typing import Final


class BufferDebloater:
    """The calculation of one input gate's buffer size, in bytes. The size starts at `largest`.

    `samples` is the number of calculations that the moving average covers. The gate must announce a size that is
    `smallest` or `largest`, or that differs from the announced size by at least `threshold_percentages` percent.
    """

    def __init__(self, *, target: float, samples: int, threshold_percentages: int, smallest: int, largest: int) -> None:
        self._target = target
        self._alpha = 2 / (samples + 1)
        self._threshold = threshold_percentages / 100
        self._smallest = min(smallest, largest)
        self._largest = largest
        self._announced = largest
        self.size = largest
        #: The time, in seconds, that the task needs to consume the data in flight.
        self.time_to_consume = 0.0

    def recalculate(self, throughput: float, buffers: int) -> int | None:
        """Update the size. Return the size if the gate must announce it to the producers, else None.

        `throughput` is the bytes/s that the gate consumed while it had data. `buffers` is the number of buffers in use.
        """
        buffers = max(1, buffers)
        self.size = self._average(throughput * self._target / buffers)
        self.time_to_consume = self.size * buffers / throughput if throughput else 0.0
        if not self._is_news():
            return None
        self._announced = self.size
        return self.size

    def _average(self, instant: float) -> int:
        """Return the exponential moving average of the size.

        `instant`, the new value, counts as at most twice the current size: the size grows as slowly as it shrinks.
        """
        moved = self.size + self._alpha * (min(instant, 2 * self.size) - self.size)
        return max(self._smallest, min(int(moved), self._largest))

    def _is_news(self) -> bool:
        if self.size in (self._smallest, self._largest):
            return self.size != self._announced
        return abs(self.size - self._announced) >= self._announced * self._threshold


#: The smallest message size, in bytes. In a smaller message, the fixed costs exceed the cost of the rows.
MESSAGE_FLOOR: Final = 4 << 10


def debloated_message_size(message_size: int, buffer_size: int, segment_size: int) -> int:
    """Return the message size for a buffer size: messages shrink with their buffers. Flink has no such rule."""
    return max(min(MESSAGE_FLOOR, message_size), message_size * buffer_size // segment_size)
