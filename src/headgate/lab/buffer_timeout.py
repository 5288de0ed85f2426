"""`buffer-timeout`: what it costs in latency, and gains in throughput, to wait for fuller buffers.

The experiment is an exchange between two processes, with several numbers of channels. Up to four writers shuffle rows
over n gates, and one union reads all gates. Each timeout runs at full speed. Then each timeout runs at a tenth of the
rate of the best fixed timeout.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildProcess
from headgate.bench.report import Figure, ratios
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.latencies import BUCKETS, percentile

#: Timeouts by their names in the report.
TIMEOUTS: dict[str, Any] = {"0": 0.0, "1 ms": 0.001, "10 ms": 0.01, "100 ms": 0.1, "adaptive": "adaptive"}
ADAPTIVE = "adaptive"
#: (writers, gates) by the number of channels.
FANS = {1: (1, 1), 10: (2, 5), 100: (4, 25), 1000: (4, 250)}
LOAD = 0.1
#: A load counts as carried if this share of its rows arrives in time. Otherwise its latency does not count.
CARRIED = 0.95
#: Adaptive must have at least this share of the best throughput, and at most this multiple of the best p50 and p99.
THROUGHPUT, LATENCY = 0.9, 2.0

#: Enough for the exclusive buffers of 1,000 channels and the floating buffers of all gates.
_CONFIG = {"network_memory": 256 << 20}
_WARM_UP = 0.3
_TIMEOUT = 180.0


@dataclass(slots=True)
class Outcome:
    """The measurements of one timeout on one number of channels, round by round."""

    rows_per_s: list[float] = field(default_factory=list)
    #: At a tenth of the rate: the share of the rows that arrived in time.
    carried: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    buffers_per_s: list[float] = field(default_factory=list)

    @property
    def is_carried(self) -> bool:
        return float(np.median(self.carried)) >= CARRIED


#: The outcomes by number of channels and name of the timeout.
Outcomes = dict[tuple[int, str], Outcome]


class Fan:
    """The two processes of the exchange. Use as a context manager."""

    def __init__(self) -> None:
        self._producer, self._consumer = _end("producer", 0), _end("consumer", 1)

    def __enter__(self) -> Fan:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._consumer.close()

    def run(
        self, channels: int, timeout: float | str, rate: float | None, seconds: float, warm_up: float = _WARM_UP
    ) -> dict[str, Any]:
        """Run at `rate` rows/s (None means full speed) for `seconds` after the warm-up. Return the union's counts."""
        writers, gates = FANS[channels]
        same = {"config": {**_CONFIG, "buffer_timeout": timeout}, "writers": writers, "gates": gates}
        seconds += warm_up
        port = self._producer.ask({"do": "listen", **same, "rate": rate, "seconds": seconds}, _TIMEOUT)["port"]
        took = self._consumer.ask({"do": "consume", **same, "port": port, "warm_up": warm_up}, _TIMEOUT)
        self._producer.ask({"do": "result"}, _TIMEOUT)
        return took


def _end(name: str, rank: int) -> ChildProcess:
    return ChildProcess(f"buffer-timeout {name}", [sys.executable, "-P", "-m", "headgate.lab.fan_pair", str(rank)])


def run(options: Options) -> Experiment:
    """Measure every timeout on every number of channels in turn, round by round."""
    channels, rounds, seconds = ((1, 100), 1, 0.4) if options.quick else (tuple(FANS), 5, 1.5)
    outcomes: Outcomes = {}
    with Fan() as fan:
        for number in range(rounds):
            for count in channels:
                options.say(f"buffer-timeout: round {number + 1}, {count} channels")
                one_round(fan, count, seconds, outcomes, first=number)
    return report(outcomes, channels)


