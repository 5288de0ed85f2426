"""`keys`: what a thousand times more keys cost in rate and memory. A key is an integer, a string, or an integer and a
string.

Each rate comes from a small and a large job: the difference of their rows, divided by the difference of their times.
Both jobs have the start-up and the first rows of nearly all keys, so these do not count. Few and many keys run in turn,
round by round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from headgate.bench.case_options import Options
from headgate.bench.keyed_job import SETTINGS
from headgate.bench.keyed_sum import Sizes
from headgate.bench.keys_job import KINDS, KeyedRun, KeyKind, run_keyed
from headgate.bench.report import CaseResult, Figure, ratios

TARGET = 0.25
FEW, MANY = 1_000, 1_000_000
SIZES = {FEW: Sizes(2_000_000, 32_000_000), MANY: Sizes(4_000_000, 19_000_000)}
QUICK_SIZES = {FEW: Sizes(500_000, 4_500_000), MANY: Sizes(1_000_000, 4_000_000)}
ROUNDS = 3


@dataclass(slots=True)
class _KeyMeasurement:
    """The measurements of one kind of key with one number of keys: a rate per round, and all runs."""

    rates: list[float] = field(default_factory=list)
    runs: list[KeyedRun] = field(default_factory=list)

    def measure(self, kind: KeyKind, keys: int, sizes: Sizes) -> None:
        def seconds(rows: int) -> float:
            self.runs.append(run_keyed(kind, keys, rows))
            return self.runs[-1].seconds

        self.rates.append(sizes.rate(seconds))

    @property
    def largest_state(self) -> KeyedRun:
        return max(self.runs, key=lambda run: run.state_bytes)


def run(options: Options) -> CaseResult:
    """Measure each kind of key in rounds, with few and with many keys."""
    sizes = QUICK_SIZES if options.quick else SIZES
    measured = {(kind.name, keys): _KeyMeasurement() for kind in KINDS for keys in sizes}
    for number in range(1 if options.quick else ROUNDS):
        for kind in KINDS:
            options.say(f"keys: round {number + 1}, {kind.name}")
            for keys in sizes:
                measured[kind.name, keys].measure(kind, keys, sizes[keys])
    figures, met = [], True
    for kind in KINDS:
        few, many = measured[kind.name, FEW], measured[kind.name, MANY]
        ratio = ratios(many.rates, few.rates)
        figures += _figures(kind.name, few, many, ratio)
        met = met and median(ratio) >= TARGET
    target = f"with {MANY:,} keys at least {TARGET:g} of the rate with {FEW:,}, for every kind of key"
    return CaseResult(
        case="keys", target=target, met=met, figures=tuple(figures), settings={**SETTINGS, "keys": [FEW, MANY]}
    )


def _figures(kind: str, few: _KeyMeasurement, many: _KeyMeasurement, ratio: tuple[float, ...]) -> list[Figure]:
    state = many.largest_state
    return [
        Figure(f"{kind}: {FEW:,} keys", "rows/s", tuple(few.rates)),
        Figure(f"{kind}: {MANY:,} keys", "rows/s", tuple(many.rates)),
        Figure(f"{kind}: ratio", "", ratio),
        Figure(f"{kind}: keys held at most", "", (state.state_keys,)),
        Figure(f"{kind}: bytes per key then", "bytes", (state.bytes_per_key,)),
    ]
