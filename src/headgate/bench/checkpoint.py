"""`checkpoint`: the cost of checkpoints, the gaps that they make in the output, and the recovery time after a kill.

Each round measures the rate of `keyed-sum` at full speed: first without checkpoints, then with a checkpoint each
second. The cost is the share of the rate that is lost.
"""

from __future__ import annotations

import tempfile
from statistics import median
from typing import Any

from headgate.bench import recovery
from headgate.bench.case_options import Options
from headgate.bench.checkpoint_gap import KEYS, RATE, gaps
from headgate.bench.keyed_job import SETTINGS, keyed_sum_seconds
from headgate.bench.keyed_sum import OURS, QUICK_OURS
from headgate.bench.keys_job import KINDS
from headgate.bench.report import CaseResult, Figure, ratios

#: The targets: the share of its rate that `keyed-sum` may lose, and the longest time without rows at the sink, in
#: seconds.
COST, GAP = 0.1, 0.1
INTERVAL = "1 s"
ROUNDS, CHECKPOINTS = 5, 8
MB = 1e6


def run(options: Options) -> CaseResult:
    """Measure cost, gaps and recovery, in this order; a Spark executor is killed last."""
    cost, cheap = _cost(options)
    held_up, smooth = _gaps(options)
    recovered = recovery.figures(options)
    prompt = all(figure.median <= kill.target for kill, figure in recovered.items())
    targets = ", ".join(f"{kill.victim} {kill.target:g} s" for kill in recovered)
    target = (
        f"a checkpoint each second costs under {COST:.0%}; during a checkpoint of {KEYS:,} keys the sink gets rows "
        f"at least every {GAP * 1000:g} ms; from a kill to the first new row: {targets}"
    )
    settings = {**SETTINGS, "checkpoint_interval": INTERVAL, "rows/s while gaps are measured": RATE,
                "rows/s while killed": recovery.RATE, "restart": "at once"}  # fmt: skip
    figures = (*cost, *held_up, *recovered.values())
    return CaseResult(
        case="checkpoint", target=target, met=cheap and smooth and prompt, figures=figures, settings=settings
    )


def _cost(options: Options) -> tuple[list[Figure], bool]:
    sizes = QUICK_OURS if options.quick else OURS
    without: list[float] = []
    with_: list[float] = []
    for number in range(1 if options.quick else ROUNDS):
        options.say(f"checkpoint: cost, round {number + 1}")
        without.append(sizes.rate(keyed_sum_seconds))
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
            taking: dict[str, Any] = {"checkpoint_dir": folder, "checkpoint_interval": INTERVAL}
            with_.append(sizes.rate(lambda rows, taking=taking: keyed_sum_seconds(rows, **taking)))  # type: ignore[misc]
    kept = ratios(with_, without)
    figures = [
        Figure("keyed-sum without checkpoints", "rows/s", tuple(without)),
        Figure("keyed-sum, a checkpoint each second", "rows/s", tuple(with_)),
        Figure("rate kept", "", kept),
    ]
    return figures, median(kept) > 1 - COST


def _gaps(options: Options) -> tuple[list[Figure], bool]:
    figures, smooth = [], True
    for kind in KINDS[:2]:
        options.say(f"checkpoint: gaps, {kind.name} keys")
        measured = gaps(kind, 1, KEYS // 20) if options.quick else gaps(kind, CHECKPOINTS)
        figures += [
            Figure(f"{kind.name} keys: largest gap during a checkpoint", "s", tuple(measured.during)),
            Figure(f"{kind.name} keys: largest gap between checkpoints", "s", tuple(measured.between)),
            Figure(f"{kind.name} keys: duration", "s", tuple(measured.durations)),
            Figure(f"{kind.name} keys: size", "MB", tuple(size / MB for size in measured.sizes)),
        ]
        smooth = smooth and max(measured.during) < GAP
    return figures, smooth
