"""`cost`: the cost of credit. One channel runs at full speed over loopback, with credit and with plain TCP.

Two processes hold the two ends, made of the runtime's own parts. Both modes have the same number of buffers. The right
number depends on the machine, because two threads share a core at each end: with too few buffers credit runs out, and
too many buffers exceed the cache. So several numbers are measured, and the number with which credit carries most
counts. The default number is measured too, but does not count. The mode that runs first changes each round.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.bench.case_options import Options
from headgate.bench.exchange import DEFAULT_BUFFERS, end, rate
from headgate.bench.report import Figure, ratios
from headgate.config import Config
from headgate.lab.experiment import Experiment, Plot, Series

#: With enough buffers, credit must carry this share of the rate of plain TCP.
TARGET = 0.95
CREDIT, TCP = "credit", "tcp"
DEFAULT = f"{Config().buffers_per_channel} + {Config().floating_buffers_per_gate} buffers"


def _buffers(count: int) -> Mapping[str, int]:
    return {"buffers_per_channel": 2, "floating_buffers_per_gate": count - 2, "max_buffers_per_channel": count}


ENOUGH: dict[str, Mapping[str, int]] = {f"{count} buffers": _buffers(count) for count in (64, 128, 256)}
SIZES: dict[str, Mapping[str, int]] = {**ENOUGH, DEFAULT: DEFAULT_BUFFERS}

Rates = dict[tuple[str, str], list[float]]


def run(options: Options) -> Experiment:
    """Measure the rate with each number of buffers, with credit and with plain TCP, round by round."""
    volume, rounds = ((64 << 20), 2) if options.quick else ((2 << 30), 10)
    rates: Rates = {}
    with end("producer", 0) as producer, end("consumer", 1) as consumer:
        for number in range(rounds):
            options.say(f"cost: round {number + 1}")
            for size, buffers in SIZES.items():
                for mode in (CREDIT, TCP) if number % 2 else (TCP, CREDIT):
                    config = {**buffers, "flow_control": mode}
                    rates.setdefault((size, mode), []).append(rate(producer, consumer, volume, config))
    return report(rates, volume)


def report(rates: Rates, volume: int) -> Experiment:
    """Return the figures and the verdict."""
    figures = {(size, mode): Figure(f"{mode}, {size}", "B/s", tuple(rates[size, mode])) for size, mode in rates}
    shares = {
        size: Figure(f"credit / tcp, {size}", "", ratios(rates[size, CREDIT], rates[size, TCP])) for size in SIZES
    }
    best = max(ENOUGH, key=lambda size: figures[size, CREDIT].median)
    numbers = tuple(float(number + 1) for number in range(len(rates[best, CREDIT])))
    curves = tuple(Series(f"{mode}, {size}", numbers, tuple(values)) for (size, mode), values in rates.items())
    return Experiment(
        case="cost",
        target=f"with the number of buffers with which credit carries most, credit carries {TARGET:.0%} of what plain "
        "TCP carries with the same number",
        met=shares[best].median >= TARGET,
        figures=(*figures.values(), *shares.values()),
        settings={"volume": volume, "credit carries most with": best},
        plots=(Plot(title="One channel over loopback", x="round", y="payload, B/s", series=curves),),
    )
