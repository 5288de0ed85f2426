"""`latency-adaptive`: the case `latency` at half of the full rate, with `buffer_timeout="adaptive"`."""

from __future__ import annotations

from typing import Final

from headgate.bench.case_options import Options
from headgate.bench.latency import LatencyTarget, measured
from headgate.bench.report import CaseResult

#: The milliseconds by which p99 may be above the idle timer's, and the most that this may be.
_ABOVE: Final = 3.0
_STEADY: Final = 1.0


def run(options: Options) -> CaseResult:
    """Measure at 50 % of the rate with `buffer_timeout="adaptive"`, in five rounds."""
    target = LatencyTarget(
        f"p99 less than {_ABOVE:g} ms above the idle timer's p99, which is below {_STEADY:g} ms",
        lambda before, _beside: before + _ABOVE,
        rounds=5,
        steady=_STEADY,
    )
    return measured("latency-adaptive", options, "adaptive", (0.5,), target)
