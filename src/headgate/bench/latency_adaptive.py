"""`latency-adaptive`: the case `latency` at half of the full rate, with `buffer_timeout="adaptive"`."""

from __future__ import annotations

from headgate.bench.case_options import Options
from headgate.bench.latency import measured
from headgate.bench.report import CaseResult


def run(options: Options) -> CaseResult:
    """Measure at 50 % of the rate with `buffer_timeout="adaptive"`."""
    return measured("latency-adaptive", options, "adaptive", (0.5,), 3.0)