def one_round(fan: Fan, channels: int, seconds: float, outcomes: Outcomes, first: int = 0) -> None:
    """Measure all timeouts at full speed, then all at a tenth of the rate of the best fixed timeout.

    `first` is the number of the timeout that runs first. It changes each round, so that no timeout always runs last.
    """
    by_name = {name: outcomes.setdefault((channels, name), Outcome()) for name in TIMEOUTS}
    order = deque(TIMEOUTS)
    order.rotate(-first)
    for name in order:
        took = fan.run(channels, TIMEOUTS[name], None, seconds)
        by_name[name].rows_per_s.append(took["rows"] / took["seconds"])
    rate = LOAD * max(outcome.rows_per_s[-1] for name, outcome in by_name.items() if name != ADAPTIVE)
    for name in order:
        took = fan.run(channels, TIMEOUTS[name], rate, seconds)
        counts = np.zeros(BUCKETS, dtype=np.int64)
        counts[took["cells"]] = took["late"]
        by_name[name].carried.append(took["rows"] / (rate * seconds))
        by_name[name].p50.append(percentile(counts, 50))
        by_name[name].p99.append(percentile(counts, 99))
        by_name[name].buffers_per_s.append(took["buffers"] / (seconds + _WARM_UP))


def report(outcomes: Outcomes, channels: Sequence[int]) -> Experiment:
    """Return the figures and the verdict: adaptive must reach its targets with every number of channels."""
    figures: list[Figure] = []
    met = True
    for (count, name), outcome in outcomes.items():
        label = f"{count} channels, {name}"
        figures.append(Figure(f"{label}: full speed", "rows/s", tuple(outcome.rows_per_s)))
        if outcome.is_carried:
            figures.append(Figure(f"{label}: p50 at {LOAD:.0%}", "ms", tuple(outcome.p50)))
            figures.append(Figure(f"{label}: p99 at {LOAD:.0%}", "ms", tuple(outcome.p99)))
        else:
            figures.append(Figure(f"{label}: carried of {LOAD:.0%}", "", tuple(outcome.carried)))
        figures.append(Figure(f"{label}: buffers at {LOAD:.0%}", "1/s", tuple(outcome.buffers_per_s)))
    for count in channels:
        throughput, p50, p99 = _against_best(outcomes, count)
        figures += throughput, p50, p99
        met = met and outcomes[count, ADAPTIVE].is_carried
        met = met and throughput.median >= THROUGHPUT and p50.median <= LATENCY and p99.median <= LATENCY
    return Experiment(
        case="buffer-timeout",
        target=f"adaptive keeps {THROUGHPUT:.0%} of the best fixed timeout's throughput, and its p50 and p99 at "
        f"{LOAD:.0%} load stay within {LATENCY:g} x the best fixed one's",
        met=met,
        figures=tuple(figures),
        settings={"(writers, gates)": str({count: FANS[count] for count in channels}), "bytes per row": 24},
        plots=_plots(outcomes, channels),
    )


def _against_best(outcomes: Outcomes, channels: int) -> tuple[Figure, Figure, Figure]:
    """Return three ratios, round by round: adaptive's throughput, p50 and p99 to those of the best fixed timeout.

    Each ratio takes the fixed timeout that is best in this figure.
    """
    ours = outcomes[channels, ADAPTIVE]
    fixed = [outcome for (count, name), outcome in outcomes.items() if count == channels and name != ADAPTIVE]
    carried = [outcome for outcome in fixed if outcome.is_carried] or fixed
    best_rate = max((outcome.rows_per_s for outcome in fixed), key=np.median)
    best_p50 = min((outcome.p50 for outcome in carried), key=np.median)
    best_p99 = min((outcome.p99 for outcome in carried), key=np.median)
    label = f"{channels} channels: adaptive / best fixed"
    return (
        Figure(f"{label} throughput", "", ratios(ours.rows_per_s, best_rate)),
        Figure(f"{label} p50", "", ratios(ours.p50, best_p50)),
        Figure(f"{label} p99", "", ratios(ours.p99, best_p99)),
    )


def _plots(outcomes: Mapping[tuple[int, str], Outcome], channels: Sequence[int]) -> tuple[Plot, ...]:
    x = tuple(float(count) for count in channels)

    def curves(of: str) -> tuple[Series, ...]:
        return tuple(
            Series(name, x, tuple(float(np.median(getattr(outcomes[count, name], of))) for count in channels))
            for name in TIMEOUTS
        )

    return (
        Plot(title="Full speed", x="channels", y="rows/s", series=curves("rows_per_s"), log_x=True),
        Plot(title=f"p99 at {LOAD:.0%} load", x="channels", y="ms", series=curves("p99"), log_x=True, log_y=True),
    )
