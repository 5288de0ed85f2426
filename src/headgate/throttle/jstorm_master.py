"""JStormMaster: congested subtasks ask a coordinator, which lets the sources above them sleep, as in JStorm 2.1.

A subtask samples its own input queue and sends requests. The coordinator on the driver decides which sources to slow
down. A source sleeps after each message, for a time that it finds by bisection. Facts and defaults are those of the
configuration file of JStorm 2.1.1: classes `BackpressureTrigger`, `BackpressureCoordinator` and
`BackpressureController`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headgate.throttle.bisected_sleep import BisectedSleep
from headgate.throttle.mechanism import ComparedMechanism, Task
from headgate.throttle.throttle_coordinator import (
    SleepLonger,
    SleepShorter,
    StartRequest,
    StopRequest,
    ThrottleCoordinator,
)
from headgate.throttle.validation import (
    Duration,
    duration,
    duration_above_zero,
    fraction,
    rising_fractions,
    whole_number,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JStormMaster(ComparedMechanism):
    """JStorm 2.1: the sources above a congested operator sleep after each message.

    Each subtask looks at its input queue of `receive_buffer` messages every `check_interval`. It is congested if
    `sample_rate` (a fraction) of `samples` samples in a row are over `high`. It is relieved if as many of them are at
    `low` or below. Both marks are fractions of the queue. Sources slow down when `trigger_ratio` (a fraction) of an
    operator's subtasks are congested.

    A full queue blocks its senders, as JStorm's does (`topology.buffer.size.limited` is true). Use `flow_control="tcp"`
    for this: then the connection of a full queue stops, as when JStorm's network thread blocks. With `"unbounded"`,
    further messages wait in network memory. A subtask takes all messages of its queue together; these count until it
    has handled the last one of them (LMAX Disruptor). For `over_credit` see docs/concepts/mechanisms.md. Raises
    ConfigError for impossible values.

    >>> hg.throttle.JStormMaster(check_interval="1 s").samples
    4
    """

    receive_buffer: int = 1024
    high: float = 0.8
    low: float = 0.05
    trigger_ratio: float = 0.1
    check_interval: Duration = 0.5
    samples: int = 4
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        whole_number("receive_buffer", self.receive_buffer, least=1)
        whole_number("samples", self.samples, least=1)
        rising_fractions(low=self.low, high=self.high)
        fraction("trigger_ratio", self.trigger_ratio)
        fraction("sample_rate", self.sample_rate)
        duration_above_zero("check_interval", self.check_interval)

    def sampler(self, task: Task, now: float) -> LoadSampler:
        """Return the policy of one subtask with an input queue: it takes the samples."""
        return LoadSampler(self, task, now)

    def sleeping_source(self, task: Task, now: float, destinations: int = 1) -> SleepingSource:
        """Return the policy of one subtask of a source. It sends each batch to `destinations` subtasks."""
        return SleepingSource(task, destinations, now)

    def coordinator(
        self,
        inputs: Mapping[int, Sequence[int]],
        parallelism: Mapping[int, int],
        never_asleep: Collection[int] = (),
    ) -> ThrottleCoordinator:
        """Return the coordinator, which runs on the driver.

        `inputs` lists for each vertex the vertices that it reads from. `parallelism` is each vertex's number of
        subtasks. `never_asleep` are the sources with a throttle of their own.
        """
        period = duration("check_interval", self.check_interval) * self.samples
        return ThrottleCoordinator(inputs, parallelism, period, self.trigger_ratio, never_asleep=never_asleep)


class LoadSampler:
    """Samples the input queue of one subtask, and asks the coordinator to start or stop the throttle."""

    def __init__(self, mechanism: JStormMaster, task: Task, now: float) -> None:
        self._mechanism = mechanism
        self._interval = duration("check_interval", mechanism.check_interval)
        self._task = task
        self._over = self._under = self._count = 0
        #: Whether the subtask has asked for a throttle that is not over.
        self.is_marked = False
        self.next_check = now + self._interval

    def check(self, now: float, queued: int, worked_ms: float) -> StartRequest | StopRequest | None:
        """Take a sample, at `next_check`: the occupied places of the queue, and how long the last message took.

        After each `samples` samples, the subtask repeats its request as long as it has a reason.
        """
        self.next_check = now + self._interval
        fill = queued / self._mechanism.receive_buffer
        self._count += 1
        self._over += fill > self._mechanism.high
        self._under += fill <= self._mechanism.low
        if self._count < self._mechanism.samples:
            return None
        over, under = self._over / self._count, self._under / self._count
        self._over = self._under = self._count = 0
        return self._request(over, under, worked_ms)

    def _request(self, over: float, under: float, worked_ms: float) -> StartRequest | StopRequest | None:
        enough = self._mechanism.sample_rate
        if over > under:
            if over < enough:
                return None
            self.is_marked = True
            return StartRequest(self._task, int(worked_ms))
        return StopRequest(self._task) if under >= enough and self.is_marked else None

    def on_signal(self, now: float, signal: SleepShorter) -> None:
        """Note that no source above this subtask sleeps any more."""
        self.is_marked = False


class SleepingSource:
    """The source policy of JStormMaster: one subtask sleeps after each message that it sends to one destination."""

    def __init__(self, task: Task, destinations: int, now: float) -> None:
        self._task = task
        self._destinations = destinations
        self._sleep = BisectedSleep()
        self._free_at = now

    def permit(self, now: float) -> float:
        return self._free_at

    def emitted(self, now: float, rows: int) -> None:
        self._free_at = now + self._destinations * self._sleep.milliseconds / 1000

    def on_signal(self, now: float, signal: SleepLonger | SleepShorter) -> StopRequest | None:
        """Follow the coordinator. Return the signal that the sleep is over, or None."""
        if isinstance(signal, SleepLonger):
            self._sleep.start(signal.flow_ms)
            return None
        return StopRequest(self._task) if self._sleep.stop() else None
