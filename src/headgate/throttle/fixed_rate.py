"""FixedRate: a source reads at most so many rows per second, as Spark Streaming's `receiver.maxRate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.throttle.mechanism import Mechanism, SourcePolicy
from headgate.throttle.token_bucket import TokenBucket
from headgate.throttle.validation import Duration, duration, number_above_zero


@dataclass(frozen=True, slots=True)
class FixedRate(Mechanism):
    """Limit each subtask of a source to `rows_per_s` rows per second.

    A batch is never divided: a source reads a whole batch, and waits until the rate allows its next one. A source that
    has nothing to read saves up its rate for at most `burst` (a duration); it may then read that many rows at once. The
    rate does not depend on what the job can process. Raises ConfigError for impossible values. This is
    `spark.streaming.receiver.maxRate` of Spark Streaming, whose burst is 1 s.

    >>> hg.throttle.FixedRate(rows_per_s=50_000, burst="100 ms")
    FixedRate(rows_per_s=50000, burst='100 ms')
    """

    is_static: ClassVar[bool] = True
    rows_per_s: float
    burst: Duration = 1.0

    def __post_init__(self) -> None:
        number_above_zero("rows_per_s", self.rows_per_s)
        duration("burst", self.burst)

    def source_policy(self, now: float) -> SourcePolicy:
        return TokenBucket(float(self.rows_per_s), duration("burst", self.burst), now)
