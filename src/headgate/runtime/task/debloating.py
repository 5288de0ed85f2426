"""Buffer debloating of one task: adapts the buffer size of its input to its throughput (Flink: FLIP-183)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.config import Config
from headgate.exchange.debloater import BufferDebloater, debloated_message_size
from headgate.exchange.gate import InputGate


class Debloating:
    """The buffer debloating of one task. It measures each input gate, and announces a buffer size to the gate's
    producers.

    It runs on the task thread, every `debloat_period` seconds. A gate's throughput is the number of bytes that the task
    polled per second. Only time in which the task had input counts. `idle_seconds` returns for how many seconds the
    task has had no input so far. `set_message_size` gets the number of bytes that the task should take at once.
    """

    def __init__(
        self,
        gates: Sequence[InputGate],
        config: Config,
        idle_seconds: Callable[[], float],
        set_message_size: Callable[[int], None],
    ) -> None:
        self._gates = tuple(gates)
        self._config = config
        self._idle_seconds = idle_seconds
        self._set_message_size = set_message_size
        self._debloaters = [_debloater(config) for _ in gates]
        self._throughput = [0.0] * len(self._gates)
        self._polled = [0] * len(self._gates)
        self._measured_at: float | None = None
        self._idle = 0.0
        self.deadline = 0.0

    @property
    def buffer_size(self) -> int:
        """The smallest buffer size of all gates, in bytes."""
        return min(debloater.size for debloater in self._debloaters)

    @property
    def time_to_consume(self) -> float:
        """Seconds that the task needs to process the data in flight to its slowest gate."""
        return max(debloater.time_to_consume for debloater in self._debloaters)

    def on_time(self, now: float) -> None:
        """Measure each gate, and announce a changed buffer size to its producers."""
        if now < self.deadline:
            return
        self.deadline = now + self._config.debloat_period
        first, active = self._measured_at is None, self._measure_active(now)
        for number, gate in enumerate(self._gates):
            polled = sum(channel.bytes_polled for channel in gate.channels)
            if active > 0 and not first:
                self._throughput[number] = (polled - self._polled[number]) / active
            self._polled[number] = polled
            if not first:
                self._adjust(gate, self._debloaters[number], self._throughput[number])

    def _measure_active(self, now: float) -> float:
        """End a measuring period. Returns for how many seconds of the period the task had input."""
        idle = self._idle_seconds()
        since = now if self._measured_at is None else self._measured_at
        active = now - since - (idle - self._idle)
        self._measured_at, self._idle = now, idle
        return active

    def _adjust(self, gate: InputGate, debloater: BufferDebloater, throughput: float) -> None:
        size = debloater.recalculate(throughput, sum(channel.buffers_in_use for channel in gate.channels))
        if size is not None:
            for channel in gate.channels:
                channel.announce_buffer_size(size)
            config = self._config
            self._set_message_size(debloated_message_size(config.message_size, self.buffer_size, config.segment_size))


def _debloater(config: Config) -> BufferDebloater:
    return BufferDebloater(
        target=config.debloat_target,
        samples=config.debloat_samples,
        threshold_percentages=config.debloat_threshold_percentages,
        smallest=config.min_segment_size,
        largest=config.segment_size,
    )
