"""PidRateEstimator: from the time that batches take, the rate of rows at which they take exactly their interval."""

from __future__ import annotations

from headgate.throttle.validation import number_above_zero, number_of_at_least_zero, whole_number


class PidRateEstimator:
    """Spark Streaming's `PIDRateEstimator`: the same results for the same calls, bit for bit.

    The *error* is the difference between the last rate and the rate at which the last batch was processed. The
    integral part is not a sum of errors, but the rows that wait: the scheduling delay times the processing rate. The
    gains are numbers of at least 0, and `min_rate`, in rows per second, is above 0. Raises ConfigError.

    With `proportional=1` the last rate has no influence. With `integral=0.2` a scheduling delay of 5 intervals or more
    results in `min_rate`.

    >>> estimator = PidRateEstimator(1000, min_rate=10)
    >>> estimator.compute(time_ms=1000, rows=500, processing_ms=500, scheduling_ms=0)  # the first batch gives no rate
    >>> estimator.compute(time_ms=2000, rows=1000, processing_ms=500, scheduling_ms=0)
    2000.0
    """

    def __init__(
        self,
        interval_ms: int,
        *,
        proportional: float = 1.0,
        integral: float = 0.2,
        derivative: float = 0.0,
        min_rate: float = 100.0,
    ) -> None:
        whole_number("interval_ms", interval_ms, least=1)
        for name, gain in (("proportional", proportional), ("integral", integral), ("derivative", derivative)):
            number_of_at_least_zero(name, gain)
        number_above_zero("min_rate", min_rate)
        self._interval = interval_ms
        self._proportional = float(proportional)
        self._integral = float(integral)
        self._derivative = float(derivative)
        self._min_rate = float(min_rate)
        self._time: int | None = None
        self._rate = -1.0
        self._error = -1.0

    def compute(self, time_ms: int, rows: int, processing_ms: int, scheduling_ms: int) -> float | None:
        """Return the rate for the next batches in rows per second, or None if this batch gives none.

        `time_ms` is when the batch ended. `processing_ms` is how long it ran, and `scheduling_ms` how long it waited
        before. A batch is ignored if it has no rows, if it took no time, or if it ended no later than the batch before.
        """
        before = -1 if self._time is None else self._time
        if time_ms <= before or rows <= 0 or processing_ms <= 0:
            return None
        processed = rows / processing_ms * 1000
        if self._time is None:
            self._time, self._rate, self._error = time_ms, processed, 0.0
            return None
        error = self._rate - processed
        waiting = scheduling_ms * processed / self._interval
        change = (error - self._error) / ((time_ms - before) / 1000)
        rate = self._rate - self._proportional * error - self._integral * waiting - self._derivative * change
        self._time, self._rate, self._error = time_ms, max(rate, self._min_rate), error
        return self._rate
