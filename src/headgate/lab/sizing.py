"""`sizing`: whether 2 + 8 buffers saturate a channel if, and only if, round trip x rate fits into these buffers.

The channel runs between two processes over a line of known rate and delay. Both ends are made of the runtime's own
parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildProcess
from headgate.bench.exchange import DEFAULT_BUFFERS, MANY_BUFFERS, end
from headgate.bench.exchange_pair import prebuilt_batch
from headgate.bench.report import Figure
from headgate.config import Config
from headgate.lab.delay_line import DelayLine
from headgate.lab.experiment import Experiment, Plot, Series

#: Bytes/s of the line.
RATE = 20e6
SEGMENT = Config().segment_size
DEFAULT = Config().buffers_per_channel + Config().floating_buffers_per_gate
SIZES: dict[str, Mapping[str, int]] = {f"{DEFAULT} buffers": DEFAULT_BUFFERS, "64 buffers": MANY_BUFFERS}

#: How many buffers fill the line for one round trip. `FITS` fits into 2 + 8 buffers and leaves room for the work of the
#: ends. `EXCEEDS` does not fit.
FITS, EXCEEDS = 5.0, 20.0
POINTS = (2.5, FITS, 10.0, EXCEEDS, 40.0)
#: A channel is saturated from the share `SATURATED` of the line's rate on. It is starved up to the share `STARVED`.
SATURATED, STARVED = 0.9, 0.7

_TIMEOUT = 120.0

Shares = dict[tuple[str, float], list[float]]


def run(options: Options) -> Experiment:
    """Measure both sizes at every point in turn, round by round."""
    points, rounds, seconds = ((FITS, EXCEEDS), 1, 0.4) if options.quick else (POINTS, 3, 2.0)
    shares: Shares = {}
    with end("producer", 0) as producer, end("consumer", 1) as consumer:
        for number in range(rounds):
            options.say(f"sizing: round {number + 1}")
            for point in points:
                for name, size in SIZES.items():
                    share = share_of_line(producer, consumer, size, point, seconds)
                    shares.setdefault((name, point), []).append(share)
    return report(shares)


def share_of_line(
    producer: ChildProcess, consumer: ChildProcess, size: Mapping[str, int], buffers: float, seconds: float
) -> float:
    """Return the share of the line's rate that the channel carries if `buffers` fill the line for one round trip."""
    batches = round(RATE * seconds / prebuilt_batch().nbytes)
    shared: dict[str, Any] = {"config": dict(size), "channels": 1}
    target = producer.ask({"do": "listen", "batches": batches, **shared}, _TIMEOUT)["port"]
    with DelayLine(target, RATE, buffers * SEGMENT / RATE) as line:
        took = consumer.ask({"do": "consume", "port": line.port, "row_function": False, **shared}, _TIMEOUT)
        producer.ask({"do": "result"}, _TIMEOUT)
    return float(took["bytes"] / took["seconds"] / RATE)


def report(shares: Shares) -> Experiment:
    """Return the figures and the verdict."""
    figures = tuple(
        Figure(f"{name}, round trip of {point:g}", "of the line's rate", tuple(values))
        for (name, point), values in shares.items()
    )
    median = {key: figure.median for key, figure in zip(shares, figures, strict=True)}
    few, many = SIZES
    met = median[few, FITS] >= SATURATED and median[few, EXCEEDS] <= STARVED and median[many, EXCEEDS] >= SATURATED
    points = tuple(sorted({point for _, point in shares}))
    curves = [Series(name, points, tuple(median[name, point] for point in points)) for name in SIZES]
    ideal = Series(f"{DEFAULT} / round trip", points, tuple(min(1.0, DEFAULT / point) for point in points))
    plot = Plot(title="What a channel carries", x="buffers that fill the line for a round trip",
                y="share of the line's rate", series=(*curves, ideal), log_x=True,
                marks=((DEFAULT, f"{DEFAULT} buffers"),))  # fmt: skip
    return Experiment(
        case="sizing",
        target=f"{few} carry {SATURATED:.0%} of a line that {FITS:g} buffers fill for a round trip, and at most "
        f"{STARVED:.0%} of a line that {EXCEEDS:g} buffers fill; {many} carry {SATURATED:.0%} of the second line",
        met=met,
        figures=figures,
        settings={"line, bytes/s": RATE, "segment": SEGMENT},
        plots=(plot,),
    )
