"""SparkPid: the times of completed batches set the rate of the sources, as in Spark Streaming 1.5 and later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from headgate.errors import ConfigError
from headgate.throttle.batch_schedule import CompletedBatch
from headgate.throttle.mechanism import ComparedMechanism, JobOptions, Scope, Task, ThrottleSignal
from headgate.throttle.pid_rate_estimator import PidRateEstimator
from headgate.throttle.token_bucket import TokenBucket
from headgate.throttle.validation import Duration, duration, number_above_zero, number_of_at_least_zero

#: The rate of a source without any limit, in rows per second: Java's largest `long`, as in Spark.
UNLIMITED: Final = 2.0**63
#: The burst of Guava's `RateLimiter`, in seconds.
_BURST: Final = 1.0


@dataclass(frozen=True, slots=True)
class RateUpdate(ThrottleSignal):
    """The new rate of one subtask of a source, in whole rows per second. Nothing acknowledges or repeats it."""

    scope: ClassVar[Scope] = Scope.TASKS
    tasks: tuple[Task, ...]
    rows_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPid(ComparedMechanism):
    """Spark Streaming: a batch each `batch_interval`; a PID controller sets the rate at which batches keep up.

    Rates are in rows per second, for each subtask of a source. Until the second batch is complete, a source reads at
    `initial_rate` (None: at `max_rate`), and later never above `max_rate` (None: no limit). The gains are Spark's
    `spark.streaming.backpressure.pid.*`, and `min_rate` is the smallest rate of the controller. Spark and Headgate
    forget the rate when the job restarts. Rows that wait for their batch are in memory, at most `network_memory` bytes
    for each source subtask. With `storage="memory_and_disk"`, the default of Spark's receivers, more rows are stored in
    `spill_dir`; with `"memory"` the job ends with NetworkMemoryFull. For `over_credit` see docs/concepts/mechanisms.md.

    Raises ConfigError for impossible values.

    >>> hg.throttle.SparkPid(batch_interval="1 s", initial_rate=1000).min_rate
    100.0
    """

    has_queue: ClassVar[bool] = False
    needs_all_sources: ClassVar[bool] = True
    batch_interval: Duration
    initial_rate: float | None = None
    min_rate: float = 100.0
    max_rate: float | None = None
    proportional: float = 1.0
    integral: float = 0.2
    derivative: float = 0.0
    storage: Literal["memory", "memory_and_disk"] = "memory_and_disk"

    def __post_init__(self) -> None:
        if self.storage not in ("memory", "memory_and_disk"):
            raise ConfigError(f'storage={self.storage!r} is unknown: it must be "memory" or "memory_and_disk"')
        for name in ("proportional", "integral", "derivative"):
            number_of_at_least_zero(name, getattr(self, name))
        for name in ("initial_rate", "min_rate", "max_rate"):
            if name == "min_rate" or getattr(self, name) is not None:
                number_above_zero(name, getattr(self, name))
        if duration("batch_interval", self.batch_interval) < 1e-3:
            raise ConfigError(f"batch_interval={self.batch_interval!r} is impossible: it must be at least 1 ms")

    def check(self, job: JobOptions) -> None:
        super(SparkPid, self).check(job)
        if job.has_checkpoints:
            raise ConfigError(
                f"throttle={self} closes its batches with barriers of its own, so its job has no checkpoints: leave "
                "checkpoint_dir out"
            )

    def pid_source(self, now: float) -> PidSource:
        """Return the policy of one subtask of a source."""
        return PidSource(self.initial_rate, self.max_rate, now)

    def rate_controller(self, task: Task) -> RateController:
        """Return the controller of one subtask of a source. It runs on the driver."""
        interval = _milliseconds(duration("batch_interval", self.batch_interval))
        estimator = PidRateEstimator(
            interval,
            proportional=self.proportional,
            integral=self.integral,
            derivative=self.derivative,
            min_rate=self.min_rate,
        )
        return RateController(task, estimator)


class RateController:
    """Estimates the rate of one subtask of a source from the batches of the job."""

    def __init__(self, task: Task, estimator: PidRateEstimator) -> None:
        self._task = task
        self._estimator = estimator

    def completed(self, batch: CompletedBatch, rows: Mapping[Task, int]) -> RateUpdate | None:
        """Return the new rate after a batch, which has `rows` of each subtask. None: the rate stays.

        The rate has no fraction, and times are rounded to milliseconds, as in Spark.
        """
        if self._task not in rows:
            return None
        end, processing, scheduling = map(_milliseconds, (batch.end, batch.processing, batch.scheduling))
        rate = self._estimator.compute(end, rows[self._task], processing, scheduling)
        return None if rate is None else RateUpdate((self._task,), int(rate))


class PidSource:
    """The source policy of SparkPid: a token bucket whose rate follows the updates, up to the largest rate."""

    def __init__(self, initial_rate: float | None, max_rate: float | None, now: float) -> None:
        self._max_rate = UNLIMITED if max_rate is None else float(max_rate)
        self.rows_per_s = self._max_rate if initial_rate is None else min(float(initial_rate), self._max_rate)
        self._bucket = TokenBucket(self.rows_per_s, _BURST, now)

    def permit(self, now: float) -> float:
        return self._bucket.permit(now)

    def emitted(self, now: float, rows: int) -> None:
        self._bucket.emitted(now, rows)

    def on_signal(self, now: float, update: RateUpdate) -> None:
        """Follow an update. A rate of 0 is ignored."""
        if update.rows_per_s > 0:
            self.rows_per_s = min(float(update.rows_per_s), self._max_rate)
            self._bucket.set_rate(now, self.rows_per_s)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
